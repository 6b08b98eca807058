"""What a file of traces holds, in numbers."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from txagent_train.core.errors import DataError
from txagent_train.core.records import DataKind, Json, JsonObject, Step, Trace, UserMessage
from txagent_train.data.checks import is_complete, kind_of
from txagent_train.data.importers import AUTO, resolved_format
from txagent_train.data.loading import Policies, read_numbered


@dataclass
class TraceStats:
    """Counts over traces; ``add`` each one.

    ``characters`` are those of all turns (messages, thoughts, reasoning, calls, results) and the answer, without
    system prompt and tools. ``messages`` counts turns by who speaks: the user, the assistant, a tool. ``unreadable``
    counts records by the reason why they are no trace.
    """

    format: str
    traces: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    complete: int = 0
    parallel_steps: int = 0
    error_results: int = 0
    questions: set[str] = field(default_factory=set)
    tools: set[str] = field(default_factory=set)
    calls_by_tool: Counter[str] = field(default_factory=Counter)
    steps_per_trace: Counter[int] = field(default_factory=Counter)
    characters: list[int] = field(default_factory=list)
    unreadable: Counter[str] = field(default_factory=Counter)

    def add(self, trace: Trace) -> None:
        """Count one trace."""
        steps = trace.steps
        self.traces += 1
        self.kinds[kind_of(trace)] += 1
        self.messages["user"] += len(trace.turns) - len(steps)
        self.messages["assistant"] += len(steps)
        self.messages["tool"] += sum(len(step.results) for step in steps)
        self.steps += len(steps)
        self.complete += is_complete(trace)
        self.parallel_steps += sum(len(step.calls) > 1 for step in steps)
        self.error_results += sum(result.is_error for step in steps for result in step.results)
        self.questions.add(trace.question_id or trace.question)
        self.tools.update(tool.name for tool in trace.tools())
        self.calls_by_tool.update(call.name for step in steps for call in step.calls)
        self.steps_per_trace[len(steps)] += 1
        self.characters.append(trace_characters(trace))

    def to_json(self) -> JsonObject:
        """The counts, the most frequent tools first."""
        return {
            "format": self.format,
            "traces": self.traces,
            "kinds": {kind: self.kinds[kind] for kind in (DataKind.TRACE, DataKind.CHAT)},
            "messages": dict(self.messages),
            "questions": len(self.questions),
            "complete": self.complete,
            "incomplete": self.traces - self.complete,
            "steps": self.steps,
            "calls": self.calls_by_tool.total(),
            "parallel_steps": self.parallel_steps,
            "error_results": self.error_results,
            "tools": len(self.tools),
            "calls_by_tool": dict(self.calls_by_tool.most_common()),
            "steps_per_trace": {str(count): self.steps_per_trace[count] for count in sorted(self.steps_per_trace)},
            "characters": {
                "mean": round(statistics.fmean(self.characters), 1) if self.characters else 0.0,
                "median": statistics.median(self.characters) if self.characters else 0,
                "max": max(self.characters, default=0),
            },
            "unreadable": dict(self.unreadable.most_common()),
        }


def trace_characters(trace: Trace) -> int:
    """Characters of the turns and the answer; see TraceStats."""
    return sum(_turn_characters(turn) for turn in trace.turns) + len(trace.answer or "")


def _turn_characters(turn: UserMessage | Step) -> int:
    if isinstance(turn, UserMessage):
        return len(turn.content)
    calls = sum(len(call.name) + _length(call.arguments) for call in turn.calls)
    results = sum(_length(result.content) for result in turn.results)
    return len(turn.thought) + len(turn.reasoning) + len(turn.raw_output or "") + calls + results


def _length(value: Json) -> int:
    return len(value) if isinstance(value, str) else len(json.dumps(value, ensure_ascii=False))


def collect_stats(path: Path, format: str = AUTO) -> TraceStats:
    """Count a file. Incomplete traces and ones with invalid calls are counted too: this tells what is there.

    Raises:
        DataError: the file cannot be read or holds no record, or its format cannot be told.
        UserError: there is no such format.
    """
    stats = TraceStats(resolved_format(path, format))

    def note(error: DataError) -> None:
        stats.unreadable[error.reason] += 1

    policies = Policies(on_fault=note, on_incomplete=None, on_invalid_call=None)
    for _, trace in read_numbered(path, stats.format, policies):
        stats.add(trace)
    return stats
