"""By what traces are tied to each other: question, entities and calls, in a form in which equal means the same.

Texts are compared as a reader sees them: what has no width, the width of letters, case, typographic signs and white
space make no difference. Names are compared by their words, so "co-trimoxazole" is "co trimoxazole".
"""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass

from txagent_train.core.records import Trace

Key = tuple[str, ...]
"""What kind of key it is, and then what is equal in traces that are tied: ``("entity", "ibuprofen")``."""
Words = tuple[str, ...]
_WORD = re.compile(r"[^\W_]+")
_APOSTROPHES = dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc\u02b9\u02bb\u2032\u00b4`", "'")
_TRADE_MARKS = dict.fromkeys("\u2122\u2120", " ")  # NFKC would make letters of them, of the word before
_PLAIN = str.maketrans(_APOSTROPHES | _TRADE_MARKS)
_SELECTORS = frozenset([*map(chr, range(0xFE00, 0xFE10)), *map(chr, range(0xE0100, 0xE01F0)), "\u034f"])


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
    subjects: set[Key] = {("entity", name) for entity in entities if (name := " ".join(words(entity)))}
    if folded(question_id):
        subjects.add(("question_id", folded(question_id)))
    if folded(question):
        subjects.add(("question", folded(question)))
    return frozenset(subjects)


def words(text: str) -> Words:
    """The words of a text, folded: what stands between white space, hyphens, apostrophes and other signs."""
    return tuple(_WORD.findall(folded(text)))


def folded(text: str) -> str:
    """The text as a reader sees it, without what spelling leaves open; see the module docstring."""
    seen = _plain("".join(letter for letter in text if not is_unseen(letter)))
    return " ".join(_plain(seen.casefold()).split())


def is_unseen(letter: str) -> bool:
    """Whether a character has no width: soft hyphens, joiners, marks of direction and byte order, variation selectors.

    Line ends and tabs are control characters too, but they are white space.
    """
    if letter.isascii():
        return not (letter.isprintable() or letter.isspace())
    return letter in _SELECTORS or (unicodedata.category(letter) in ("Cf", "Cc") and not letter.isspace())


def _plain(text: str) -> str:
    """Letters in their plain form, and one apostrophe and one hyphen for all."""
    if text.isascii():
        return text.replace("`", "'")
    plain = unicodedata.normalize("NFKC", text.translate(_PLAIN)).translate(_PLAIN)
    return "".join("-" if unicodedata.category(letter) == "Pd" or letter == "\u2212" else letter for letter in plain)
