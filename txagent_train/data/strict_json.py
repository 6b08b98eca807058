"""JSON texts read strictly: what two programs could read in two ways is refused."""

from __future__ import annotations

import json
from typing import Any

from txagent_train.core.records import JsonObject


def strict_loads(text: str) -> Any:
    """The JSON value of a text. Stricter than json.loads: no NaN or Infinity, no key twice in one object.

    Raises:
        ValueError: says what is wrong, in words for the user.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> JsonObject:
    out = dict(pairs)
    if len(out) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return out


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON; write null, or leave the key out")
