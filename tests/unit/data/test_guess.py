from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.openai_records import assistant, call, record, tool, user, write_lines
from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, Trace, UserMessage
from txagent_train.data.importers import IMPORTERS, resolved_format
from txagent_train.data.importers.guess import guess_format

OLDER = {"name": "f", "arguments": "{}"}
BLOCK = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
HI = [user("Hi."), assistant("Hello.")]
TURNS = [{"from": "human", "value": "Hi."}, {"from": "gpt", "value": "Hello."}]

KNOWN: dict[str, tuple[str, list[Any]]] = {
    "native": ("native", [trace_to_json(Trace("t", (UserMessage("?"), Step(thought="Hm."))))]),
    "openai": ("openai", [record()]),
    "chat": ("openai", [{"messages": HI}]),
    "messages as text": ("openai", [{"messages": json.dumps(record()["messages"])}]),
    "no messages at all": ("openai", [{"messages": []}]),
    "older calls with functions of their own": (
        "openai",
        [{"messages": [user(), assistant(function_call=OLDER)], "functions": [{"name": "f"}]}],
    ),
    "older calls without functions": ("openai", [{"messages": [user(), assistant(function_call=OLDER)]}]),
    "calls as text": ("txagent", [{"messages": [user(), assistant("Hm.", tool_calls=json.dumps([OLDER]))]}]),
    "the text null": ("txagent", [{"messages": [user(), assistant("Hm.", tool_calls="null")]}]),
    "tools on the system message": (
        "txagent",
        [{"messages": [{"role": "system", "content": "x", "tools": "[]"}, *HI]}],
    ),
    "blocks in messages": ("athena", [{"messages": [user(), assistant(BLOCK)]}]),
    "blocks in turns": ("athena", [{"conversations": [TURNS[0], {"from": "gpt", "value": BLOCK}]}]),
    "sharegpt": ("sharegpt", [{"conversations": [TURNS[0], {"from": "function_call", "value": "{}"}]}]),
    "sharegpt chat": ("sharegpt", [{"conversations": TURNS}]),
    "sharegpt spelled role": ("sharegpt", [{"messages": [user(), {"role": "function_call", "content": "{}"}]}]),
    "openai turns under the other name": ("sharegpt", [{"conversations": record()["messages"]}]),
    "toolbench": (
        "toolbench",
        [{"messages": [user(), assistant(function_call=OLDER)], "functions": [{"name": "f"}, {"name": "Finish"}]}],
    ),
    "a block in a result": ("openai", [record(messages=[user(), assistant(None, call()), tool(BLOCK), *HI])]),
    "one faulty record": ("openai", [record(), {"messages": [user(), assistant(BLOCK)]}, record()]),
    "one without anything": ("openai", [{"id": "x"}, record(), {"messages": None}]),
    "chat first": ("athena", [{"messages": HI}, {"messages": HI}, {"messages": [user(), assistant(BLOCK)]}]),
}


@pytest.mark.parametrize(("format", "records"), KNOWN.values(), ids=KNOWN.keys())
def test_formats_are_told_apart(tmp_path: Path, format: str, records: list[Any]) -> None:
    path = write_lines(tmp_path / "x.jsonl", records)
    assert guess_format(path, IMPORTERS) == resolved_format(path, "auto") == format


UNKNOWN: dict[str, tuple[list[Any], str]] = {
    "other keys": ([{"prompt": "x", "response": "y"}], "1 have none of .*, but prompt, response"),
    "no key": ([{}], "but no key"),
    "half and half": ([record(), {"conversations": TURNS}], "1 have messages as in the format openai; 1 have conv"),
    "two ways of calls": ([record(), {"messages": [user(), assistant(BLOCK)]}], "openai; 1 .* athena"),
    "text that is no list": ([{"messages": "[1"}, {"messages": "hello"}], "2 have none of"),
}


@pytest.mark.parametrize(("records", "seen"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_cannot_be_told_is_an_error_that_lists_what_was_seen(tmp_path: Path, records: Any, seen: str) -> None:
    with pytest.raises(DataError, match=seen) as caught:
        resolved_format(write_lines(tmp_path / "x.jsonl", records), "auto")
    assert caught.value.reason == "unknown_format"
    assert all(name in caught.value.fix for name in IMPORTERS)


def test_a_file_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    for content, reason in ((b"", "no_records"), (b'{"messages": [', "torn_line"), (b'{"a": NaN}\n', "not_json")):
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            resolved_format(path, "auto")
        assert caught.value.reason == reason
