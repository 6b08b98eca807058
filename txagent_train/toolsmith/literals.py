"""What stays in every version of a tool, as it is written.

Values of its schema (enum, const, default, examples), which a call must give to the letter; what stands in quotation
marks, brackets or code; proper names, and what an abbreviation is said to stand for. An argument whose name can be
read as such a word keeps its name, or its texts would say two things at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.mentions import count_mentions, is_identifier
from txagent_train.data.references import schemas_in
from txagent_train.data.schema_names import EXAMPLES, ArgumentNames
from txagent_train.toolsmith.synonyms import argument_description, properties
from txagent_train.toolsmith.words import STOP_WORDS

_QUOTED = r"`[^`\n]*`|\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)"
_QUOTATION = re.compile(_QUOTED)
# What stands in brackets, quotes or code is often a value that a call must give as it is written there.
_MARKED = re.compile(rf"\([^()]*\)|\[[^\[\]]*\]|{_QUOTED}")
_CAPITALISED = r"[A-Z][\w'+&/-]*"
_PROPER = re.compile(rf"(?<![\w.]){_CAPITALISED}(?: (?:(?:of|and|for|the|in|on|to) ){{0,2}}{_CAPITALISED})+")
_ABBREVIATION = re.compile(r"\(([A-Za-z][A-Za-z0-9-]{1,9})\)")
_WORD = re.compile(r"[A-Za-z]\w*")


@dataclass(frozen=True)
class Literals:
    """The literal words of one tool.

    ``values`` are those of its schema, ``phrases`` proper names in small letters. ``kept`` are the arguments that keep
    their names; ``fixed`` says why all do, or is "".
    """

    values: frozenset[str]
    phrases: frozenset[str]
    kept: frozenset[str]
    fixed: str = ""

    @classmethod
    def of(cls, spec: ToolSpec) -> Literals:
        """The literals of a tool."""
        found = frozenset(text for text in _values(spec.parameters) if text.strip())
        texts = [spec.description, *map(argument_description, properties(spec).values())]
        phrases = frozenset(phrase.lower() for text in texts for phrase in _proper_names(text))
        names = ArgumentNames.of(spec.parameters)
        if names.fixed:
            return cls(found, phrases, names.own, names.fixed)
        quoted = [match[0][1:-1] for text in texts for match in _QUOTATION.finditer(text)]
        inside = [text for text in (*found, *quoted) if text not in names.own]
        others = found | _nested_names(spec.parameters)
        kept = frozenset(name for name in names.own if _stays(name, texts, inside, others))
        return cls(found, phrases, kept)

    def protected(self, text: str) -> list[tuple[int, int]]:
        """Where a text stays as it is, in its order."""
        found = [*(match.span() for match in _MARKED.finditer(text)), *self.spans(text)]
        if self._phrases is not None:
            found += [match.span() for match in self._phrases.finditer(text)]
        merged: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where values of the schema stand in a text: one that is a common word only in quotation marks."""
        if self._pattern is not None:
            yield from (match.span() for match in self._pattern.finditer(text))

    def named(self, text: str) -> frozenset[str]:
        """The values that a text names."""
        return frozenset(text[start:end] for start, end in self.spans(text))

    def lost(self, old: str, new: str) -> list[str]:
        """The values that one text names and another does not; the capitals of an ordinary word do not count."""
        folded = new.casefold()
        return sorted(value for value in self.named(old) if not _says(new, folded, value))

    def without(self, text: str) -> str:
        """The text with a gap for each value."""
        return " ".join(part for part, is_value in self.parts(text) if not is_value)

    def parts(self, text: str) -> Iterator[tuple[str, bool]]:
        """The text in pieces, each with whether it is a value."""
        end = 0
        for start, stop in self.spans(text):
            yield text[end:start], False
            yield text[start:stop], True
            end = stop
        yield text[end:], False

    @cached_property
    def _phrases(self) -> re.Pattern[str] | None:
        if not self.phrases:
            return None
        listed = "|".join(map(re.escape, sorted(self.phrases, key=len, reverse=True)))
        return re.compile(rf"(?<!\w)(?:{listed})(?!\w)", re.IGNORECASE)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        if not self.values:
            return None
        return re.compile("|".join(map(_whole, sorted(self.values, key=len, reverse=True))))


def _whole(value: str) -> str:
    """A pattern for a value as a whole: no word goes on before or behind it, and no number."""
    if value in STOP_WORDS or not any(map(str.isalnum, value)) or (len(value) == 1 and value.isalpha()):
        return rf"(?<=[\"'`]){re.escape(value)}(?=[\"'`])"
    before = r"(?<!\w)(?<!\d\.)" if value[0].isalnum() or value[0] == "_" else ""
    after = r"(?!\w)(?!\.\d)" if value[-1].isalnum() or value[-1] == "_" else ""
    return f"{before}{re.escape(value)}{after}"


def _says(text: str, folded: str, value: str) -> bool:
    if is_identifier(value) or not value.isalpha():
        return re.search(_whole(value), text) is not None
    return re.search(_whole(value.casefold()), folded) is not None


def _values(parameters: JsonObject) -> Iterator[str]:
    """The texts and numbers that the schema names as values; true and false are words of every schema."""
    for schema in schemas_in(parameters):
        for key in EXAMPLES:
            yield from _leaves(schema.get(key))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield str(value)


def _nested_names(parameters: JsonObject) -> frozenset[str]:
    """The names of properties that stand inside an argument: they stay as they are."""
    inner = (schema.get("properties") for schema in schemas_in(parameters) if schema is not parameters)
    return frozenset(name for found in inner if isinstance(found, dict) for name in found)


def _stays(name: str, texts: Iterable[str], inside: Iterable[str], others: frozenset[str]) -> bool:
    """Whether an argument keeps its name: a text says it of something else too, or has it inside a literal."""
    if not name.strip():  # there is no way back to an argument without a name
        return True
    quoted = not is_identifier(name)
    if name in others and any(count_mentions(text, name, quoted=quoted) for text in texts):
        return True
    return not quoted and any(count_mentions(text, name, quoted=False) for text in inside)


def _proper_names(text: str) -> Iterator[str]:
    """Names of several words, and what an abbreviation in brackets stands for."""
    for match in _PROPER.finditer(text):
        words = match[0].split()
        opens = match.start() == 0 or text[: match.start()].rstrip().endswith((".", "!", "?", ":"))
        # "Target ID" at the beginning of a sentence is no name, and its first word need not belong to one.
        if not (opens and all(word.isupper() for word in words[1:])):
            yield match[0]
        if opens and len(words) > 2 and words[1][0].isupper():
            yield " ".join(words[1:])
    for match in _ABBREVIATION.finditer(text):
        yield from _expansion(text[: match.start()], match[1])


def _expansion(before: str, short: str) -> Iterator[str]:
    """The words in front of an abbreviation whose first letters it has; small words may be left out."""
    letters = [letter.lower() for letter in short.removesuffix("s") if letter.isalpha()]
    if sum(map(str.isupper, short)) < 2:
        return
    words = list(_WORD.finditer(before))
    for count in range(len(letters), len(letters) + 4):
        chosen = words[-count:]
        every = [word[0][0].lower() for word in chosen]
        telling = [word[0][0].lower() for word in chosen if word[0] not in STOP_WORDS]
        if len(chosen) == count and letters in (every, telling):
            yield before[chosen[0].start() :].rstrip()
            return
