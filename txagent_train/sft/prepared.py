"""Prepared rows on disk: the tokens of one epoch (or of the evaluation set), memory-mapped for training.

    prepared/epoch-000/
      ids.npy  mask.npy                       [tokens]     token ids, loss mask, all rows end to end
      offsets.npy                             [rows + 1]   row r is tokens offsets[r] to offsets[r + 1]
      trace.npy  step.npy  source.npy         [rows]       trace number, step in its trace, source number
      weight.npy  supervised.npy              [rows]       weight of each supervised token, how many there are
      rows.json                               key, trace ids, source names, report
      dropped.jsonl                           every sample or trace that was left out, and why

A folder is written aside and renamed; one with another key belongs to other data or settings and is replaced.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.lib import format as npy

from txagent_train.core.errors import EnvironmentFailure
from txagent_train.core.records import JsonObject, RenderedExample

_DTYPES = {
    "ids": np.dtype(np.int32),
    "mask": np.dtype(np.bool_),
    "offsets": np.dtype(np.int64),
    "trace": np.dtype(np.int64),
    "step": np.dtype(np.int32),
    "source": np.dtype(np.int32),
    "weight": np.dtype(np.float64),
    "supervised": np.dtype(np.int64),
}
_MAPPED = ("ids", "mask")
"""The arrays with an entry for each token; the rest is small and read whole."""
_INDEX = "rows.json"
DROPPED = "dropped.jsonl"


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What preparation made, and what it left out and why. Token counts are of kept rows.

    Each of the ``steps`` of the traces that were read is a row, or counted by reason in ``dropped`` (cannot be
    trained on) or ``untrained`` (is not meant to be). ``dropped_traces`` counts traces that were left out whole, their
    steps not counted; ``untrained_traces`` those that have no step to train on. ``neutralised`` is the number of
    control strings that were broken in all rows, ``neutralised_in_targets`` the number of rows with one in the output.
    """

    rows: int
    traces: int
    tokens: int
    supervised_tokens: int
    longest: int
    neutralised: int
    supervised_by_step: Mapping[str, int]
    rows_by_source: Mapping[str, int]
    dropped: Mapping[str, int]
    neutralised_in_targets: int = 0
    steps: int = 0
    untrained: Mapping[str, int] = field(default_factory=dict)
    untrained_traces: int = 0
    dropped_traces: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """One folder of prepared rows; ``ids`` and ``mask`` are memory-mapped (shapes in the module docstring)."""

    directory: Path
    ids: np.ndarray
    mask: np.ndarray
    offsets: np.ndarray
    trace: np.ndarray
    step: np.ndarray
    source: np.ndarray
    weight: np.ndarray
    supervised: np.ndarray
    trace_ids: tuple[str, ...]
    source_names: tuple[str, ...]
    report: PrepareReport

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def lengths(self) -> np.ndarray:
        """[rows], tokens of each row."""
        return np.diff(self.offsets)

    def row(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Token ids and loss mask of a row, both [T]."""
        part = slice(int(self.offsets[number]), int(self.offsets[number + 1]))
        return self.ids[part], self.mask[part]

    @classmethod
    def open(cls, directory: Path, key: str) -> PreparedRows | None:
        """Open a folder, or return None if there is none with this key, or a file of it is torn."""
        try:
            index = json.loads((directory / _INDEX).read_bytes())
            if index["key"] != key:
                return None
            arrays = {
                name: np.load(directory / f"{name}.npy", mmap_mode="r" if name in _MAPPED else None) for name in _DTYPES
            }
            rows = cls(
                directory=directory,
                **arrays,
                trace_ids=tuple(index["trace_ids"]),
                source_names=tuple(index["source_names"]),
                report=PrepareReport(**index["report"]),
            )
        except (OSError, ValueError, EOFError, KeyError, TypeError):
            return None
        return rows if rows._is_whole() else None

    def _is_whole(self) -> bool:
        """Whether the lengths of the arrays are those of the report."""
        rows, tokens = self.report.rows, self.report.tokens
        lengths = {"ids": tokens, "mask": tokens, "offsets": rows + 1}
        return all(
            getattr(self, name).shape == (lengths.get(name, rows),) and getattr(self, name).dtype == dtype
            for name, dtype in _DTYPES.items()
        )


class _ArrayFile:
    """A one-dimensional .npy file that grows; its header, of constant size, is written again at the end."""

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.length = 0
        self._file: IO[bytes] = open(path, "wb")  # noqa: SIM115 (closed by close)
        self._write_header()

    def _write_header(self) -> None:
        header = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        npy.write_array_header_1_0(self._file, header)

    def append(self, values: np.ndarray) -> None:
        self._file.write(values.astype(self.dtype, copy=False).tobytes())
        self.length += len(values)

    def close(self) -> None:
        start = self._file.tell()
        self._file.seek(0)
        self._write_header()
        self._file.seek(start)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class RowWriter:
    """Writes a folder of prepared rows, a row at a time; ``commit`` makes it appear under its name."""

    def __init__(self, directory: Path, *, key: str, source_names: tuple[str, ...]) -> None:
        self.directory = directory
        self._key = key
        self._source_names = source_names
        self._aside = directory.with_name(f".{directory.name}.aside")
        self._trace_ids: list[str] = []
        self._supervised_by_step: dict[int, int] = {}
        self._rows_by_source = dict.fromkeys(source_names, 0)
        self._longest = 0
        self._neutralised = 0
        self._neutralised_in_targets = 0

    def __enter__(self) -> Self:
        try:
            shutil.rmtree(self._aside, ignore_errors=True)
            self._aside.mkdir(parents=True)
            self._files = {name: _ArrayFile(self._aside / f"{name}.npy", dtype) for name, dtype in _DTYPES.items()}
        except OSError as error:
            raise _write_failure(self._aside, error) from error
        self._append("offsets", 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            shutil.rmtree(self._aside, ignore_errors=True)
            if isinstance(value, OSError):
                raise _write_failure(self._aside, value) from value

    def _append(self, name: str, *values: float) -> None:
        self._files[name].append(np.array(values, dtype=_DTYPES[name]))

    @property
    def row_count(self) -> int:
        return self._files["trace"].length

    def start_trace(self, trace_id: str) -> None:
        """Rows added from now on belong to this trace."""
        self._trace_ids.append(trace_id)

    def add(self, example: RenderedExample, *, source: int, weight: float) -> None:
        """Add a row of the present trace; ``weight`` multiplies the example's own."""
        mask = np.array(example.loss_mask, dtype=np.bool_)
        supervised = int(mask.sum())
        self._files["ids"].append(np.array(example.input_ids, dtype=np.int32))
        self._files["mask"].append(mask)
        self._append("offsets", self._files["ids"].length)
        self._append("trace", len(self._trace_ids) - 1)
        self._append("step", example.step_index)
        self._append("source", source)
        self._append("weight", example.weight * weight)
        self._append("supervised", supervised)
        step = example.step_index
        self._supervised_by_step[step] = self._supervised_by_step.get(step, 0) + supervised
        self._rows_by_source[self._source_names[source]] += 1
        self._longest = max(self._longest, len(mask))
        self._neutralised += example.neutralised
        self._neutralised_in_targets += example.neutralised_in_target > 0

    @property
    def dropped_file(self) -> Path:
        """Where what is left out is named, before the commit."""
        return self._aside / DROPPED

    def commit(self, dropped: Mapping[str, int], **counts: Any) -> PrepareReport:
        """Finish the folder and rename it over its final name. ``counts`` are fields of the report that only the
        caller knows."""
        for file in self._files.values():
            file.close()
        report = PrepareReport(
            rows=self._files["trace"].length,
            traces=len(self._trace_ids),
            tokens=self._files["ids"].length,
            supervised_tokens=sum(self._supervised_by_step.values()),
            longest=self._longest,
            neutralised=self._neutralised,
            supervised_by_step={str(step): count for step, count in sorted(self._supervised_by_step.items())},
            rows_by_source=self._rows_by_source,
            dropped=dict(dropped),
            neutralised_in_targets=self._neutralised_in_targets,
        )
        report = replace(report, **counts)
        index = {
            "key": self._key,
            "trace_ids": self._trace_ids,
            "source_names": self._source_names,
            "report": report.to_json(),
        }
        (self._aside / _INDEX).write_text(json.dumps(index), encoding="utf-8")
        shutil.rmtree(self.directory, ignore_errors=True)
        os.rename(self._aside, self.directory)
        return report


def _write_failure(path: Path, error: OSError) -> EnvironmentFailure:
    return EnvironmentFailure(f"prepared rows could not be written to {path}: {error.strerror or error}")
