"""Identifiers and sentences taken apart into words and put together again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_STOP_WORDS = (
    "a about all also an and any are as at based be been but by can each either for from given has have how if in "
    "including into is it its like may must new no not of on one only onto or other s such that the their them then "
    "these they this those through to up use used uses using via was what when where whether which while who will "
    "with within without you your e g etc per"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that say nothing about what a tool is for."""

_ONE_WORD = frozenset({"PubMed", "PubChem", "UniProt", "PharmGKB", "ClinVar", "DrugBank", "OpenTargets", "DailyMed"})
# A capital begins a word where small letters follow it; so does the ID at the end of a part.
_WORD_START = re.compile(r"(?<=[a-z\d])(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z]{2})|(?<=[a-z])(?=IDs?$)")
_CONTROL = re.compile(r"[^\S\t\n ]|[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<!al\.)\s+(?=[A-Z(])")


@lru_cache(maxsize=65536)
def identifier_words(name: str) -> tuple[str, ...]:
    """``get_drugNames_by_HPO_ID`` -> get, drug, Names, by, HPO, ID; a single first letter (``cBio``) is no word."""
    words: list[str] = []
    for part in re.split(r"[\W_]+", name):
        found = [part] if part in _ONE_WORD else _WORD_START.split(part)
        words += ["".join(found[:2]), *found[2:]] if len(found[0]) == 1 else found
    return tuple(word for word in words if word)


def identifier(words: Sequence[str]) -> str:
    """The words as a valid identifier in snake case."""
    name = re.sub(r"[\W_]+", "_", "_".join(words), flags=re.ASCII).strip("_")
    return f"n_{name}" if not name or name[0].isdigit() else name


def text_words(text: str) -> list[str]:
    """The words of a text in lower case; identifiers in it are taken apart."""
    return [word.lower() for found in re.findall(r"\w+", text) for word in identifier_words(found)]


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The word without the ending of a plural: ``studies`` and ``study`` are one."""
    word = word.lower()
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def content_words(text: str) -> set[str]:
    """Stems of the words that say what a text is about."""
    return {stem(word) for word in text_words(text) if word not in STOP_WORDS and len(word) > 1}


def one_line(text: str) -> str:
    """The text with one space for every stretch of white space, of whatever kind; control characters count as such.

    In a text of several lines (a list, code) the lines stay as they are, but for such characters.
    """
    cleaned = _CONTROL.sub(" ", text).strip()
    return cleaned if "\n" in cleaned else " ".join(cleaned.split())


def sentences(text: str) -> list[str]:
    """The sentences of a text; one with a list or code in it (a line break) is left whole."""
    text = text.strip()
    if "\n" in text:
        return [text]
    return [part for part in _SENTENCE_END.split(text) if part]


def capitalised(text: str) -> str:
    """The text with a capital first letter; an identifier that begins it (``efoId``) stays as it is."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    return text if "_" in first or first[1:] != first[1:].lower() else text[:1].upper() + text[1:]


def plural(phrase: str) -> str:
    """The phrase with its last word in the plural."""
    if phrase.endswith(("s", "data", "information")) and not phrase.endswith(("ss", "us")):
        return phrase
    if phrase.endswith("y") and phrase[-2:-1] not in "aeiou":
        return phrase[:-1] + "ies"
    return phrase + ("es" if phrase.endswith(("s", "x", "ch", "sh")) else "s")
