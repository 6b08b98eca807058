"""Splitting traces so that nothing of the held-out part was seen in training.

Traces belong together where they share a question, an entity or a call (name and arguments), directly or through
others; such a component goes to one side whole. Where calls tie too much together, traces belong together by question
and entity only, and where nothing can be held out like that either, by question alone. A trace of the training side
that still shares a question, an entity or a call with the held-out side is a straddler, and is dropped. So in the end
no key is on both sides, whatever components were made by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import JsonObject
from txagent_train.data.components import connected_components
from txagent_train.data.frozen import FrozenSet
from txagent_train.data.keys import Key, TraceKeys, trace_keys
from txagent_train.data.loading import fault_to_json, load_numbered, load_traces
from txagent_train.data.writing import check_free, jsonl_writer
from txagent_train.tracking.files import atomic_write_json, content_sha256

LARGEST_SHARE = 0.2
"""A component with more than this share of the traces is too large to stay whole."""

HELDOUT = "heldout.jsonl"
FROZEN_FILE = "heldout.frozen.json"
_TIES: tuple[tuple[str, Callable[[TraceKeys], Iterable[Key]]], ...] = (
    ("question, entity and call", lambda keys: keys.all),
    ("question and entity", lambda keys: keys.subjects),
    ("question", lambda keys: keys.questions),
)
"""What may make components, the strictest first."""


@dataclass(frozen=True, slots=True)
class SplitReport:
    """How a split came out; traces = train + heldout + straddlers.

    ``largest_component`` and ``largest_share`` (of the traces) are those by question, entity and call. ``tied_by`` is
    what components were made by in the end, ``components`` how many that gave. ``straddlers`` are training traces
    dropped because they share something with the held-out side. Shares are of all traces.
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
    tied_by: str
    train_share: float
    heldout_share: float
    straddlers_share: float
    note: str

    def to_json(self) -> JsonObject:
        return asdict(self)


def choose_heldout(keys: Sequence[TraceKeys], *, fraction: float, seed: int) -> tuple[set[int], set[int], SplitReport]:
    """Choose whole components, in a seeded order, up to ``fraction`` of the traces.

    The order depends on the seed and the ids, not on the order in the file.

    Returns:
        Positions of the held-out traces, positions of the straddlers, and the report.

    Raises:
        DataError: no component is small enough to be held out, or nothing else is left.
    """
    count = len(keys)
    largest = max(map(len, connected_components([item.all for item in keys])), default=0)
    too_large = largest > LARGEST_SHARE * count
    attempts = []
    for tied_by, ties in _TIES[1:] if too_large else _TIES[:1]:
        components = connected_components([ties(item) for item in keys])
        attempts.append((tied_by, components, _fill(components, keys, round(fraction * count), seed)))
        if attempts[-1][2]:
            break
    tied_by, components, heldout = attempts[-1]
    if not heldout:
        smallest = min(map(len, components), default=0)
        raise DataError(
            f"no part of the {count} traces can be held out: the smallest that is tied by {tied_by} has {smallest}",
            reason="cannot_split",
            fix="take a larger fraction, or more traces about other questions and entities",
        )
    straddlers = _straddlers(keys, heldout)
    train = count - len(heldout) - len(straddlers)
    if not train:
        raise DataError(
            "nothing is left to train on: every trace shares an entity or a call with the held-out ones",
            reason="cannot_split",
            fix="take a smaller fraction or another seed, or name more particular entities in the traces",
        )
    report = SplitReport(
        traces=count,
        train=train,
        heldout=len(heldout),
        straddlers=len(straddlers),
        fraction=fraction,
        seed=seed,
        components=len(components),
        largest_component=largest,
        largest_share=round(largest / count, 4),
        tied_by=tied_by,
        train_share=round(train / count, 4),
        heldout_share=round(len(heldout) / count, 4),
        straddlers_share=round(len(straddlers) / count, 4),
        note=_tied_note(largest / count, tied_by, len(straddlers)) if too_large else "",
    )
    return heldout, straddlers, report


def _straddlers(keys: Sequence[TraceKeys], heldout: Collection[int]) -> set[int]:
    """The other traces that share a key with a held-out one; none where components are by all keys."""
    held_keys = {key for item in heldout for key in keys[item].all}
    return {item for item, own in enumerate(keys) if item not in heldout and not own.all.isdisjoint(held_keys)}


def _fill(components: Sequence[Sequence[int]], keys: Sequence[TraceKeys], wanted: int, seed: int) -> set[int]:
    def order(component: Sequence[int]) -> str:
        name = min(keys[item].id for item in component)
        return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()

    chosen: set[int] = set()
    for component in sorted(components, key=order):
        if len(chosen) + len(component) <= max(wanted, 1):
            chosen.update(component)
    return chosen


def _tied_note(share: float, tied_by: str, straddlers: int) -> str:
    return (
        f"shared questions, entities and calls tie {share:.0%} of the traces into one component, more than "
        f"{LARGEST_SHARE:.0%}: held out by {tied_by} instead, and {straddlers} training traces that share more with "
        "the held-out ones were dropped"
    )


def split_traces(
    path: Path, out: Path, *, format: str, fraction: float, seed: int, overwrite: bool = False
) -> SplitReport:
    """Write ``train.jsonl``, ``heldout.jsonl``, ``heldout.frozen.json``, ``straddlers.jsonl`` (where there are any) and
    ``split.json``.

    The file is read twice, so that only keys are held in memory.

    Raises:
        DataError: the file has a bad record, or cannot be split.
        UserError: ``fraction`` is not between 0 and 1, or a file exists already.
    """
    if not 0 < fraction < 1:
        raise UserError(f"the fraction is {fraction}; it must be between 0 and 1", where="--fraction")
    targets = [out / name for name in ("train.jsonl", HELDOUT, "straddlers.jsonl", FROZEN_FILE, "split.json")]
    for target in targets:
        check_free(target, overwrite=overwrite)
    keys = [trace_keys(trace) for trace in load_traces(path, format, invalid_calls="keep")]
    heldout, straddlers, report = choose_heldout(keys, fraction=fraction, seed=seed)
    _write_parts(path, format, targets, heldout, straddlers)
    created_from = {"file": path.name, "sha256": content_sha256(path), "traces": len(heldout)}
    created_from |= {"fraction": fraction, "seed": seed}
    FrozenSet.of((keys[item] for item in heldout), path=out / FROZEN_FILE, created_from=created_from).write()
    atomic_write_json(out / "split.json", report.to_json())
    return report


def _write_parts(
    path: Path, format: str, targets: Sequence[Path], heldout: Collection[int], straddlers: Collection[int]
) -> None:
    train_file, heldout_file, straddlers_file, *_ = targets
    with (
        jsonl_writer(train_file, overwrite=True) as train,
        jsonl_writer(heldout_file, overwrite=True) as held,
        jsonl_writer(straddlers_file, overwrite=True) as dropped,
    ):
        for position, (line, trace) in enumerate(load_numbered(path, format, invalid_calls="keep")):
            if position in straddlers:
                problem = "the trace shares a question, an entity or a call with the held-out ones"
                fault = DataError(problem, reason="straddler", path=str(path), line=line, trace_id=trace.id)
                dropped.write(fault_to_json(fault))
            else:
                (held if position in heldout else train).write(trace_to_json(trace))
    if not straddlers:
        straddlers_file.unlink()
