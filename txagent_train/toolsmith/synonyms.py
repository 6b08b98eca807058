"""Synonyms that keep a tool apart from its neighbours, chosen once for each version of it."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from txagent_train.core.records import ToolSpec
from txagent_train.toolsmith.lexicon import GENERIC, SYNONYMS
from txagent_train.toolsmith.words import capitalised, content_words, plural

if TYPE_CHECKING:
    from txagent_train.toolsmith.literals import Literals

KEEP = 0.3
"""Chance that a word stays as it is."""
KEEP_MORE = 0.15
"""Added to it with each attempt: what was refused should come closer to the original."""

_FORMS = {form: key for key in SYNONYMS for form in (plural(key), key)}
# With the article before it, which must go with what stands for the phrase.
_PHRASE = re.compile(
    r"(?<![\w'-])(?P<article>an? )?(?P<phrase>"
    + "|".join(re.escape(form) for form in sorted(_FORMS, key=len, reverse=True))
    + r")(?![\w'-])",
    re.IGNORECASE,
)


def spec_text(spec: ToolSpec) -> str:
    """All that a model reads of a tool, as one text."""
    parts = [spec.name, spec.description]
    for name, schema in properties(spec).items():
        parts += [name, argument_description(schema)]
    return ". ".join(parts)


def properties(spec: ToolSpec) -> dict[str, object]:
    """The arguments of a tool, by name."""
    found = spec.parameters.get("properties")
    return found if isinstance(found, dict) else {}


def argument_description(schema: object) -> str:
    """The description in the schema of an argument, or ""."""
    text = schema.get("description") if isinstance(schema, dict) else None
    return text if isinstance(text, str) else ""


class Vocabulary:
    """Which tools of a toolbox use which words."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self._own: dict[str, set[str]] = {}
        self._users: dict[str, set[str]] = defaultdict(set)
        for spec in specs:
            self._own[spec.name] = content_words(spec_text(spec))
            for word in self._own[spec.name]:
                self._users[word].add(spec.name)
        self._allowed: dict[tuple[str, str], bool] = {}

    def allows(self, tool: str, phrase: str) -> bool:
        """Whether a version of the tool may say this: no word of it is one by which another tool is known."""
        known = self._allowed.get((tool, phrase))
        if known is None:
            words = content_words(phrase) - GENERIC - self._own[tool]
            known = self._allowed[tool, phrase] = not any(word in self._users for word in words)
        return known

    def rarity(self, word: str) -> float:
        """From 0 (every tool uses the word) to 1 (at most one does)."""
        return 1 - (len(self._users.get(word, ())) - 1) / max(len(self._own) - 1, 1)


class Choices:
    """One version's choice of synonyms: a word that occurs twice is replaced alike."""

    def __init__(
        self, vocabulary: Vocabulary, tool: str, literals: Literals, rng: random.Random, *, attempt: int = 0
    ) -> None:
        self.literals = literals
        self._vocabulary, self._tool, self._rng = vocabulary, tool, rng
        self._keep = KEEP + KEEP_MORE * attempt
        self._chosen: dict[str, str] = {}

    def of(self, key: str) -> str:
        """What stands for an entry of SYNONYMS in this version."""
        if key not in self._chosen:
            allowed = [phrase for phrase in SYNONYMS[key] if self._vocabulary.allows(self._tool, phrase)]
            keep = not allowed or self._rng.random() < self._keep
            self._chosen[key] = key if keep else self._rng.choice(allowed)
        return self._chosen[key]

    def apply(self, text: str) -> str:
        """The text with its words replaced; what is literal in it stays."""
        parts, end = [], 0
        for start, stop in self.literals.protected(text):
            parts += [self._replaced(text[end:start]), text[start:stop]]
            end = stop
        return "".join([*parts, self._replaced(text[end:])])

    def _replaced(self, text: str) -> str:
        return _PHRASE.sub(self._substitute, text)

    def _substitute(self, found: re.Match[str]) -> str:
        article, text = found["article"] or "", found["phrase"]
        if text.isupper():  # an abbreviation (ID) is no word of the lexicon
            return found[0]
        form = text.lower()
        key = _FORMS[form]
        chosen = self.of(key)
        if chosen == key:
            return found[0]
        chosen = plural(chosen) if form != key else chosen
        chosen = capitalised(chosen) if text[0].isupper() else chosen
        before = found.string[: found.start()].rstrip()
        # A capital A in the midst of a sentence is none: "vitamin A deficiency".
        is_article = article.islower() or not before or before.endswith((".", "!", "?", ":"))
        return (_article_for(article, chosen) if is_article else article) + chosen


def _article_for(article: str, phrase: str) -> str:
    """``a`` or ``an`` as the phrase wants it; ``u`` and ``h`` may sound either way and leave it as it is."""
    if not article or phrase[0].lower() in "uh":
        return article
    return article[0] + ("n " if phrase[0].lower() in "aeio" else " ")
