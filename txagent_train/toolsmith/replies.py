"""Reading what a teacher wrote: tolerant about the wrapping, strict about what is in it; never raises."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from txagent_train.data.rewrites import ArgumentRewrite
from txagent_train.data.spelling import text_fault
from txagent_train.toolsmith.drafts import Draft, NoDraft, Written

_NUMBER = re.compile(r"(?<!\d)\d{1,9}(?!\d)")
_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
# A number of thousands of digits is no reason to read none of the text: it stays text.
_DECODER = json.JSONDecoder(parse_int=lambda digits: int(digits) if len(digits) < _MANY_DIGITS else digits)
_MANY_DIGITS = 20
_SHOWN = 200


def read_reply(text: str, wanted: Sequence[int]) -> Mapping[int, Written] | NoDraft:
    """The versions in a reply, by number. Versions without a number are taken in the order they were asked for.

    The JSON may be fenced, follow other words, be a bare list or a single version.
    """
    value = _first_json(_THINK.sub("", text))
    if isinstance(value, dict) and isinstance(value.get("versions"), (list, dict)):
        value = value["versions"]
    elif isinstance(value, dict) and "name" in value:
        value = [value]
    if isinstance(value, dict):  # {"1": {...}, "2": {...}}
        value = [item | {"version": key} for key, item in value.items() if isinstance(item, dict)]
    if not isinstance(value, list) or not value:
        return NoDraft("unreadable_reply", _excerpt(text))
    items = [item for item in value if isinstance(item, dict)]
    numbered = {_number(item.get("version")) for item in items} >= set(wanted)
    numbers = [_number(item.get("version")) for item in items] if numbered else wanted
    return {number: _draft(item) for number, item in zip(numbers, items, strict=False) if number is not None}


def _first_json(text: str) -> Any:
    """The first object or list in a text that is whole, or None."""
    for start in re.finditer(r"[\[{]", text):
        try:
            return _DECODER.raw_decode(text, start.start())[0]
        except ValueError:
            continue
        except RecursionError:
            return None  # what stands inside is as deep
    return None


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    found = _NUMBER.search(str(value))
    return int(found.group()) if found else None


def _draft(item: dict[str, Any]) -> Written:
    name, description, arguments = item.get("name"), item.get("description"), _arguments(item.get("arguments", {}))
    if not isinstance(name, str) or not isinstance(description, str) or arguments is None:
        return _unreadable(item)
    texts = [name, description, *(text for old, new in arguments.items() for text in (old, new.name, new.description))]
    # Half characters and control characters are no text: no file and no prompt takes them.
    if any(map(text_fault, texts)):
        return _unreadable(item)
    return Draft(name.strip(), description.strip(), arguments)


def _arguments(value: Any) -> dict[str, ArgumentRewrite] | None:
    """The arguments by original name, or None where they cannot be read."""
    pairs = list(value.items()) if isinstance(value, dict) else None
    if isinstance(value, list):  # [{"original": ..., "name": ..., "description": ...}]
        pairs = [(item.get("original") if isinstance(item, dict) else None, item) for item in value]
    if pairs is None:
        return None
    read: dict[str, ArgumentRewrite] = {}
    for old, argument in pairs:
        if not isinstance(old, str) or not isinstance(argument, dict) or old in read:
            return None
        new, about = argument.get("name"), argument.get("description") or ""
        if not isinstance(new, str) or not isinstance(about, str):
            return None
        read[old] = ArgumentRewrite(new.strip(), about.strip())
    return read


def _unreadable(item: dict[str, Any]) -> NoDraft:
    try:
        return NoDraft("unreadable_version", _excerpt(json.dumps(item)))
    except RecursionError:
        return NoDraft("unreadable_version", "nested too deeply")


def _excerpt(text: str) -> str:
    """The beginning of a text, in characters that any file takes."""
    return text[:_SHOWN].encode("utf-8", "backslashreplace").decode()
