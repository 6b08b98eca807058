"""Other names for tools and arguments, from the words of the old ones."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from txagent_train.core.records import ToolSpec
from txagent_train.toolsmith.lexicon import ABBREVIATIONS, ARGUMENT_NAMES, VERB_CLASSES, VERB_NOUNS
from txagent_train.toolsmith.synonyms import Choices, Vocabulary
from txagent_train.toolsmith.words import (
    MAX_NAME_LENGTH,
    STOP_WORDS,
    identifier,
    identifier_words,
    sentences,
    stem,
    text_words,
)

_TRIES = 12
_BODY_LENGTH = MAX_NAME_LENGTH - 22
"""Characters for what a name is about; the rest is for the verb and what joins them."""
_CONNECTORS = ("by", "from", "using", "via", "for", "with")
_BY = ("by", "from", "using", "given", "via", "with", "based_on", "for")
_NEUTRAL = (
    "use {}", "run {}", "call {}", "do {}", "{} tool", "{} function", "{} service", "{} request", "{} operation",
    "perform {}", "execute {}", "{} action", "{} utility", "{} task", "invoke {}", "{} command", "{} helper",
    "{} api", "{} routine", "apply {}", "{} endpoint", "{} step", "start {}", "{} query", "make {} call",
)  # fmt: skip
"""For a name without a verb that is known."""
_NOT_AFTER_VERBS = ("of", "for", "on", "to", "is", "are")
_TYPE_WORDS = {
    "string": ("text", "value", "string", "entry"),
    "integer": ("value", "number", "setting"),
    "number": ("value", "number", "level"),
    "boolean": ("flag", "enabled", "option", "switch"),
    "array": ("list", "values", "items", "set"),
    "object": ("object", "settings", "fields", "data"),
}
_ANY_TYPE = ("value", "input", "param", "arg")
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
        at = next((index for index, word in enumerate(words[:3]) if _is_verb(word, index, len(words))), None)
        if at is None:
            return cls._of(words[:0], described_verb(spec.description), words)
        return cls._of(words[:at], CLASS_OF[words[at]], words[at + 1 :])

    @classmethod
    def _of(cls, prefix: tuple[str, ...], verb_class: str, body: tuple[str, ...]) -> NameParts:
        split = next((index for index in range(len(body) - 2, 0, -1) if body[index] in _CONNECTORS), None)
        if split is None or all(word in STOP_WORDS for word in body[:split]):
            return cls(prefix, verb_class, body, ())
        return cls(prefix, verb_class, body[:split], body[split + 1 :])


def _is_verb(word: str, index: int, n_words: int) -> bool:
    # "fold_change" and "drug_list" are nouns: a later word counts as a verb only where something follows it.
    return word in CLASS_OF and (index == 0 or index + 1 < n_words)


def described_verb(description: str) -> str:
    """The class of the verb with which a description begins, or ""."""
    word, _, behind = description.strip().partition(" ")
    # "Report of a submission" begins with a noun.
    if behind.split(" ", 1)[0] in _NOT_AFTER_VERBS:
        return ""
    return CLASS_OF.get(word.lower()) or CLASS_OF.get(stem(word), "")


def keywords(spec: ToolSpec, vocabulary: Vocabulary, n: int) -> tuple[str, ...]:
    """The ``n`` words of a description that other tools use least, in their order in it."""
    first = sentences(spec.description)[:1]
    words = [word for word in dict.fromkeys(text_words(first[0] if first else "")) if _tells(word)]
    words = words[1:] if words and words[0] in CLASS_OF else words
    rarest = sorted(words, key=lambda word: -vocabulary.rarity(stem(word)))[:n]
    return tuple(word for word in words if word in rarest)


def _tells(word: str) -> bool:
    return word not in STOP_WORDS and len(word) > 2 and word.isascii() and word.isalpha()


class NameWriter:
    """Makes names of tools. ``reserved`` (folded) are names that no version may have."""

    def __init__(self, vocabulary: Vocabulary, reserved: Collection[str]) -> None:
        self._vocabulary, self._reserved = vocabulary, reserved

    def write(self, spec: ToolSpec, choices: Choices, rng: random.Random, version: int, *, attempt: int = 0) -> str:
        """Another name of the tool: a valid identifier, short enough. Whether it is free, the checks say."""
        parts = NameParts.of(spec)
        required = spec.parameters.get("required")
        if not parts.key and parts.verb_class and isinstance(required, list) and len(required) == 1 and version % 2:
            parts = replace(parts, key=tuple(word.lower() for word in identifier_words(str(required[0]))))
        name = ""
        for turn in range(version + attempt, version + attempt + _TRIES):
            words = self._compose(spec, parts, choices, rng, turn)
            if attempt > 1:  # a few words have only so many orders
                words = rng.choice(_NEUTRAL).format(" ".join(words)).split()
            name = identifier(words)
            name = name[:MAX_NAME_LENGTH].rstrip("_")
            if name.casefold() not in self._reserved:
                break
        return name

    def _compose(self, spec: ToolSpec, parts: NameParts, choices: Choices, rng: random.Random, turn: int) -> list[str]:
        prefix = " ".join(parts.prefix)
        subject, key = (choices.apply(" ".join(words)) for words in (parts.subject, parts.key))
        opaque = len(parts.subject) + len(parts.key) < 2
        if opaque and (turn % 2 or not subject):
            # One word (esearch) has no synonyms: the description says what the tool is about.
            subject = choices.apply(" ".join(keywords(spec, self._vocabulary, rng.randint(2, 4)))) or subject
        subject, key = self._shortened(subject.replace("-", " "), key.replace("-", " "), rng)
        if not parts.verb_class:
            phrase = rng.choice(_NEUTRAL).format(" by ".join(text for text in (subject, key) if text))
        else:
            phrase = self._phrase(parts.verb_class, subject, key, rng, turn)
        if prefix:
            phrase = rng.choice(
                (f"{prefix} {phrase}", f"{prefix} {phrase}", f"{phrase} {prefix}", f"{phrase} in {prefix}")
            )
        words = phrase.split()
        if rng.random() < 0.3:
            words = [ABBREVIATIONS.get(word, word) for word in words]
        return words

    def _phrase(self, verb_class: str, subject: str, key: str, rng: random.Random, turn: int) -> str:
        verb = rng.choice(VERB_CLASSES[verb_class])
        noun = rng.choice(VERB_NOUNS.get(verb_class, ()) or (f"to {verb}",))
        if not subject:
            return rng.choice((f"{verb} {key}", f"{key} {noun}", f"{verb} by {key}"))
        if not key:
            return (f"{verb} {subject}", f"{subject} {noun}", f"{verb} the {subject}", f"{noun} of {subject}")[turn % 4]
        by = rng.choice(_BY)
        return (
            f"{verb} {subject} {by} {key}",
            f"{subject} {noun} {by} {key}",
            f"{key} to {subject}",
            f"{verb} {subject} {by} {key}",
            f"from {key} {verb} {subject}",
            f"{subject} {by} {key}",
            f"{key} based {subject} {noun}",
            f"{by} {key} {verb} {subject}",
        )[turn % 8]

    def _shortened(self, subject: str, key: str, rng: random.Random) -> tuple[str, str]:
        """Both, short enough for a name: of the longer one the words go that say least, which is partly chance."""
        while len(subject) + len(key) > _BODY_LENGTH:
            longer = max(subject, key, key=len)
            words = [ABBREVIATIONS.get(word, word) for word in longer.split()]
            if words == longer.split() and len(words) > 1:
                worth = [self._vocabulary.rarity(stem(word)) * _tells(word) + 0.3 * rng.random() for word in words]
                del words[worth.index(min(worth))]
            shorter = " ".join(words)
            if shorter == longer:
                break
            subject, key = (shorter, key) if longer == subject else (subject, shorter)
        return subject, key


def argument_names(properties: Mapping[str, object], choices: Choices, rng: random.Random) -> dict[str, str]:
    """Another name for each argument, or now and then the old one; one to one."""
    taken = {name.casefold() for name in properties}
    names: dict[str, str] = {}
    for old, schema in properties.items():
        options = _argument_options(old, schema, choices, rng)
        free = [name for name in options if name.casefold() not in taken and len(name) <= MAX_NAME_LENGTH]
        names[old] = old if not free or rng.random() < 0.15 else free[0]
        taken.add(names[old].casefold())
    return names


def _argument_options(old: str, schema: object, choices: Choices, rng: random.Random) -> list[str]:
    words = [word.lower() for word in identifier_words(old)]
    known = list(ARGUMENT_NAMES.get("_".join(words), ARGUMENT_NAMES.get(" ".join(words), ())))
    rng.shuffle(known)
    if known:
        return known
    plain = choices.apply(" ".join(words)).replace("-", " ").split()
    kind = schema.get("type") if isinstance(schema, dict) else None
    marks = _TYPE_WORDS.get(kind, _ANY_TYPE) if isinstance(kind, str) else _ANY_TYPE
    mark = rng.choice(marks)
    made = [["input", *plain], ["given", *plain], [*plain, "arg"]]
    if mark not in plain:
        made += [[*plain, mark], [*plain, mark]]
    if len(plain) == 2:
        made.append([plain[1], "of", plain[0]])
    made.append([ABBREVIATIONS.get(word, word) for word in plain])
    rng.shuffle(made)
    if identifier(plain) != old and rng.random() < 0.7:
        made.insert(0, plain)
    options = [identifier(item) for item in made]
    camel = any(letter.isupper() for letter in old[1:]) and "_" not in old
    return [_camel(name) for name in options] if camel and rng.random() < 0.4 else options


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
