"""The command line: registers the commands and turns errors into exit codes.

0    done
1    a bug (with traceback), or the machine failed
2    the user's input is wrong: one message, no traceback
130  interrupted
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from txagent_train import __version__
from txagent_train.cli import data
from txagent_train.cli.merge import merge
from txagent_train.cli.quickstart import quickstart
from txagent_train.cli.report import report
from txagent_train.cli.sft import sft
from txagent_train.cli.validate import validate
from txagent_train.core.errors import TxAgentTrainError
from txagent_train.tracking.logging import set_up_logging

app = typer.Typer(
    help="Trains tool-using biomedical agents on recorded tool-use traces.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


# One line a command. A command module imports torch, and whatever imports it, only inside its functions.
app.command()(quickstart)
app.command()(validate)
app.add_typer(data.app, name="data")
app.command()(sft)
app.command()(merge)
app.command()(report)


def main() -> None:
    """Run the command line and exit with one of the codes above."""
    set_up_logging()
    try:
        app()
    except TxAgentTrainError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
