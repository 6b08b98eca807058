"""Splitting traces so that nothing of the held-out part was seen in training.

Traces belong together where they share a question, an entity or a call (name and arguments), directly or through
others; such a component goes to one side whole. Where calls tie too much together, traces belong together by
question and entity only, and a trace of the training side that shares a call with the held-out side is dropped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.components import connected_components
from txagent_train.data.loading import fault_to_json, load_traces
from txagent_train.data.writing import check_free, jsonl_writer
from txagent_train.tracking.files import atomic_write_json

LARGEST_SHARE = 0.2
"""A component with more than this share of the traces is too large to stay whole."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TraceKeys:
    """By what a trace is tied to others."""

    id: str
    subjects: frozenset[Key]
    calls: frozenset[Key]

    @property
    def all(self) -> frozenset[Key]:
        return self.subjects | self.calls


@dataclass(frozen=True, slots=True)
class SplitReport:
    """How a split came out; traces = train + heldout + straddlers.

    ``largest_share`` is that of the largest component by question, entity and call. ``calls_tie`` is False where
    that was too large, and components were taken by question and entity only. ``straddlers`` are training traces
    dropped because they share a call with the held-out side.
    """

    traces: int
    train: int
    heldout: int
    straddlers: int
    fraction: float
    seed: int
    components: int
    largest_component: int
    largest_share: float
    calls_tie: bool
    note: str

    def to_json(self) -> JsonObject:
        return asdict(self)


def trace_keys(trace: Trace) -> TraceKeys:
    """The keys of a trace. A call without arguments ties nothing: it says nothing about its question."""
    subjects: set[Key] = {("entity", _folded(entity)) for entity in trace.entities}
    if trace.question_id:
        subjects.add(("question_id", trace.question_id))
    if trace.question:
        subjects.add(("question", _folded(trace.question)))
    calls = {
        ("call", call.name, json.dumps(call.arguments, sort_keys=True))
        for step in trace.steps
        for call in step.calls
        if call.arguments
    }
    return TraceKeys(trace.id, frozenset(subjects), frozenset(calls))


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def choose_heldout(keys: Sequence[TraceKeys], *, fraction: float, seed: int) -> tuple[set[int], set[int], SplitReport]:
    """Choose whole components, in a seeded order, up to ``fraction`` of the traces.

    The order depends on the seed and the ids, not on the order in the file.

    Returns:
        Positions of the held-out traces, positions of the straddlers, and the report.

    Raises:
        DataError: no component is small enough to be held out, or nothing else is left.
    """
    whole = connected_components([item.all for item in keys])
    largest = max(map(len, whole), default=0)
    calls_tie = largest <= LARGEST_SHARE * len(keys)
    components = whole if calls_tie else connected_components([item.subjects for item in keys])
    heldout = _fill(components, keys, round(fraction * len(keys)), seed)
    if not heldout:
        smallest = min(map(len, components), default=0)
        raise DataError(
            f"no part of the {len(keys)} traces can be held out: the smallest that is tied together has {smallest}",
            reason="cannot_split",
            fix="take a larger fraction, or more traces about other questions and entities",
        )
    heldout_calls = {call for item in heldout for call in keys[item].calls}
    straddlers: set[int] = set()
    if not calls_tie:
        straddlers = {
            item for item, own in enumerate(keys) if item not in heldout and not own.calls.isdisjoint(heldout_calls)
        }
    train = len(keys) - len(heldout) - len(straddlers)
    if not train:
        problem = "nothing is left to train on: every trace shares a call with the held-out ones"
        raise DataError(problem, reason="cannot_split")
    report = SplitReport(
        traces=len(keys),
        train=train,
        heldout=len(heldout),
        straddlers=len(straddlers),
        fraction=fraction,
        seed=seed,
        components=len(components),
        largest_component=largest,
        largest_share=round(largest / len(keys), 4),
        calls_tie=calls_tie,
        note="" if calls_tie else _tied_note(largest / len(keys), len(straddlers)),
    )
    return heldout, straddlers, report


def _fill(components: Sequence[Sequence[int]], keys: Sequence[TraceKeys], wanted: int, seed: int) -> set[int]:
    def order(component: Sequence[int]) -> str:
        name = min(keys[item].id for item in component)
        return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()

    chosen: set[int] = set()
    for component in sorted(components, key=order):
        if len(chosen) + len(component) <= max(wanted, 1):
            chosen.update(component)
    return chosen


def _tied_note(share: float, straddlers: int) -> str:
    return (
        f"shared questions, entities and calls tie {share:.0%} of the traces into one component, more than "
        f"{LARGEST_SHARE:.0%}: held out by question and entity instead, and {straddlers} training traces that share "
        "a call with the held-out ones were dropped"
    )


def split_traces(
    path: Path, out: Path, *, format: str, fraction: float, seed: int, overwrite: bool = False
) -> SplitReport:
    """Write ``train.jsonl``, ``heldout.jsonl``, ``straddlers.jsonl`` (where there are any) and ``split.json``.

    The file is read twice, so that only keys are held in memory.

    Raises:
        DataError: the file has a bad record, or cannot be split.
        UserError: ``fraction`` is not between 0 and 1, or a file exists already.
    """
    if not 0 < fraction < 1:
        raise UserError(f"the fraction is {fraction}; it must be between 0 and 1", where="--fraction")
    targets = [out / name for name in ("train.jsonl", "heldout.jsonl", "straddlers.jsonl", "split.json")]
    for target in targets:
        check_free(target, overwrite=overwrite)
    keys = [trace_keys(trace) for trace in load_traces(path, format, invalid_calls="keep")]
    heldout, straddlers, report = choose_heldout(keys, fraction=fraction, seed=seed)
    _write_parts(path, format, targets, heldout, straddlers)
    atomic_write_json(out / "split.json", report.to_json())
    return report


def _write_parts(
    path: Path, format: str, targets: Sequence[Path], heldout: Collection[int], straddlers: Collection[int]
) -> None:
    train_file, heldout_file, straddlers_file, _ = targets
    with (
        jsonl_writer(train_file, overwrite=True) as train,
        jsonl_writer(heldout_file, overwrite=True) as held,
        jsonl_writer(straddlers_file, overwrite=True) as dropped,
    ):
        for position, trace in enumerate(load_traces(path, format, invalid_calls="keep")):
            if position in straddlers:
                problem = "the trace shares a call with the held-out ones"
                fault = DataError(problem, reason="straddler", path=str(path), trace_id=trace.id)
                dropped.write(fault_to_json(fault))
            else:
                (held if position in heldout else train).write(trace_to_json(trace))
    if not straddlers:
        straddlers_file.unlink()
