"""By what traces are tied to each other: question, entities and calls, in a form in which equal means the same."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass

from txagent_train.core.records import Trace

Key = tuple[str, ...]
"""What kind of key it is, and then what is equal in traces that are tied: ``("entity", "ibuprofen")``."""


@dataclass(frozen=True, slots=True)
class TraceKeys:
    """By what a trace is tied to others: ``subjects`` are its question, question id and entities."""

    id: str
    subjects: frozenset[Key]
    calls: frozenset[Key]

    @property
    def all(self) -> frozenset[Key]:
        return self.subjects | self.calls

    @property
    def questions(self) -> frozenset[Key]:
        """The subjects without the entities: what only the same question has."""
        return frozenset(key for key in self.subjects if key[0] != "entity")


def trace_keys(trace: Trace) -> TraceKeys:
    """The keys of a trace. A call without arguments ties nothing: it says nothing about its question."""
    calls = frozenset(
        ("call", call.name, json.dumps(call.arguments, sort_keys=True))
        for step in trace.steps
        for call in step.calls
        if call.arguments
    )
    return TraceKeys(trace.id, subject_keys(trace.question, trace.question_id, trace.entities), calls)


def subject_keys(question: str, question_id: str, entities: tuple[str, ...] = ()) -> frozenset[Key]:
    """The keys of what a trace is about; an empty one is none."""
    subjects: set[Key] = {("entity", folded(entity)) for entity in entities if folded(entity)}
    if question_id:
        subjects.add(("question_id", question_id))
    if folded(question):
        subjects.add(("question", folded(question)))
    return frozenset(subjects)


def folded(text: str) -> str:
    """The text without what spelling leaves open: case, white space, how an accent is encoded."""
    return " ".join(unicodedata.normalize("NFC", text.casefold()).split())
