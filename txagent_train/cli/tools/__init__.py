"""``txagent-train tools``: one file per command."""

from __future__ import annotations

import typer

from txagent_train.cli.tools.checking import check
from txagent_train.cli.tools.collecting import collect
from txagent_train.cli.tools.exporting import export
from txagent_train.cli.tools.importing import import_command
from txagent_train.cli.tools.migrating import migrate
from txagent_train.cli.tools.neighbours import neighbours
from txagent_train.cli.tools.rewriting import rewrite
from txagent_train.cli.tools.stats import stats
from txagent_train.cli.tools.unseen import unseen

app = typer.Typer(help="Import, check, count, migrate, export and rewrite tools.", no_args_is_help=True)
app.command("import")(import_command)
app.command()(collect)
app.command()(check)
app.command()(stats)
app.command()(migrate)
app.command()(export)
app.command()(rewrite)
app.command()(neighbours)
app.command()(unseen)
