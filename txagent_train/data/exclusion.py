"""Exclusion lists: entities that no training trace may be about.

The paper leaves out drugs that were approved after 2023, so that an evaluation on them shows what the agent finds
out and not what it remembers. A list is a text file with one entity a line; a line that begins with ``#`` is a
comment.

A trace that names its entities is about these. One that names none is about what stands in its text for the user
(questions, replies, answer), word by word: "iron" is in "iron-deficiency" and "Iron?", not in "environment". Hyphens,
apostrophes and spaces are all borders of words, so "co-trimoxazole" is found in "co trimoxazole" too. A space
without width may stand within a word or between two, and a small raised number may be of the name or a note: both
readings count. Where that leaves out too much, it is counted and named; too little would go unseen.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txagent_train.core.errors import DataError
from txagent_train.core.records import Trace, UserMessage
from txagent_train.data.keys import Words, is_unseen, words

EXCLUDED = "excluded_entity"
"""The reason under which traces are counted that an exclusion list leaves out."""

_WITHIN_WORDS = "\N{SOFT HYPHEN}\N{WORD JOINER}\N{ZERO WIDTH JOINER}"


@dataclass(frozen=True, slots=True)
class Exclusion:
    """The entities of all lists.

    ``names`` are the words of each; ``phrases`` are the same by the first word, with the spelling of the list.
    """

    names: frozenset[Words]
    phrases: Mapping[str, tuple[tuple[Words, str], ...]]

    @classmethod
    def read(cls, paths: Sequence[Path]) -> Exclusion:
        """Read lists.

        Raises:
            DataError: one cannot be read, names no entity, or has a line without a letter or digit.
        """
        names: set[Words] = set()
        phrases: dict[str, list[tuple[Words, str]]] = {}
        for path in paths:
            for entity in _read_list(path):
                name = words(entity)
                names.add(name)
                phrases.setdefault(name[0], []).append((name, entity))
        return cls(frozenset(names), {first: tuple(found) for first, found in phrases.items()})

    def match(self, trace: Trace) -> str | None:
        """The excluded entity that a trace is about, or None. See the module docstring."""
        if not self.names:
            return None
        named = {entity: name for entity in trace.entities if (name := words(entity))}
        if named:
            return next((entity for entity, name in named.items() if name in self.names), None)
        return next((found for text in _texts(trace) if (found := self._find(text)) is not None), None)

    def _find(self, text: str) -> str | None:
        for said in _readings(text):
            for place, word in enumerate(said):
                for phrase, entity in self.phrases.get(word, ()):
                    if said[place : place + len(phrase)] == phrase:
                        return entity
        return None

    def check(self, trace: Trace) -> None:
        """Raise DataError (reason ``excluded_entity``) where a trace is about an excluded entity."""
        entity = self.match(trace)
        if entity is not None:
            problem = f"the trace is about {entity!r}, which data.exclude leaves out"
            raise DataError(problem, reason=EXCLUDED, trace_id=trace.id)


def _readings(text: str) -> Iterator[Words]:
    """The words of a text; again where characters that may be of a word or stand between two are taken for borders."""
    yield words(text)
    apart = "".join(" " if _may_part(one) else one for one in text)
    if apart != text:
        yield words(apart)


def _may_part(letter: str) -> bool:
    return unicodedata.category(letter) == "No" or (is_unseen(letter) and letter not in _WITHIN_WORDS)


def _texts(trace: Trace) -> Iterator[str]:
    """What is said between user and agent. Thoughts beside calls are not: they weigh what is then ruled out."""
    for turn in trace.turns:
        if isinstance(turn, UserMessage):
            yield turn.content
        elif not turn.calls:
            yield turn.thought
    if trace.answer is not None:
        yield trace.answer


def _read_list(path: Path) -> Iterator[str]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        problem = f"the exclusion list cannot be read: {error.strerror or error}"
        raise DataError(problem, reason="unreadable_file", path=str(path)) from None
    except UnicodeDecodeError as error:
        problem = f"the exclusion list is not UTF-8 (byte {error.start})"
        raise DataError(problem, reason="not_utf8", path=str(path)) from None
    empty = True
    for number, line in enumerate(text.splitlines(), 1):
        entity = " ".join(line.split())
        if not entity or entity.startswith("#"):
            continue
        if not words(entity):
            problem = f"{entity!r} is no name of an entity: it has no letter and no digit"
            raise DataError(problem, reason="invalid_exclusion", path=str(path), line=number)
        empty = False
        yield entity
    if empty:
        problem = "the exclusion list names no entity"
        fix = "write one entity a line, or take the file out of data.exclude"
        raise DataError(problem, reason="invalid_exclusion", path=str(path), fix=fix)
