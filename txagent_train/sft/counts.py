"""What becomes of the steps of the traces: counted while rows are made, summed over the parts of an epoch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Self

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.decompose import untrained_reason
from txagent_train.data.loading import fault_to_json
from txagent_train.data.overlong import OverlongReport


@dataclass(slots=True)
class Counts:
    """Sums by reason (sft.prepared.PrepareReport says what they mean). ``named`` holds what was left out, singly."""

    steps: int = 0
    untrained_traces: int = 0
    shared_calls: int = 0
    neutralised: int = 0
    neutralised_in_targets: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_traces: Counter[str] = field(default_factory=Counter)
    untrained: Counter[str] = field(default_factory=Counter)
    shortened: Counter[str] = field(default_factory=Counter)
    overlong: Counter[str] = field(default_factory=Counter)
    augmented: Counter[str] = field(default_factory=Counter)
    named: list[JsonObject] = field(default_factory=list)

    def drop_trace(self, fault: DataError) -> None:
        """Count and name a trace that is left out whole."""
        self.dropped_traces[fault.reason] += 1
        self.named.append(fault_to_json(fault))

    def drop_sample(self, fault: DataError) -> None:
        """Count and name a sample that is left out."""
        self.dropped[fault.reason] += 1
        self.named.append(fault_to_json(fault))

    def add_trace(self, trace: Trace) -> None:
        """Count the steps of a trace, and those of them that are not meant to be trained on."""
        reasons = [reason for step in trace.steps if (reason := untrained_reason(step)) is not None]
        self.steps += len(trace.steps)
        self.untrained.update(reasons)
        self.untrained_traces += len(reasons) == len(trace.steps)

    def add_overlong(self, report: OverlongReport) -> None:
        """Add what was over the length limit, and what gave way for it."""
        if report.summarized:
            self.shortened += Counter(samples=report.summarized, steps=report.steps, tokens=report.tokens_saved)
        self.overlong += Counter({str(bound): count for bound, count in report.lengths.items()})

    def add(self, other: Counts) -> None:
        """Add the sums of another part; its ``named`` are not kept, they may be many."""
        for item in fields(self):
            if item.name == "named":
                continue
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, Counter):
                mine.update(theirs)
            else:
                setattr(self, item.name, mine + theirs)

    def to_json(self) -> JsonObject:
        # Not dataclasses.asdict: it copies a Counter as if it were given pairs to count.
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        fields_of: JsonObject = {key: Counter(item) if isinstance(item, dict) else item for key, item in value.items()}
        return cls(**fields_of)
