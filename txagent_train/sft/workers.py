"""Making parts: processes read the sources side by side, each makes rows of the stretches of lines that are its own.

Every process reads all lines, which is cheap, and parses only its own; nothing but the finished parts is handed over.
So memory does not grow with the data, and a faulty record is the same error whatever the number of processes: the
first one in the order of the data.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from txagent_train.config.sft import DataSection, SourceSection
from txagent_train.core.errors import DataError, EnvironmentFailure
from txagent_train.core.records import Trace
from txagent_train.data.mixing import Guards, source_traces
from txagent_train.rendering.renderer import Renderer
from txagent_train.sft.parts import Part, is_whole
from txagent_train.sft.rows import RowMaker
from txagent_train.tracking.logging import Progress, progress

STRETCH = 256
"""Lines of a data file that make one part."""
_BYTES_FOR_ONE = 16 << 20
"""Up to so many bytes of data one process is done before others would have started."""
_LINES = 1 << 40
_NO_FAULT = 1 << 62
_POLL_S = 0.5
_PART = re.compile(r"s(\d+)-(\d+)\.npz")


@dataclass(frozen=True, slots=True)
class PartJob:
    """What is made into parts, and where. Sent to other processes."""

    data: DataSection
    sources: tuple[SourceSection, ...]
    training: bool
    guards: Guards
    renderer: Renderer
    seed: int
    epoch: int
    folder: Path

    def path(self, source: int, stretch: int) -> Path:
        return self.folder / f"s{source:03d}-{stretch:08d}.npz"

    def parts(self) -> list[Path]:
        """The parts that are there, in the order of the data."""
        return sorted(path for path in self.folder.iterdir() if _PART.fullmatch(path.name))


class _Cell(Protocol):
    """A number that processes share."""

    value: int


@dataclass(slots=True)
class _Local:
    """The same for one process."""

    value: int


_Fault = tuple[int, dict[str, Any]]
"""The error of a record as it travels between processes: where it stands in the data, and the error as plain data."""


@dataclass(slots=True)
class _Source:
    """One process at one source: gathers the traces of a stretch, writes them when the stretch is done."""

    job: PartJob
    number: int
    worker: int
    workers: int
    done: frozenset[int]
    maker: RowMaker = field(init=False)
    part: Part = field(init=False)
    stretch: int = -1

    def wants(self, line: int) -> bool:
        stretch = (line - 1) // STRETCH
        return stretch % self.workers == self.worker and stretch not in self.done

    def drop(self, fault: DataError) -> None:
        """Count a trace that is left out."""
        assert fault.line is not None
        self._open(fault.line)
        self.part.counts.drop_trace(fault)

    def add(self, line: int, trace: Trace) -> None:
        """Make the rows of a trace, as it is in this epoch.

        Raises:
            DataError: a sample of it stops the run.
        """
        self._open(line)
        job, part, source = self.job, self.part, self.job.sources[self.number]
        part.read.append((line, trace.id))
        varied = job.guards.variation.apply(trace, epoch=job.epoch, training=job.training)
        part.counts.add_trace(varied.trace)
        part.counts.augmented.update(varied.counts)
        part.counts.shared_calls += job.training and job.guards.shares_call(trace)
        started = False
        for sample in self.maker.samples(varied.trace, epoch=job.epoch):
            if sample.rendered is not None:
                if not started:
                    part.start_trace(trace.id)
                    started = True
                part.add(sample.rendered, weight=source.weight)
                continue
            assert sample.fault is not None
            fault = sample.fault.at(path=str(source.path), line=line)
            if not sample.stops:
                part.counts.drop_sample(fault)
            elif fault.reason == "overlong":
                part.too_long.add(fault, sample.length)
            else:
                raise fault

    def _open(self, line: int) -> None:
        stretch = (line - 1) // STRETCH
        if stretch != self.stretch:
            self.close()
            self.stretch = stretch
            self.part = Part(self.number)
            self.maker = RowMaker(self.job.data, self.job.renderer, self.job.seed)

    def close(self) -> None:
        """Write the part of the present stretch."""
        if self.stretch >= 0:
            self.part.counts.add_overlong(self.maker.overlong)
            self.part.save(self.job.path(self.number, self.stretch))
        self.stretch = -1


def _make(job: PartJob, worker: int, faults: Sequence[_Cell], made: _Cell) -> _Fault | None:
    """Make the parts of one process; the fault that ended it, if one did.

    Args:
        faults: where the fault of each process stands; a process stops behind the first of them.
    """
    there = [match for path in job.parts() if (match := _PART.fullmatch(path.name))]
    for number, source in enumerate(job.sources):
        done = frozenset(int(match[2]) for match in there if int(match[1]) == number)
        mine = _Source(job, number, worker, len(faults), done)
        traces = source_traces(
            source,
            job.data,
            training=job.training,
            guards=job.guards,
            on_drop=mine.drop,
            wanted=mine.wants,
            unique_ids=False,  # seen when the parts are merged: a process knows only its own
        )
        line = 0
        try:
            for line, trace in traces:
                if number * _LINES + line > min(cell.value for cell in faults):
                    return None  # an earlier record has stopped the preparation
                mine.add(line, trace)
                made.value += 1
            mine.close()
        except DataError as error:
            position = number * _LINES + (line if error.line is None else error.line)
            faults[worker].value = position
            return position, error.to_json()
    return None


_shared: dict[str, Any] = {}
"""In a process of the pool: what it shares with the others. Shared memory can be given only when a process starts."""


def _start_worker(job: PartJob, faults: Sequence[_Cell], made: Sequence[_Cell]) -> None:
    _shared.update(job=job, faults=faults, made=made)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    """A process whose parent was killed would go on for hours."""
    event = threading.Event()
    while os.getppid() == parent:
        event.wait(1)
    os._exit(1)


def _work(worker: int) -> _Fault | None:
    return _make(_shared["job"], worker, _shared["faults"], _shared["made"][worker])


def worker_count(data: DataSection, sources: Sequence[SourceSection]) -> int:
    """How many processes prepare the sources: as the recipe says, or one for each core; one for little data."""
    if data.workers is not None:
        return data.workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    size = sum(_size(source.path) for source in sources)
    return max(1, min(cores, size // _BYTES_FOR_ONE))


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def make_parts(job: PartJob, what: str) -> list[Path]:
    """Make the parts that are missing, and return all of them in the order of the data.

    Raises:
        DataError: the first fault, in the order of the data, that stops a run.
        EnvironmentFailure: a process died, or the machine refused to write.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    for path in job.parts():
        if not is_whole(path):
            path.unlink()
    workers = worker_count(job.data, job.sources)
    with progress(f"preparing {what}") as bar:
        faults = _alone(job, bar) if workers == 1 else _together(job, workers, bar)
    if faults:
        raise DataError.from_json(min(faults, key=lambda fault: fault[0])[1])
    return job.parts()


class _Advancing:
    """A count whose growth moves a progress bar."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._value = 0

    @property
    def value(self) -> int:
        return self._value

    @value.setter
    def value(self, new: int) -> None:
        self._bar.advance(new - self._value)
        self._value = new


def _alone(job: PartJob, bar: Progress) -> list[_Fault]:
    fault = _make(job, 0, [_Local(_NO_FAULT)], _Advancing(bar))
    return [] if fault is None else [fault]


def _together(job: PartJob, workers: int, bar: Progress) -> list[_Fault]:
    # Spawned, not forked: tokenizers and torch have threads by now, and a forked copy of them can hang.
    context = multiprocessing.get_context("spawn")
    faults, made = ([context.Value("q", start, lock=False) for _ in range(workers)] for start in (_NO_FAULT, 0))
    try:
        with (
            _single_threaded(),
            ProcessPoolExecutor(
                workers, mp_context=context, initializer=_start_worker, initargs=(job, faults, made)
            ) as pool,
        ):
            try:
                return _collect([pool.submit(_work, worker) for worker in range(workers)], made, bar)
            except BaseException:
                faults[0].value = -1  # what is interrupted stops at its next trace; finished parts stay
                raise
    except BrokenProcessPool:
        raise EnvironmentFailure(
            "a process that prepared data was killed, most likely for want of memory; set data.workers to fewer, "
            "and run again: what is done is kept"
        ) from None


def _collect(futures: Sequence[Future[_Fault | None]], made: Sequence[_Cell], bar: Progress) -> list[_Fault]:
    pending, shown = set(futures), 0
    while pending:
        _, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        total = sum(cell.value for cell in made)
        bar.advance(total - shown)
        shown = total
    return [fault for future in futures if (fault := future.result()) is not None]


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Processes that start meanwhile tokenise with one thread each: there are as many processes as cores."""
    names = ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS", "OMP_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
