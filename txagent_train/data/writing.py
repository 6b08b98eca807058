"""Writing JSON Lines files of any size so that a reader sees the whole file or none of it."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from txagent_train.core.errors import EnvironmentFailure, UserError
from txagent_train.core.records import JsonObject

REFUSALS = (errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EISDIR)
"""Errors of the system that come of the path that was asked for, not of the machine."""


def check_place(path: Path) -> None:
    """Refuse a path at which nothing can be made, before work is spent on what would go there.

    Raises:
        UserError: it lies below a file, or in a folder that may not be written to.
    """
    for above in (path, *path.absolute().parents):
        if not os.path.lexists(above):
            continue
        if above != path and not above.is_dir():
            raise UserError(f"{above} is a file, so nothing can be written below it", where=str(path))
        if above.is_dir() and not os.access(above, os.W_OK | os.X_OK):
            raise UserError(f"{above} may not be written to", where=str(path), fix="choose another place")
        if above.is_dir():
            return


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a path that is taken, before work is spent on what would go there.

    Raises:
        UserError: the file exists and ``overwrite`` is False, the path is a folder, or nothing can be made there.
    """
    if os.path.isdir(path):
        raise UserError("this is a folder; the name of a file is needed", where=str(path))
    if os.path.exists(path) and not overwrite:
        raise UserError("the file exists already", where=str(path), fix="choose another name, or pass --overwrite")
    check_place(path)


class JsonlWriter:
    """Writes objects, one a line; ``count`` says how many so far."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, path: Path) -> None:
        self._stream = stream
        self._path = path
        self.count = 0

    def write(self, record: JsonObject) -> None:
        """Add one line of UTF-8."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        with _named(self._path):  # of several that are open, it is this one
            self._stream.write(line.encode("utf-8"))
        self.count += 1


@contextmanager
def jsonl_writer(path: Path, *, overwrite: bool = False) -> Iterator[JsonlWriter]:
    """A JSON Lines file, written aside; it takes its name when the block ends without an exception.

    Compressed where the name ends in ``.gz``. Equal contents give equal bytes. Folders above it are created.

    Raises:
        UserError: the file exists and ``overwrite`` is False, or nothing can be written at this path.
        EnvironmentFailure: the machine failed (disk full).
    """
    with jsonl_writers([path], overwrite=overwrite) as (writer,):
        yield writer


@contextmanager
def jsonl_writers(
    paths: Sequence[Path], *, overwrite: bool = False, keep_empty: bool = True
) -> Iterator[list[JsonlWriter]]:
    """Files that belong together, one writer each: all are whole before the first takes its name (see jsonl_writer).

    Args:
        keep_empty: a file without lines is written too; if not, there is none in the end, also none from before.
    """
    for path in paths:
        check_free(path, overwrite=overwrite)
    aside = [path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in paths]
    try:
        with ExitStack() as stack:
            writers = [stack.enter_context(_written(path, place)) for path, place in zip(paths, aside, strict=True)]
            yield writers
        for path, place, writer in zip(paths, aside, writers, strict=True):
            with _named(path):
                if writer.count or keep_empty:
                    place.replace(path)
                else:
                    path.unlink(missing_ok=True)
    finally:
        for place in aside:
            with suppress(OSError):
                place.unlink()


@contextmanager
def _written(path: Path, aside: Path) -> Iterator[JsonlWriter]:
    """A writer of what will be at ``path``; when the block ends, all of it is on the disk."""
    with _named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as raw:
            if path.name.endswith(".gz"):
                # No time and no name in the header, or equal contents would differ in bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                    yield JsonlWriter(packed, path)
            else:
                yield JsonlWriter(raw, path)
            raw.flush()
            os.fsync(raw.fileno())


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Failures of the system as errors that name the file."""
    try:
        yield
    except OSError as error:
        if error.errno in REFUSALS:
            raise UserError(f"cannot be written: {error.strerror}", where=str(path)) from None
        raise EnvironmentFailure(f"{path} could not be written: {error.strerror or error}") from error
