"""Other names for tools and arguments, from the words of the old ones."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from txagent_train.core.records import ToolSpec
from txagent_train.data.schema_names import ArgumentNames
from txagent_train.data.spelling import MAX_NAME_LENGTH
from txagent_train.toolsmith.lexicon import (
    ABBREVIATIONS,
    ARGUMENT_NAMES,
    GENERIC_NOUNS,
    NEUTRAL,
    VERB_CLASSES,
    VERB_NOUNS,
)
from txagent_train.toolsmith.nameparts import CLASS_OF, NameParts
from txagent_train.toolsmith.namewords import NameWords
from txagent_train.toolsmith.synonyms import Choices, Vocabulary, properties
from txagent_train.toolsmith.words import (
    STOP_WORDS,
    identifier,
    identifier_words,
    sentences,
    stem,
    text_words,
)

_TRIES = 6
_BODY_LENGTH = MAX_NAME_LENGTH - 22
"""Characters for what a name is about; the rest is for the verb and what joins them."""
_BY = ("by", "from", "using", "given", "via", "with", "based_on", "for")
_TYPE_WORDS = {
    "string": ("text", "value", "string", "entry"),
    "integer": ("value", "number", "setting"),
    "number": ("value", "number", "level"),
    "boolean": ("flag", "enabled", "option", "switch"),
    "array": ("list", "values", "items", "set"),
    "object": ("object", "settings", "fields", "data"),
}
_ANY_TYPE = ("value", "input", "param", "arg")


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
        self._words: dict[str, NameWords] = {}

    def write(self, spec: ToolSpec, choices: Choices, rng: random.Random, version: int, *, attempt: int = 0) -> str:
        """Another name of the tool: a valid identifier, short enough, that says what it is about.

        Whether it is free, the checks say. Where no order of the words fits, the last one is cut, for them to refuse.
        """
        parts = NameParts.of(spec)
        required = spec.parameters.get("required")
        derived: tuple[str, ...] = ()
        if not parts.key and parts.verb_class and isinstance(required, list) and len(required) == 1 and version % 2:
            derived = tuple(word.lower() for word in identifier_words(str(required[0])))
        kept = self._words.get(spec.name) or self._words.setdefault(spec.name, NameWords.of(spec))
        name = ""
        for turn in range(3 * _TRIES):
            if turn < 2 * _TRIES and (turn < _TRIES or rng.random() < 0.5):
                asked = replace(parts, key=derived) if derived and turn < _TRIES // 2 else parts
                words = self._compose(spec, asked, choices, rng, version + attempt + turn)
            else:
                words = _compact(parts, rng)
            if attempt > 1:  # a few words have only so many orders
                words = rng.choice(NEUTRAL).format(" ".join(words)).split()
            name = identifier(words)
            if len(name) <= MAX_NAME_LENGTH and name.casefold() not in self._reserved and not kept.lost(name):
                return name
        return name[:MAX_NAME_LENGTH].rstrip("_")

    def _compose(self, spec: ToolSpec, parts: NameParts, choices: Choices, rng: random.Random, turn: int) -> list[str]:
        prefix = " ".join(parts.prefix)
        plain = Body(parts.subject, parts.key)
        body = Body(*(tuple(_joined(choices, words)) for words in (parts.subject, parts.key)))
        opaque = len(parts.subject) + len(parts.key) < 2
        if opaque and (turn % 2 or not body.subject):
            # One word (esearch) has no synonyms: the description says what the tool is about.
            found = keywords(spec, self._vocabulary, rng.randint(2, 4))
            found = tuple(word for word in found if word not in parts.prefix)
            body = replace(body, subject=tuple(_joined(choices, found)) or body.subject)
        subject, key = self._shortened(body, plain, _BODY_LENGTH - len(prefix), rng).texts
        if not parts.verb_class:
            phrase = rng.choice(NEUTRAL).format(" by ".join(text for text in (subject, key) if text))
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

    def _shortened(self, body: Body, plain: Body, room: int, rng: random.Random) -> Body:
        """The body, short enough: by abbreviations, then the tool's own words (``plain``), then those that say least.

        In the end the words go that most tools have, which is partly chance.
        """
        changes = (Body.abbreviated, plain.as_longer_of, plain.as_longer_of, Body.abbreviated, Body.without_idle_words)
        for change in changes:
            if body.length <= room:
                return body
            body = change(body)
        while body.length > room:
            side = body.longer
            if len(side) < 2:
                break
            worth = [self._vocabulary.rarity(stem(word)) * _tells(word) + 0.3 * rng.random() for word in side]
            least = worth.index(min(worth))
            body = body.with_longer((*side[:least], *side[least + 1 :]))
        return body


@dataclass(frozen=True, slots=True)
class Body:
    """What a name is about: the words of its subject, and of what it goes by."""

    subject: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, str]:
        return " ".join(self.subject), " ".join(self.key)

    @property
    def length(self) -> int:
        return sum(map(len, self.texts))

    @property
    def longer(self) -> tuple[str, ...]:
        """The side with more letters."""
        subject, key = self.texts
        return self.subject if len(subject) >= len(key) else self.key

    def with_longer(self, words: tuple[str, ...]) -> Body:
        """Other words in place of the longer side."""
        return Body(words, self.key) if self.longer is self.subject else Body(self.subject, words)

    def as_longer_of(self, body: Body) -> Body:
        """The body with these words on its longer side."""
        return body.with_longer(self.subject if body.longer is body.subject else self.key)

    def abbreviated(self) -> Body:
        """Known abbreviations in place of words."""
        return Body(*(tuple(ABBREVIATIONS.get(word, word) for word in side) for side in (self.subject, self.key)))

    def without_idle_words(self) -> Body:
        """Without words that say nothing, as far as a side has others; and what both sides say is said once."""
        sides: list[tuple[str, ...]] = []
        for side in (self.subject, self.key):
            kept = [word for word in dict.fromkeys(side) if word not in STOP_WORDS and stem(word) not in GENERIC_NOUNS]
            said = sides[0] if sides else ()
            sides.append(tuple(word for word in kept if word not in said) or tuple(kept) or side)
        return Body(*sides)


def _compact(parts: NameParts, rng: random.Random) -> list[str]:
    """The telling words of a name and little else: for one that leaves hardly any room."""
    body = Body(parts.subject, parts.key).without_idle_words()
    subject, key = (body.abbreviated() if rng.random() < 0.5 else body).texts
    verb = min(rng.choices(VERB_CLASSES.get(parts.verb_class, ("use",)), k=3), key=len)
    joined = rng.choice((f"{subject} by {key}", f"{key} to {subject}", f"{subject} {key}")) if key else subject
    return [*parts.prefix, *rng.choice((f"{verb} {joined}", joined, f"{joined} tool")).split()]


def _joined(choices: Choices, words: Sequence[str]) -> list[str]:
    return choices.apply(" ".join(words)).replace("-", " ").split()


def argument_names(spec: ToolSpec, choices: Choices, rng: random.Random) -> dict[str, str]:
    """Another name for each argument, or now and then the old one; one to one. Some have to keep it (Literals)."""
    kept, known = choices.literals.kept, ArgumentNames.of(spec.parameters).known
    taken = {name.casefold() for name in known}
    names: dict[str, str] = {}
    for old, schema in properties(spec).items():
        options = [] if old in kept else _argument_options(old, schema, choices, rng)
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
    plain = _joined(choices, words)
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
