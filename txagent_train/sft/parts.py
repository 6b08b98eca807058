"""Parts of prepared rows: what one process makes of one stretch of a data file, and how parts become an epoch.

A part is a file written whole or not at all, so a preparation that was stopped goes on where it was. Stretches are
cut by line, whatever the number of processes, and put together in the order of the data: who made which part, and
when, does not change a byte of the result.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from txagent_train.core.errors import DataError, EnvironmentFailure
from txagent_train.core.records import RenderedExample
from txagent_train.sft.counts import Counts
from txagent_train.sft.prepared import ARRAYS, DROPPED, INDEX, MAPPED, PreparedRows, PrepareReport
from txagent_train.sft.rows import TooLong

_ROW_ARRAYS = ("shared", "length", "supervised", "step", "weight")
_PART_ARRAYS = (MAPPED, *_ROW_ARRAYS, "trace")


@dataclass(slots=True)
class Part:
    """Rows in memory, and what became of the steps that are none. ``trace`` counts from 0 within the part.

    ``read`` names every trace that was read, with its line: rows or not, an id may occur once.
    """

    source: int
    pool: list[np.ndarray] = field(default_factory=list)
    columns: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in (*_ROW_ARRAYS, "trace")})
    trace_ids: list[str] = field(default_factory=list)
    read: list[tuple[int, str]] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    too_long: TooLong = field(default_factory=TooLong)
    _before: np.ndarray = field(default_factory=lambda: np.empty(0, ARRAYS[MAPPED]))

    def start_trace(self, trace_id: str) -> None:
        """Rows added from now on belong to this trace."""
        self.trace_ids.append(trace_id)
        self._before = np.empty(0, ARRAYS[MAPPED])

    def add(self, example: RenderedExample, *, weight: float = 1.0) -> None:
        """Add a row of the present trace; ``weight`` multiplies the example's own."""
        ids = np.array(example.input_ids, dtype=ARRAYS[MAPPED])
        supervised = sum(example.loss_mask)
        assert all(example.loss_mask[len(ids) - supervised :]), "what is trained on is the end of a row"
        shared = _common(self._before, ids)
        self.pool.append(ids[shared:])
        row: dict[str, float] = {
            "shared": shared,
            "length": len(ids),
            "supervised": supervised,
            "step": example.step_index,
        }
        row |= {"weight": example.weight * weight, "trace": len(self.trace_ids) - 1}
        for name, value in row.items():
            self.columns[name].append(value)
        self.counts.neutralised += example.neutralised
        self.counts.neutralised_in_targets += example.neutralised_in_target > 0
        self._before = ids

    def save(self, path: Path) -> None:
        """Write the part; a process that is killed meanwhile leaves no part."""
        arrays = {name: np.array(values, dtype=ARRAYS[name]) for name, values in self.columns.items()}
        arrays[MAPPED] = np.concatenate([np.empty(0, ARRAYS[MAPPED]), *self.pool])
        words = {
            "source": self.source,
            "trace_ids": self.trace_ids,
            "read": self.read,
            "counts": self.counts.to_json(),
            "too_long": self.too_long.to_json(),
        }
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with aside.open("wb") as file:
                arrays["words"] = np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
            aside.rename(path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise _write_failure(path, error) from error


def is_whole(path: Path) -> bool:
    """Whether a part is there as it was written: a machine that went down may have left it torn."""
    return zipfile.is_zipfile(path)  # reads the directory at the end of the file


def _common(first: np.ndarray, second: np.ndarray) -> int:
    """How many tokens two rows have in common at their beginning."""
    size = min(len(first), len(second))
    differ = np.flatnonzero(first[:size] != second[:size])
    return int(differ[0]) if len(differ) else size


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
        self._file.seek(0)
        self._write_header()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


class _Merge:
    """An epoch in the making: parts are appended in order."""

    def __init__(self, folder: Path, source_names: Sequence[str], kinds: Sequence[str]) -> None:
        self._source_names, self._kinds = tuple(source_names), tuple(kinds)
        self._files = {name: _ArrayFile(folder / f"{name}.npy", dtype) for name, dtype in ARRAYS.items()}
        self._files["start"].append(np.zeros(1))
        self._named = (folder / DROPPED).open("w", encoding="utf-8")
        self._seen: dict[str, tuple[int, int]] = {}
        self.trace_ids: list[str] = []
        self.counts = Counts()
        self.too_long = [TooLong() for _ in self._source_names]
        self.by_step: Counter[int] = Counter()
        self.rows: Counter[str] = Counter(dict.fromkeys(self._source_names, 0))
        self.supervised: Counter[str] = Counter(dict.fromkeys(self._source_names, 0))
        self.by_kind: Counter[str] = Counter()
        self.weights: defaultdict[str, float] = defaultdict(float)
        self.tokens = self.longest = 0

    def append(self, path: Path) -> None:
        """Append a part.

        Raises:
            DataError: a trace of it has the id of one before.
        """
        with np.load(path) as part:
            arrays = {name: part[name] for name in _PART_ARRAYS}
            words = json.loads(part["words"].tobytes())
        source = int(words["source"])
        self._check_ids(source, words["read"])
        arrays["trace"] = arrays["trace"] + len(self.trace_ids)
        arrays["source"] = np.full(len(arrays["step"]), source)
        new = arrays["length"].astype(np.int64) - arrays["shared"]
        arrays["start"] = self._files[MAPPED].length + np.cumsum(new)
        for name, values in arrays.items():
            self._files[name].append(values)
        self.trace_ids += words["trace_ids"]
        counts = Counts.from_json(words["counts"])
        self.counts.add(counts)
        self.too_long[source].merge(TooLong.from_json(words["too_long"]))
        self._named.writelines(f"{json.dumps(entry)}\n" for entry in counts.named)
        for step, supervised in zip(arrays["step"].tolist(), arrays["supervised"].tolist(), strict=True):
            self.by_step[step] += supervised
        supervised = int(arrays["supervised"].sum())
        self.rows[self._source_names[source]] += len(arrays["step"])
        self.supervised[self._source_names[source]] += supervised
        self.by_kind[self._kinds[source]] += supervised
        self.weights[self._kinds[source]] += float((arrays["supervised"] * arrays["weight"]).sum())
        self.tokens += int(arrays["length"].sum())
        self.longest = max(self.longest, int(arrays["length"].max(initial=0)))

    def _check_ids(self, source: int, read: Sequence[tuple[int, str]]) -> None:
        for line, trace_id in read:
            before = self._seen.setdefault(trace_id, (source, line))
            if before[0] == source and before[1] != line:
                raise DataError(
                    "another trace of the file has the same id",
                    reason="duplicate_id",
                    path=self._source_names[source],
                    line=line,
                    trace_id=trace_id,
                    fix=f"the other one is in line {before[1]}; give each trace an id of its own",
                )

    def finish(self) -> PrepareReport:
        """Close the files.

        Raises:
            DataError: samples of a source are too long, and that is an error.
        """
        for too_long in self.too_long:
            too_long.check()
        for file in self._files.values():
            file.close()
        self._named.close()
        counts = self.counts
        return PrepareReport(
            rows=self._files["trace"].length,
            traces=len(self.trace_ids),
            tokens=self.tokens,
            stored_tokens=self._files[MAPPED].length,
            supervised_tokens=self.supervised.total(),
            longest=self.longest,
            neutralised=counts.neutralised,
            neutralised_in_targets=counts.neutralised_in_targets,
            steps=counts.steps,
            untrained_traces=counts.untrained_traces,
            shared_calls=counts.shared_calls,
            supervised_by_step={str(step): count for step, count in sorted(self.by_step.items())},
            supervised_by_source=dict(self.supervised),
            supervised_by_kind=dict(self.by_kind),
            weight_by_kind=dict(self.weights),
            rows_by_source=dict(self.rows),
            dropped=dict(counts.dropped.most_common()),
            dropped_traces=dict(counts.dropped_traces.most_common()),
            untrained=dict(counts.untrained.most_common()),
            shortened=dict(counts.shortened),
            overlong=dict(counts.overlong),
            augmented=dict(sorted(counts.augmented.items())),
        )


def merge_parts(
    parts: Sequence[Path], folder: Path, *, key: str, source_names: Sequence[str], kinds: Sequence[str]
) -> PreparedRows:
    """Put parts together, in the order given, to the folder of an epoch.

    Args:
        source_names, kinds: of each source, by its number.

    Raises:
        DataError: an id occurs twice in a source, or there is no row at all.
        EnvironmentFailure: the machine refused to write.
    """
    aside = folder.with_name(f".{folder.name}.aside")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        merge = _Merge(aside, source_names, kinds)
        for path in parts:
            merge.append(path)
        report = merge.finish()
        if not report.rows:
            gone = ", ".join(
                f"{count} {reason}" for reason, count in {**report.dropped_traces, **report.dropped}.items()
            )
            problem = f"no sample is left: {gone or 'no step is trained on'}"
            raise DataError(problem, reason="no_samples", path=", ".join(source_names))
        index = {
            "key": key,
            "trace_ids": merge.trace_ids,
            "source_names": list(source_names),
            "report": report.to_json(),
        }
        (aside / INDEX).write_text(json.dumps(index), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    except OSError as error:
        raise _write_failure(folder, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    rows = PreparedRows.open(folder, key)
    assert rows is not None
    return rows


def _write_failure(path: Path, error: OSError) -> EnvironmentFailure:
    return EnvironmentFailure(f"prepared rows could not be written to {path}: {error.strerror or error}")
