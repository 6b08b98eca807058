"""Whether a free-text answer gives the short gold answer.

The gold answer must stand in the answer as a run of whole tokens after both are normalised:

- case, compatibility forms (NFKC), punctuation, white space and articles are ignored, but not the A of "vitamin A";
- numbers are compared by value: "1,000" = "1000", "0.50" = ".5";
- units may be spelt out or stand against their number: "500mg" = "500 milligrams", and masses are brought to mg:
  "0.5 g" = "500 mg";
- for the gold answers "yes" and "no" the first of the two words in the answer decides.

It is a test of mention: it does not read negations. Questions whose gold answer could be named in passing
need a judge.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal

_TOKEN = re.compile(
    r"""
    # A dash before a number is a sign only where it does not join it to something (5-10, type-2).
    (?P<number> (?:(?<![\w.])-)? (?: (?:\d{1,3}(?:,\d{3})+(?!,?\d)|\d+)(?:\.\d+)? | (?<!\w)\.\d+ ) )
    | (?P<percent> %)
    | (?P<word> [^\W\d_]+(?:'[^\W\d_]+)? )
    """,
    re.VERBOSE,
)
_IGNORED = frozenset({"an", "the", "per"})
_PERIODS = frozenset({"min", "h", "day", "week", "month", "year"})
_UNITS = {
    **dict.fromkeys(("milligram", "milligrams", "mgs"), "mg"),
    **dict.fromkeys(("microgram", "micrograms", "ug", "μg"), "mcg"),
    **dict.fromkeys(("gram", "grams", "gm"), "g"),
    **dict.fromkeys(("kilogram", "kilograms", "kgs"), "kg"),
    **dict.fromkeys(("millilitre", "millilitres", "milliliter", "milliliters"), "ml"),
    **dict.fromkeys(("litre", "litres", "liter", "liters"), "l"),
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), "h"),
    **dict.fromkeys(("minute", "minutes", "mins"), "min"),
    **dict.fromkeys(("percent", "%"), "percent"),
    "days": "day",
    "weeks": "week",
    "months": "month",
    "years": "year",
}
_IN_MG = {"mcg": Decimal("0.001"), "mg": Decimal(1), "g": Decimal(1000), "kg": Decimal(1_000_000)}


def answer_tokens(text: str) -> list[str]:
    """The normalised tokens of a text."""
    text = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    text = re.sub("[\u2010-\u2015\u2212]", "-", text)
    tokens: list[str] = []
    number: Decimal | None = None
    for match in _TOKEN.finditer(text):
        if match["number"]:
            number = Decimal(match["number"].replace(",", ""))
            tokens.append(_plain(number))
            continue
        word = _UNITS.get(match[0], match[0].removesuffix("'s"))
        if word in _IGNORED:
            continue
        if word in _PERIODS and tokens[-1:] == ["a"]:
            tokens.pop()  # "5 mg a day" is "5 mg per day"
        if number is not None and word in _IN_MG:
            tokens[-1:] = [_plain(number * _IN_MG[word]), "mg"]
        else:
            tokens.append(word)
        number = None
    return tokens


def _plain(number: Decimal) -> str:
    """Without trailing zeros and without an exponent."""
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def answer_matches(answer: str, gold: str | Sequence[str]) -> bool:
    """Whether ``answer`` gives ``gold``; of several gold spellings one is enough.

    Raises:
        ValueError: a gold answer has no token, so that nothing could be compared.
    """
    tokens = answer_tokens(answer)
    return any(_gives(tokens, spelling) for spelling in ((gold,) if isinstance(gold, str) else gold))


def _gives(tokens: list[str], gold: str) -> bool:
    wanted = answer_tokens(gold)
    if len(wanted) > 1 and wanted[0] == "a":
        wanted = wanted[1:]
    if not wanted:
        raise ValueError(f"the gold answer {gold!r} has no word and no number")
    if wanted in (["yes"], ["no"]):
        return next((token for token in tokens if token in ("yes", "no")), None) == wanted[0]
    return any(tokens[start : start + len(wanted)] == wanted for start in range(len(tokens) - len(wanted) + 1))
