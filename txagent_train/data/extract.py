"""A short summary of a tool result, made of its own words: offline, deterministic, in linear time.

The parts of a result (the sentences of a text, the ``key: value`` leaves of JSON) are scored by the words that they
share with what was asked and with what was made of the result next; a word that few parts hold counts more (inverse
document frequency within the result). The best parts are kept in their order. Nothing is reworded, so nothing can be
made up.
"""

from __future__ import annotations

import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from txagent_train.core.records import Json

SUMMARY_CHARACTERS = 240
_MOST_PARTS = 6
_USED_WEIGHT = 3.0
_WORD = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile("(?<=[.!?])\\s+|(?<=[\u3002\uff01\uff1f])|\n+")  # the three of Chinese and Japanese too
_ELLIPSIS = "…"

_Part = tuple[str, str]
"""The key that a part stands under ("" in plain text), and its text."""


def extract(content: Json, about: str, used: str = "", *, limit: int = SUMMARY_CHARACTERS) -> str:
    """The parts of a result that say most about what was asked, and above all those that were used.

    Args:
        about: what was asked. A result often repeats it, and then says nothing new.
        used: what was made of the result next: a name or a number in it that the question does not hold came from here.

    Returns:
        At most ``limit`` characters, and never more than the result itself; "" where it holds no words.
    """
    original = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    parts = list(dict.fromkeys(_parts(content)))  # what is said twice is kept once
    summary = _cut(_joined(_within(parts, _ranking(parts, about, used), limit)), limit)
    return min(summary, original, key=len)


def _parts(content: Json) -> Iterator[_Part]:
    for key, leaf in _leaves(_decoded(content)):
        for sentence in _SENTENCE_END.split(leaf):
            text = " ".join(sentence.split())
            if text:
                yield key, text


def _decoded(content: Json) -> Json:
    """JSON that a tool gave as text, as JSON; anything else as it is."""
    if not isinstance(content, str) or not content.lstrip().startswith(("{", "[")):
        return content
    try:
        value: Json = json.loads(content)
    except (ValueError, RecursionError):
        return content
    return value


def _leaves(content: Json) -> Iterator[_Part]:
    """The leaves in their order, each under its last two keys; what is in a list of objects, under its own only.

    With a stack of its own: results may be nested deeper than Python calls.
    """
    stack: list[tuple[tuple[str, ...], Json]] = [((), content)]
    while stack:
        keys, value = stack.pop()
        if isinstance(value, dict):
            stack.extend(((*keys[-1:], key), item) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            stack.extend(((), item) if isinstance(item, dict) else (keys, item) for item in reversed(value))
        elif value is not None:
            yield ".".join(keys), value if isinstance(value, str) else json.dumps(value)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _ranking(parts: Sequence[_Part], about: str, used: str) -> list[int]:
    """The best parts, best first: those that score at least half as much as the best one.

    Long parts share more words by mere length, so a score is per root of the length. Where no part shares a word, all
    score nothing, and the first ones lead.
    """
    found = _words(used) - _words(about)
    wanted = _words(about) | found
    words = [_words(f"{key} {text}") for key, text in parts]
    spread = Counter(word for own in words for word in own & wanted)
    weights = {word: math.log(1 + len(parts) / count) for word, count in spread.items()}
    weights |= {word: _USED_WEIGHT * weights[word] for word in found & weights.keys()}

    def score(index: int) -> float:
        shared = words[index] & wanted
        # fsum: a set has no fixed order, and a sum of floats must not depend on it.
        return math.fsum(weights[word] for word in shared) / math.sqrt(len(words[index])) if shared else 0.0

    scores = [score(index) for index in range(len(parts))]
    enough = max(scores, default=0.0) / 2
    good = (index for index, own in enumerate(scores) if own >= enough)
    return heapq.nsmallest(_MOST_PARTS, good, key=lambda index: (-scores[index], index))


def _within(parts: Sequence[_Part], ranking: Sequence[int], limit: int) -> list[_Part]:
    """As many of the ranked parts as fit, the best in any case; in the order of the result."""
    kept = list(ranking[:1])
    for index in ranking[1:]:
        if len(_joined([parts[other] for other in sorted([*kept, index])])) <= limit:
            kept.append(index)
    return [parts[index] for index in sorted(kept)]


def _joined(parts: Sequence[_Part]) -> str:
    """``key: one, two; other: three``, and sentences without a key one after the other."""
    runs = []
    for key, run in groupby(parts, key=lambda part: part[0]):
        texts = [text for _, text in run]
        runs.append(f"{key}: {', '.join(texts)}" if key else " ".join(texts))
    return "; ".join(runs)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + _ELLIPSIS
