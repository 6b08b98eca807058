"""What names and texts of tools may be made of, so that every server and every file takes them."""

from __future__ import annotations

import keyword
import re

MAX_NAME_LENGTH = 64
"""What many clients allow for the name of a tool."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def is_valid_name(name: str) -> bool:
    """Whether every client takes the name: ASCII, no keyword, at most MAX_NAME_LENGTH characters."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and len(name) <= MAX_NAME_LENGTH


def text_fault(text: str) -> str:
    """What is in a text that no file or prompt should hold, in words, or "".

    JSON can spell half a character (``\\ud83d``), which UTF-8 cannot, and characters that steer a terminal.
    """
    if _SURROGATE.search(text):
        return "half of a surrogate pair, which is no character"
    found = _CONTROL.search(text)
    return f"the control character {found.group()!a}" if found else ""
