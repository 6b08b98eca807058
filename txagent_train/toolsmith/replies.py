"""Reading what a teacher wrote: tolerant about the wrapping, strict about what is in it; never raises."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from txagent_train.data.rewrites import ArgumentRewrite
from txagent_train.toolsmith.drafts import Draft, NoDraft, Written

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
_DECODER = json.JSONDecoder()
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
        return NoDraft("unreadable_reply", text[:_SHOWN])
    items = [item for item in value if isinstance(item, dict)]
    numbered = {_number(item.get("version")) for item in items} >= set(wanted)
    numbers = [_number(item.get("version")) for item in items] if numbered else wanted
    return {number: _draft(item) for number, item in zip(numbers, items, strict=False) if number is not None}


def _first_json(text: str) -> Any:
    """The first object or list in a text that is whole, or None."""
    for start in re.finditer(r"[\[{]", text):
        try:
            return _DECODER.raw_decode(text, start.start())[0]
        except (ValueError, RecursionError):
            continue
    return None


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    found = re.search(r"\d+", str(value))
    return int(found.group()) if found else None


def _draft(item: dict[str, Any]) -> Written:
    name, description, arguments = item.get("name"), item.get("description"), item.get("arguments", {})
    if isinstance(arguments, list):  # [{"original": ..., "name": ..., "description": ...}]
        arguments = {argument.get("original"): argument for argument in arguments if isinstance(argument, dict)}
    if not isinstance(name, str) or not isinstance(description, str) or not isinstance(arguments, dict):
        return NoDraft("unreadable_version", json.dumps(item)[:_SHOWN])
    read: dict[str, ArgumentRewrite] = {}
    for old, argument in arguments.items():
        new, about = (argument.get("name"), argument.get("description") or "") if isinstance(argument, dict) else (0, 0)
        if not isinstance(old, str) or not isinstance(new, str) or not isinstance(about, str):
            return NoDraft("unreadable_version", json.dumps(item)[:_SHOWN])
        read[old] = ArgumentRewrite(new.strip(), about.strip())
    return Draft(name.strip(), description.strip(), read)
