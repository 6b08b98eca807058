"""Log lines and progress of a command: rank 0 speaks, other ranks only warn. Everything goes to stderr.

On a terminal a progress bar is drawn; elsewhere (a SLURM log) a plain line is written now and then.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

_log = logging.getLogger(__name__)
_PACKAGE = "txagent_train"
_LINE_EVERY_S = 30.0


def rank() -> int:
    """This process's rank as the launcher put it into RANK; 0 where there is no launcher."""
    return int(os.environ.get("RANK", "0"))


def set_up_logging(level: int = logging.INFO) -> None:
    """Send the package's log lines to stderr; called once, by the command line."""
    logger = logging.getLogger(_PACKAGE)
    logger.handlers = [_handler()]
    logger.propagate = False
    logger.setLevel(level if rank() == 0 else max(level, logging.WARNING))


def _handler() -> logging.Handler:
    if sys.stderr.isatty():
        from rich.logging import RichHandler

        return RichHandler(console=_console(), show_path=False, markup=False)
    handler = logging.StreamHandler(sys.stderr)
    prefix = "" if rank() == 0 else f"rank {rank()} "
    handler.setFormatter(logging.Formatter(f"%(asctime)s {prefix}%(levelname)s %(message)s"))
    return handler


@cache
def _console() -> Console:
    # One for both: a line logged while a bar is drawn goes above the bar.
    from rich.console import Console

    return Console(stderr=True)


class Progress(Protocol):
    """Counts finished units of a long piece of work."""

    def advance(self, n: int = 1, note: str = "") -> None:
        """``n`` more units are done; ``note`` is shown beside the count (``loss 0.41``)."""


class _Silent:
    def advance(self, n: int = 1, note: str = "") -> None:
        """Say nothing."""


class _Lines:
    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total = what, total
        self._done = 0
        self._last = self._start = time.monotonic()

    def advance(self, n: int = 1, note: str = "") -> None:
        """Count, and write a line if the last one is long ago or the work is done."""
        self._done += n
        now = time.monotonic()
        if now - self._last < _LINE_EVERY_S and self._done != self._total:
            return
        self._last = now
        of = "" if self._total is None else f"/{self._total}"
        rate = self._done / max(now - self._start, 1e-9)
        _log.info("%s: %d%s (%.2f/s)%s", self._what, self._done, of, rate, f" {note}" if note else "")


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Progress]:
    """Show how far a long piece of work is: ``with progress("training", 300) as bar: bar.advance()``."""
    if rank() != 0:
        yield _Silent()
    elif not sys.stderr.isatty():
        yield _Lines(what, total)
    else:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        with RichProgress(*columns, console=_console()) as bars:
            task = bars.add_task(what, total=total, note="")

            class _Bar:
                def advance(self, n: int = 1, note: str = "") -> None:
                    """Move the bar."""
                    bars.update(task, advance=n, note=note)

            yield _Bar()
