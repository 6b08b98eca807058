"""metrics.jsonl: what a run measured, one JSON object a line.

Each record has ``step`` (the optimizer step, from 1; 0 is before training) and ``kind`` (``train``, ``eval``,
...); the rest are numbers by name. A line is complete when it ends in a newline: what a killed process leaves
after the last newline is torn, and is dropped with a warning.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from txagent_train.core.errors import DataError, EnvironmentFailure
from txagent_train.core.records import JsonObject
from txagent_train.tracking.files import atomic_write_text, dump_json

_log = logging.getLogger(__name__)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


@dataclass(frozen=True, slots=True)
class Metrics:
    """The records of a metrics file. ``torn`` says whether an unfinished last line was dropped."""

    records: tuple[JsonObject, ...]
    torn: bool = False


class MetricsLog:
    """Appends records to a metrics file; every record is on its way to disk when ``append`` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def append(self, record: JsonObject) -> None:
        """Append one record, which must have ``step`` (an integer) and ``kind``.

        Raises:
            DataError: it has not.
            EnvironmentFailure: the machine refused to write.
        """
        _check_record(record)
        line = dump_json(record) + "\n"
        try:
            if self._file is None:
                self._file = self._open()
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise EnvironmentFailure(f"{self.path} could not be written: {error.strerror or error}") from error

    def rewind(self, step: int) -> int:
        """Remove the records of later steps, which a resume from ``step`` will write again.

        Returns:
            how many records were removed.
        """
        self.close()
        if not self.path.exists():
            return 0
        metrics = read_metrics(self.path)
        kept = [record for record in metrics.records if record["step"] <= step]
        removed = len(metrics.records) - len(kept)
        if removed or metrics.torn:
            atomic_write_text(self.path, "".join(dump_json(record) + "\n" for record in kept))
        return removed

    def close(self) -> None:
        """Close the file; a later ``append`` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> IO[str]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                _warn_torn(self.path)
                os.truncate(self.path, whole)
        return open(self.path, "a", encoding="utf-8")


def read_metrics(path: Path) -> Metrics:
    """Read a metrics file.

    Raises:
        DataError: a complete line is not a record; names file and line.
    """
    *lines, rest = path.read_bytes().split(b"\n")
    records: list[JsonObject] = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(f"not JSON: {error}", reason="not_json", path=str(path), line=number) from None
        try:
            _check_record(record)
        except DataError as error:
            raise error.at(path=str(path), line=number) from None
        records.append({key: float(value) if value in _NOT_FINITE else value for key, value in record.items()})
    if rest:
        _warn_torn(path)
    return Metrics(tuple(records), torn=bool(rest))


def _check_record(record: object) -> None:
    if not isinstance(record, dict) or type(record.get("step")) is not int or not isinstance(record.get("kind"), str):
        raise DataError("a metrics record needs an integer step and a kind", reason="invalid_metrics_record")


def _warn_torn(path: Path) -> None:
    _log.warning("%s: the last line is unfinished (a process was killed while it wrote); it is dropped", path)
