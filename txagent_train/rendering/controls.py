"""Control strings, and how text that is not ours is kept from acting as one.

A control string is a piece of text that the tokenizer turns into one token id by its own rule (special or merely
added), or a marker of a call syntax. Inside foreign text (questions, tool results, thoughts, descriptions) each
occurrence is broken after its first character:

- plain text gets a space: ``<|eot_id|>`` -> ``< |eot_id|>``. Such text is only ever read.
- JSON text gets a JSON escape: ``<tool_call>`` -> ``\\u003ctool_call>``. It parses back to what it was.

The chat template does the same replacements, in the same order, so that a server renders what was trained on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from txagent_train.core.errors import ModelError
from txagent_train.rendering.tokenizer import TextTokenizer

_FAMILY_SIZE = 4
_JSON_STRUCTURE = set('{}[],:" \t\n\r\\0123456789+-.eEtruefalsn')


def _collapse_families(strings: Iterable[str]) -> list[str]:
    """Replace numbered families (``<|reserved_special_token_17|>``) by their common beginning.

    Llama-3.1 has 248 of them; the template would carry, and search for, every single one.
    """
    families: dict[str, list[str]] = defaultdict(list)
    out: list[str] = []
    for string in strings:
        match = re.fullmatch(r"(.*?\D)(\d+)(\D*)", string)
        if match and len(match[1]) > 2:
            families[match[1]].append(string)
        else:
            out.append(string)
    for beginning, members in families.items():
        out.extend([beginning] if len(members) >= _FAMILY_SIZE else members)
    return out


def tokenizer_controls(tokenizer: TextTokenizer) -> list[str]:
    """The control strings of a tokenizer. White space tokens (some vocabularies add runs of it) are plain text."""
    contents = {str(token.content) for token in tokenizer.added_tokens_decoder.values()}
    contents |= {str(token) for token in tokenizer.all_special_tokens}
    return _collapse_families(sorted(content for content in contents if content.strip()))


@dataclass(frozen=True, slots=True)
class Neutraliser:
    """Breaks control strings in text; counts nothing itself but says how many it broke.

    ``plain`` and ``json`` are the replacement pairs in the order of application; ``finder`` finds any of them.
    """

    plain: tuple[tuple[str, str], ...]
    json: tuple[tuple[str, str], ...]
    finder: re.Pattern[str]

    @classmethod
    def of(cls, controls: Sequence[str]) -> Neutraliser:
        """Build it for a set of control strings, longest first.

        Inserting a space can neither create a control string nor leave one behind if none of them holds a space
        and none overlaps itself; that is checked here, so that one pass of replacements is a fixed point.

        Raises:
            ModelError: a control string is too short or of a shape that this scheme cannot break.
        """
        ordered = sorted(set(controls), key=lambda text: (-len(text), text))
        for text in ordered:
            overlaps = any(text.startswith(text[-size:]) for size in range(1, len(text)))
            if len(text) < 2 or " " in text or overlaps or set(text) <= _JSON_STRUCTURE:
                raise ModelError(
                    f"the tokenizer's token {text!r} cannot be kept apart from ordinary text",
                    fix="use a tokenizer whose special tokens are longer and have no spaces",
                )
        return cls(
            plain=tuple((text, f"{text[0]} {text[1:]}") for text in ordered),
            json=tuple((text, f"\\u{ord(text[0]):04x}{text[1:]}") for text in ordered),
            finder=re.compile("|".join(re.escape(text) for text in ordered)),
        )

    def _apply(self, text: str, pairs: tuple[tuple[str, str], ...]) -> tuple[str, int]:
        # One regex search spares clean text, which is nearly all of it, from a replacement per control string.
        if not self.finder.search(text):
            return text, 0
        found = 0
        for old, new in pairs:
            found += text.count(old)
            text = text.replace(old, new)
        return text, found

    def clean(self, text: str) -> tuple[str, int]:
        """Plain text with its control strings broken, and how many there were."""
        return self._apply(text, self.plain)

    def clean_json(self, text: str) -> tuple[str, int]:
        """JSON text with the control strings in its string values escaped, and how many there were."""
        return self._apply(text, self.json)


def well_formed(text: str) -> str:
    """The text with lone surrogates, which no tokenizer and no HTTP request can carry, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def well_formed_json(value: Any) -> Any:
    """A JSON value with every string in it, keys included, well formed."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [well_formed_json(item) for item in value]
    if isinstance(value, dict):
        return {well_formed(key): well_formed_json(item) for key, item in value.items()}
    return value
