"""Prepared rows on disk: the tokens of one epoch (or of the evaluation set), memory-mapped for training.

    epoch-000-<key>/
      pool.npy                                [new tokens]  token ids, without those that begin the row before too
      start.npy                               [rows + 1]    row r brings pool[start[r] : start[r + 1]]
      shared.npy  length.npy                  [rows]        tokens it shares with the row before, tokens in all
      supervised.npy                          [rows]        how many tokens at its end are trained on
      trace.npy  step.npy  source.npy         [rows]        trace number, step in its trace, source number
      weight.npy                              [rows]        weight of each supervised token
      rows.json                               key, trace ids, source names, report
      dropped.jsonl                           every sample or trace that was left out, and why

The steps of a trace repeat its beginning, so a trace is stored in the length of the trace and not in its square:

    row 0   system question | output 0
    row 1   ..shared with 0..........| ids results | output 1
    row 2   ..shared with 1......................| ids results | output 2

A folder is written aside and renamed. Its name and index hold the key, the hash of everything that decides the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from txagent_train.core.records import DataKind, JsonObject

ARRAYS: dict[str, np.dtype[Any]] = {
    "pool": np.dtype(np.int32),
    "start": np.dtype(np.int64),
    "shared": np.dtype(np.int32),
    "length": np.dtype(np.int32),
    "supervised": np.dtype(np.int32),
    "trace": np.dtype(np.int64),
    "step": np.dtype(np.int32),
    "source": np.dtype(np.int32),
    "weight": np.dtype(np.float64),
}
"""The array files and their types."""
MAPPED = "pool"
"""The array with an entry for each token; the rest is small and read whole."""
INDEX = "rows.json"
DROPPED = "dropped.jsonl"


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """What preparation made, and what it left out and why. Token counts are of kept rows.

    Each of the ``steps`` of the traces that were read is a row, or counted by reason in ``dropped`` (cannot be
    trained on) or ``untrained`` (is not meant to be). ``dropped_traces`` counts traces that were left out whole, their
    steps not counted; ``untrained_traces`` those that have no step to train on. ``neutralised`` is the number of
    control strings that were broken in all rows, ``neutralised_in_targets`` the number of rows with one in the output.
    ``stored_tokens`` are those on disk, where the steps of a trace share its beginning. ``shortened`` counts what gave
    way so that samples fit: the samples, their steps, the tokens; ``overlong`` the samples that were over the limit
    before, by length (powers of two). ``weight_by_kind`` is supervised tokens
    times their weight. ``shared_calls`` are traces with a call that is also in a frozen evaluation set.
    ``augmented`` counts what was changed in traces for this epoch, and what was left and why (sft.prepare.AUGMENTED).
    """

    rows: int
    traces: int
    tokens: int
    stored_tokens: int
    supervised_tokens: int
    longest: int
    neutralised: int
    neutralised_in_targets: int
    steps: int
    untrained_traces: int
    shared_calls: int
    supervised_by_step: Mapping[str, int]
    supervised_by_source: Mapping[str, int]
    supervised_by_kind: Mapping[str, int]
    weight_by_kind: Mapping[str, float]
    rows_by_source: Mapping[str, int]
    dropped: Mapping[str, int] = field(default_factory=dict)
    dropped_traces: Mapping[str, int] = field(default_factory=dict)
    untrained: Mapping[str, int] = field(default_factory=dict)
    shortened: Mapping[str, int] = field(default_factory=dict)
    overlong: Mapping[str, int] = field(default_factory=dict)
    augmented: Mapping[str, int] = field(default_factory=dict)

    @property
    def general_share(self) -> float:
        """The share of the loss's weight that is of general data, of any kind but trace."""
        total = sum(self.weight_by_kind.values())
        return 1 - self.weight_by_kind.get(DataKind.TRACE, 0.0) / total if total else 0.0

    def to_json(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """One folder of prepared rows; ``pool`` is memory-mapped (shapes in the module docstring)."""

    directory: Path
    pool: np.ndarray
    start: np.ndarray
    shared: np.ndarray
    length: np.ndarray
    supervised: np.ndarray
    trace: np.ndarray
    step: np.ndarray
    source: np.ndarray
    weight: np.ndarray
    trace_ids: tuple[str, ...]
    source_names: tuple[str, ...]
    report: PrepareReport

    def __len__(self) -> int:
        return len(self.trace)

    def new(self, number: int) -> np.ndarray:
        """The tokens of a row that the row before does not begin with; shape [length - shared]."""
        return self.pool[int(self.start[number]) : int(self.start[number + 1])]

    def row(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Token ids and loss mask of a row, both [T]."""
        length = int(self.length[number])
        ids = np.empty(length, dtype=ARRAYS["pool"])
        mask = np.arange(length) >= length - int(self.supervised[number])
        end = length
        while end:  # backwards: what this row brings, then what is left of the row before, and so on
            begin = int(self.shared[number])
            if begin < end:
                first = int(self.start[number])
                ids[begin:end] = self.pool[first : first + end - begin]
                end = begin
            number -= 1
        return ids, mask

    @classmethod
    def open(cls, directory: Path, key: str) -> PreparedRows | None:
        """Open a folder, or return None if there is none with this key, or a file of it is torn."""
        try:
            index = json.loads((directory / INDEX).read_bytes())
            if index["key"] != key:
                return None
            arrays = {
                name: np.load(directory / f"{name}.npy", mmap_mode="r" if name == MAPPED else None) for name in ARRAYS
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
        rows = self.report.rows
        lengths = {"pool": self.report.stored_tokens, "start": rows + 1}
        return all(
            getattr(self, name).shape == (lengths.get(name, rows),) and getattr(self, name).dtype == dtype
            for name, dtype in ARRAYS.items()
        )
