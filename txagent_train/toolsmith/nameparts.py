"""The parts of a tool's name, by what its words do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txagent_train.core.records import ToolSpec
from txagent_train.toolsmith.lexicon import VERB_CLASSES
from txagent_train.toolsmith.words import STOP_WORDS, identifier_words, stem

_CONNECTORS = ("by", "from", "using", "via", "for", "with")
_NOT_AFTER_VERBS = ("of", "for", "on", "to", "is", "are")
_VERB_AMONG = 3
"""The verb is one of the first so many words of a name."""
CLASS_OF: dict[str, str] = {}
"""The class of each verb."""
for _name, _verbs in VERB_CLASSES.items():
    for _verb in _verbs:
        CLASS_OF.setdefault(_verb, _name)
# The verb that names a class belongs to it, even where an earlier class has it too.
CLASS_OF.update({name: name for name in VERB_CLASSES})


@dataclass(frozen=True, slots=True)
class NameParts:
    """``FDA_get_drug_names_by_alarm``: prefix FDA, verb class retrieve, subject drug names, key alarm.

    ``verb_class`` is "" where no verb is known; ``key`` is empty where the name has no "by".
    """

    prefix: tuple[str, ...]
    verb_class: str
    subject: tuple[str, ...]
    key: tuple[str, ...]

    @classmethod
    def of(cls, spec: ToolSpec) -> NameParts:
        """The parts of a tool's name. A verb is looked for in its first words, then at the description's beginning."""
        words = tuple(word.lower() for word in identifier_words(spec.name))
        at = verb_place(words)
        if at is None:
            return cls._of(words[:0], described_verb(spec.description), words)
        return cls._of(words[:at], CLASS_OF[words[at]], words[at + 1 :])

    @classmethod
    def _of(cls, prefix: tuple[str, ...], verb_class: str, body: tuple[str, ...]) -> NameParts:
        split = next((index for index in range(len(body) - 2, 0, -1) if body[index] in _CONNECTORS), None)
        if split is None or all(word in STOP_WORDS for word in body[:split]):
            return cls(prefix, verb_class, body, ())
        return cls(prefix, verb_class, body[:split], body[split + 1 :])


def verb_place(words: Sequence[str]) -> int | None:
    """Where the verb stands among the words of a name, in small letters; None where none is known."""
    return next((at for at, word in enumerate(words[:_VERB_AMONG]) if _is_verb(word, at, len(words))), None)


def _is_verb(word: str, index: int, n_words: int) -> bool:
    # "fold_change" and "drug_list" are nouns: a later word counts as a verb only where something follows it.
    return word in CLASS_OF and (index == 0 or index + 1 < n_words)


def described_verb(description: str) -> str:
    """The class of the verb with which a description begins, or ""."""
    words = description.split(maxsplit=2)
    # "Report of a submission" begins with a noun.
    if not words or (len(words) > 1 and words[1] in _NOT_AFTER_VERBS):
        return ""
    word = words[0]
    return CLASS_OF.get(word.lower()) or CLASS_OF.get(stem(word), "")
