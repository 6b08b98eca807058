"""Writing JSON Lines files of any size so that a reader sees the whole file or none of it."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from txagent_train.core.errors import EnvironmentFailure, UserError
from txagent_train.core.records import JsonObject


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a path that is taken, before work is spent on what would go there.

    Raises:
        UserError: the file exists and ``overwrite`` is False, or the path is a folder.
    """
    if path.is_dir():
        raise UserError("this is a folder; the name of a file is needed", where=str(path))
    if path.exists() and not overwrite:
        raise UserError("the file exists already", where=str(path), fix="choose another name, or pass --overwrite")


class JsonlWriter:
    """Writes objects, one a line; ``count`` says how many so far."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._stream = stream
        self.count = 0

    def write(self, record: JsonObject) -> None:
        """Add one line of UTF-8."""
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        self._stream.write(line.encode("utf-8"))
        self.count += 1


@contextmanager
def jsonl_writer(path: Path, *, overwrite: bool = False) -> Iterator[JsonlWriter]:
    """A JSON Lines file, written aside; it takes its name when the block ends without an exception.

    Compressed where the name ends in ``.gz``. Equal contents give equal bytes. Folders above it are created.

    Raises:
        UserError: the file exists and ``overwrite`` is False.
        EnvironmentFailure: the machine refused (disk full, no permission).
    """
    check_free(path, overwrite=overwrite)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as raw:
                if path.name.endswith(".gz"):
                    # No time and no name in the header, or equal contents would differ in bytes.
                    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                        yield JsonlWriter(packed)
                else:
                    yield JsonlWriter(raw)
                raw.flush()
                os.fsync(raw.fileno())
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise EnvironmentFailure(f"{path} could not be written: {error.strerror or error}") from error
