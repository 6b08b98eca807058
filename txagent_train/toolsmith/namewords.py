"""The words of a tool's name that say what it is about: the name of a version must keep them.

A word is kept where the name has it, its abbreviation, or a synonym of the lexicon. A word that is in neither the
lexicon nor the tool's own texts may be a synonym that the lexicon lacks, and stands for one that is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from txagent_train.core.records import ToolSpec
from txagent_train.data.spelling import MAX_NAME_LENGTH
from txagent_train.toolsmith.lexicon import ABBREVIATIONS, GENERIC, GENERIC_NOUNS, NEUTRAL, SYNONYMS, VERB_NOUNS
from txagent_train.toolsmith.nameparts import CLASS_OF, verb_place
from txagent_train.toolsmith.synonyms import argument_description, properties, spec_text
from txagent_train.toolsmith.words import STOP_WORDS, content_words, identifier_words, stem

_ANY_TOOL = ("retrieve", "search", "list")
"""Classes of verbs that nearly every tool has: they say nothing, wherever they stand."""
_IDLE = frozenset(
    {stem(word) for text in NEUTRAL for word in text.split()}
    | {stem(word) for nouns in VERB_NOUNS.values() for noun in nouns for word in noun.split()}
)
_DESCRIBED = 2
"""So many words of the description say as much as a name of one word that the description lacks (``esearch``)."""
_SPARE = 10
"""Characters that the words of a long name leave for a verb."""
_SAME = 0.7
"""Two words that share this part of their letters from the first on are forms of one (pharmacology, pharmacologic)."""


@dataclass(frozen=True, slots=True)
class NameWords:
    """``wanted`` are the stems that must stay, each with those that may stand for it.

    ``own`` are the stems of all texts of the tool and what may stand for them, ``described`` those of its texts without
    its name. ``may_lose`` is how many words may be missing: a very long name has no place for all.
    """

    wanted: Mapping[str, frozenset[str]]
    own: frozenset[str]
    described: frozenset[str]
    may_lose: int

    @classmethod
    def of(cls, spec: ToolSpec) -> NameWords:
        """The words of a tool's name."""
        words = [word.lower() for word in identifier_words(spec.name)]
        at = verb_place(words)
        telling = [word for place, word in enumerate(words) if place != at and _says_what(word)]
        wanted = {stem(word): _related(stem(word)) for word in telling}
        texts = content_words(spec_text(spec))
        own = texts.union(*map(_related, texts))
        about = " ".join([spec.description, *map(argument_description, properties(spec).values())])
        fits = len("_".join(dict.fromkeys(telling))) <= MAX_NAME_LENGTH - _SPARE
        return cls(wanted, frozenset(own), frozenset(content_words(about)), 0 if fits else max(1, len(wanted) // 2))

    def lost(self, name: str) -> tuple[str, ...]:
        """The words of the tool's name that a version's name has nothing for."""
        new = {stem(word) for word in identifier_words(name)}
        missing = tuple(word for word, others in self.wanted.items() if not _has(new, word, others))
        if not missing:
            return ()
        told = {word for word in new & self.described if word not in STOP_WORDS and word not in GENERIC}
        if len(self.wanted) == 1 and missing[0] not in self.described and len(told) >= _DESCRIBED:
            return ()
        novel = {word for word in new - self.own - GENERIC - _IDLE if len(word) > 1 and word not in STOP_WORDS}
        return missing if len(missing) > len(novel) + self.may_lose else ()


def _says_what(word: str) -> bool:
    if len(word) < 2 or not word.isascii() or word in STOP_WORDS or CLASS_OF.get(word) in _ANY_TOOL:
        return False
    return stem(word) not in GENERIC_NOUNS and stem(word) not in _IDLE


def _has(new: set[str], word: str, others: frozenset[str]) -> bool:
    return word in new or not others.isdisjoint(new) or any(_is_form(word, other) for other in new)


def _is_form(first: str, second: str) -> bool:
    same = 0
    while same < min(len(first), len(second)) and first[same] == second[same]:
        same += 1
    return same >= max(4, _SAME * max(len(first), len(second)))


def _related(word: str) -> frozenset[str]:
    return _relations().get(word, frozenset())


@lru_cache(maxsize=1)
def _relations() -> Mapping[str, frozenset[str]]:
    """For each stem of the lexicon those that may stand for it. Words of one phrase do not stand for each other."""
    found: dict[str, set[str]] = defaultdict(set)
    for key, phrases in SYNONYMS.items():
        group = [content_words(phrase) for phrase in (key, *phrases)]
        every = set().union(*group)
        for word in every:
            found[word] |= every.difference(*(words for words in group if word in words))
    for word, short in ABBREVIATIONS.items():
        found[stem(word)].add(stem(short))
        found[stem(short)].add(stem(word))
    return {word: frozenset(others) for word, others in found.items()}
