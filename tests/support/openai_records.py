"""Records of the OpenAI format for tests, and files of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_dose",
            "description": "The usual dose of a drug.",
            "parameters": {
                "type": "object",
                "properties": {"drug": {"type": "string"}, "rows": {"type": "integer"}},
                "required": ["drug"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "list_drugs", "description": "", "parameters": {"type": "object", "properties": {}}},
    },
]


def call(name: str = "get_dose", arguments: Any = '{"drug": "ibuprofen"}', id: str | None = "c1") -> dict[str, Any]:
    """A call as it stands in tool_calls."""
    function = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return function if id is None else {"id": id, **function}


def user(content: Any = "How much ibuprofen?") -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = None, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = list(calls)
    return {**message, **more}


def tool(content: Any = '{"dose": "200 mg"}', id: str | None = "c1", **more: Any) -> dict[str, Any]:
    message = {"role": "tool", "content": content}
    return {**message, **({} if id is None else {"tool_call_id": id}), **more}


def record(id: Any = "t1", messages: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    """A sound record: one call, its result, an answer. Any part can be replaced."""
    if messages is None:
        messages = [user(), assistant("Look it up.", call()), tool(), assistant("200 mg.")]
    out = {"messages": messages, "tools": TOOLS, **more}
    return out if id is None else {"id": id, **out}


def write_lines(path: Path, records: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in records), encoding="utf-8")
    return path
