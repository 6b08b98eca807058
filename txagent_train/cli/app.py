"""The command line: registers the commands and turns errors into exit codes.

0    done
1    a bug (with traceback), or the machine failed
2    the user's input is wrong: one message, no traceback
130  interrupted, by SIGINT or SIGTERM
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from txagent_train import __version__
from txagent_train.cli import data, tools
from txagent_train.cli.doctor import doctor
from txagent_train.cli.fetch import fetch
from txagent_train.cli.launch import launch
from txagent_train.cli.merge import merge
from txagent_train.cli.plan import plan
from txagent_train.cli.quickstart import quickstart
from txagent_train.cli.report import report
from txagent_train.cli.sft import sft
from txagent_train.cli.sweep import sweep
from txagent_train.cli.validate import validate
from txagent_train.core.errors import TxAgentTrainError
from txagent_train.tracking.logging import set_up_logging


class _Commands(TyperGroup):
    """Tells what an interruption has to say: typer turns it into an exit code, and would lose its words."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            if str(stop):
                print(f"interrupted: {stop}", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
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
app.add_typer(tools.app, name="tools")
app.command()(doctor)
app.command()(fetch)
app.command()(plan)
app.command()(sft)
app.command()(launch)
app.command()(sweep)
app.command()(merge)
app.command()(report)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, which batch systems send, unwinds as Ctrl-C does: what is open is closed and marked."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt("stopped by SIGTERM")

    former = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def main() -> None:
    """Run the command line and exit with one of the codes above."""
    # How long a thread spins before it sleeps, some microseconds: long spinning takes the cores from everything else
    # that runs, and sleeping at once costs a training that is alone a sixth of its speed.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    set_up_logging()
    try:
        with _terminated_as_interrupted():
            app()
    except TxAgentTrainError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
