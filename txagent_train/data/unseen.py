"""Held-out traces as three sets: tools as training saw them, tools in words it never saw, tools it never saw.

They answer what augmentation is for (paper 4.2): does the model read what a tool does, or know its name by heart? A
trace that names no held-out tool is in ``seen`` as training would show it, and in ``unseen_rewrites`` with the tools
that it calls in held-out versions, so that the two are compared item by item; the other tools that it shows are in a
held-out version too where they have one that fits. A trace that calls a held-out tool is in ``unseen_tools``, and only
the steps that call one are judged there. One that names a held-out tool and calls none is in no set.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Step, Trace
from txagent_train.data.augment import check_in_toolbox, held_out_tools
from txagent_train.data.decompose import is_trained
from txagent_train.data.importers import AUTO, resolved_format
from txagent_train.data.loading import fault_to_json, policies_for, raise_fault, read_numbered
from txagent_train.data.mentions import SPECIAL_TOOLS
from txagent_train.data.rewrites import RewriteSet
from txagent_train.data.specs import SpecCache
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.versions import choose_versions
from txagent_train.data.withheld import Withheld
from txagent_train.data.writing import jsonl_writers

NOT_REWRITTEN = "tool_not_rewritten"
"""Why a trace is in ``seen`` and not in ``unseen_rewrites``: a tool that it calls has no fitting version."""
NOT_JUDGED = "no_judged_step"
"""Why a trace that calls a held-out tool is in no set: the steps that call one are not trained on."""


@dataclass(frozen=True, slots=True)
class UnseenSplit:
    """Sorts held-out traces.

    Raises:
        DataError: the rewrites are of another toolbox, or hold nothing out.
    """

    toolbox: Toolbox
    rewrites: RewriteSet
    seed: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """By reason: the traces that ``unseen_rewrites`` lacks, and what choosing versions left as it was."""
    _versions: RewriteSet = field(init=False, repr=False)
    _withheld: Withheld = field(init=False, repr=False)
    _cache: SpecCache = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.rewrites.check_fits(self.toolbox)
        versions = self.rewrites.for_evaluation()
        if not versions.by_tool and not self.rewrites.held_out_tools:
            fix = "make them with tools rewrite --hold-out-versions 2 --hold-out-tools 0.1"
            raise DataError("these rewrites hold out neither versions nor tools", reason="nothing_held_out", fix=fix)
        withheld = held_out_tools(self.rewrites)
        object.__setattr__(self, "_versions", versions)
        object.__setattr__(self, "_withheld", withheld)
        object.__setattr__(self, "_cache", SpecCache((withheld,)))

    def uses_held_out(self, trace: Trace) -> bool:
        """Whether a trace calls a tool that training sees in no version: it belongs to ``unseen_tools``.

        Raises:
            DataError: it calls a tool that is not in the toolbox.
        """
        check_in_toolbox(trace, enumerate(trace.steps), self.toolbox)
        return any(self._calls_held_out(step) for step in trace.steps)

    def judged(self, trace: Trace) -> Trace:
        """A trace of ``unseen_tools``: trained and judged on are only the steps that call a held-out tool.

        Raises:
            DataError: there is none (reason ``no_judged_step``).
        """
        turns = tuple(
            replace(turn, train=turn.train and self._calls_held_out(turn)) if isinstance(turn, Step) else turn
            for turn in trace.turns
        )
        out = replace(trace, turns=turns)
        if not any(map(is_trained, out.steps)):
            problem = "the trace calls a held-out tool only in steps that are not trained on"
            raise DataError(problem, reason=NOT_JUDGED, trace_id=trace.id)
        return out

    def seen(self, trace: Trace) -> Trace:
        """A trace that calls no held-out tool as training would show it: those that it offers are hidden.

        Raises:
            DataError: it names one still (reason ``held_out_tool``).
        """
        hidden = self._withheld.hide(trace)
        self._withheld.check(hidden)
        return hidden

    def rewritten(self, trace: Trace) -> Trace | None:
        """A trace of ``seen`` under held-out versions; None, and counted, where a tool that it calls has none.

        Its id gets the ending ``-rewritten``: the two may be in one evaluation.
        """
        counts: Counter[str] = Counter()
        rng = random.Random(f"unseen:{self.seed}:{trace.id}")
        renaming = choose_versions(trace, self._versions, self._cache, rng, originals=False, counts=counts)
        called = {call.name for step in trace.steps for call in step.calls} - SPECIAL_TOOLS
        if not called <= renaming.names.keys():
            self.counts[NOT_REWRITTEN] += 1
            return None
        self.counts.update(+counts)
        return replace(renaming.apply(trace), id=f"{trace.id}-rewritten")

    def sets_of(self, trace: Trace) -> dict[str, Trace]:
        """The sets that a trace is in, and what it is there.

        Raises:
            DataError: it is in none.
        """
        if self.uses_held_out(trace):
            return {"unseen_tools": self.judged(trace)}
        seen = self.seen(trace)
        rewritten = self.rewritten(seen)
        return {"seen": seen} if rewritten is None else {"seen": seen, "unseen_rewrites": rewritten}

    def _calls_held_out(self, step: Step) -> bool:
        return any(self._withheld.has(call.name) for call in step.calls)


# ---- files ----

SETS = ("seen", "unseen_rewrites", "unseen_tools")
_DROPPED = "dropped.jsonl"


@dataclass(frozen=True, slots=True)
class UnseenReport:
    """What was written; read = seen + unseen_tools + the sum of dropped. ``counts`` are those of UnseenSplit.

    ``files`` are the sets that have traces. ``steps`` counts, for each, the steps that are judged.
    """

    source: str
    format: str
    read: int
    traces: dict[str, int]
    steps: dict[str, int]
    files: dict[str, str]
    counts: dict[str, int]
    dropped: dict[str, int]
    dropped_file: str | None

    def to_json(self) -> JsonObject:
        return asdict(self)


def write_unseen_sets(
    source: Path, out: Path, split: UnseenSplit, *, format: str = AUTO, overwrite: bool = False
) -> UnseenReport:
    """Write ``seen.jsonl``, ``unseen_rewrites.jsonl`` and ``unseen_tools.jsonl`` of a file of held-out traces.

    A set without traces has no file; all files appear when all are whole. What is left out of all, with reasons, is in
    ``dropped.jsonl``.

    Raises:
        DataError: the file cannot be read, or none of its traces is in a set.
        UserError: a file exists already, or there is no such format.
        EnvironmentFailure: the machine refused to write.
    """
    targets = {name: out / f"{name}.jsonl" for name in SETS}
    side = out / _DROPPED
    found = resolved_format(source, format)
    dropped: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    with jsonl_writers([*targets.values(), side], overwrite=overwrite, keep_empty=False) as (*files, left_out):
        writers = dict(zip(SETS, files, strict=True))

        def drop(error: DataError) -> None:
            dropped[error.reason] += 1
            left_out.write(fault_to_json(error))

        policies = policies_for("drop", "steps", drop=drop, stop=raise_fault, on_fault=drop)
        for line, trace in read_numbered(source, found, policies):
            try:
                sets = split.sets_of(trace)
            except DataError as error:
                drop(error.at(path=str(source), line=line))
                continue
            for name, made in sets.items():
                writers[name].write(trace_to_json(made))
                steps[name] += sum(map(is_trained, made.steps))
        if not any(writer.count for writer in files):
            listed = ", ".join(f"{count} {reason}" for reason, count in dropped.items())
            problem = f"no trace of the file is in one of the sets (left out: {listed})"
            raise DataError(problem, reason="nothing_accepted", path=str(source))
    traces = {name: writer.count for name, writer in writers.items()}
    return UnseenReport(
        source=str(source),
        format=found,
        read=traces["seen"] + traces["unseen_tools"] + dropped.total(),
        traces=traces,
        steps={name: steps[name] for name in SETS},
        files={name: str(path) for name, path in targets.items() if traces[name]},
        counts=dict(split.counts.most_common()),
        dropped=dict(dropped.most_common()),
        dropped_file=str(side) if dropped else None,
    )
