"""Small pieces of HTML that every section is made of."""

from __future__ import annotations

from html import escape

# Characters that a page cannot hold are shown: control characters as their pictures, lone surrogates as U+FFFD.
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
_VISIBLE |= {0x7F: 0x2421} | dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)


def text(value: str) -> str:
    """``value`` escaped for HTML text and attributes, with the characters that a page cannot hold made visible."""
    return escape(value.translate(_VISIBLE), quote=True)


def count_of(number: int, what: str) -> str:
    """``1 step``, ``2,000 steps``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def fold(title: str, inner: str, kind: str = "fold") -> str:
    """Markup that is folded up under a title; both are markup already."""
    return f'<details class="{kind}"><summary>{title}</summary>{inner}</details>\n'


def note(value: str) -> str:
    """A remark under a section, or nothing."""
    return f'<p class="note">{text(value)}</p>' if value else ""
