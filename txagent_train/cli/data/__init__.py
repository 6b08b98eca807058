"""``txagent-train data``: one file per command."""

from __future__ import annotations

import typer

from txagent_train.cli.data.checking import check
from txagent_train.cli.data.freezing import freeze_command
from txagent_train.cli.data.importing import import_command
from txagent_train.cli.data.preparing import prepare
from txagent_train.cli.data.showing import show
from txagent_train.cli.data.splitting import split
from txagent_train.cli.data.stats import stats

app = typer.Typer(help="Import, look at, check, split and prepare traces.", no_args_is_help=True)
app.command("import")(import_command)
app.command()(stats)
app.command()(split)
app.command("freeze")(freeze_command)
app.command()(show)
app.command()(check)
app.command()(prepare)
