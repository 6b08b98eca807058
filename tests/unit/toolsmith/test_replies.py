from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txagent_train.data.rewrites import ArgumentRewrite
from txagent_train.toolsmith.drafts import Draft, NoDraft
from txagent_train.toolsmith.replies import read_reply


def version(number: Any = None, name: str = "n") -> dict[str, Any]:
    arguments = {"drug": {"name": "remedy", "description": "Which."}}
    found = {"name": name, "description": "What.", "arguments": arguments}
    return found if number is None else {"version": number} | found


DRAFT = Draft("n", "What.", {"drug": ArgumentRewrite("remedy", "Which.")})
PLAIN = json.dumps({"versions": [version(1), version(2)]})


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        f"```json\n{PLAIN}\n```",
        f"<think>[1, {{}}] hm</think>Sure, here {{as wished}}: {PLAIN} Anything else?",
        json.dumps([version(1), version(2)]),
        json.dumps([version("1"), version("version 2")]),
        json.dumps({"versions": {"1": version(), "2": version()}}),
        json.dumps([version(), version()]),
        json.dumps([version(7), version(7)]),
    ],
)
def test_versions_are_read_however_they_are_wrapped(text: str) -> None:
    assert read_reply(text, [1, 2]) == {1: DRAFT, 2: DRAFT}


def test_a_single_version_need_not_stand_in_a_list() -> None:
    assert read_reply(json.dumps(version()), [4]) == {4: DRAFT}


def test_arguments_may_be_a_list() -> None:
    item = version(1) | {"arguments": [{"original": "drug", "name": "remedy", "description": "Which."}]}
    assert read_reply(json.dumps(item), [1]) == {1: DRAFT}


def test_numbered_versions_may_come_in_any_order() -> None:
    found = read_reply(json.dumps([version(2, "b"), version(1, "a")]), [1, 2])
    assert not isinstance(found, NoDraft)
    assert {number: draft.name for number, draft in found.items() if isinstance(draft, Draft)} == {1: "a", 2: "b"}


@pytest.mark.parametrize("text", ["", "I cannot do that.", '{"versions": [', "[]", "{}", "[1, 2]x", '"versions"'])
def test_what_holds_no_version_is_a_value(text: str) -> None:
    found = read_reply(text, [1])
    assert found == {} or (isinstance(found, NoDraft) and found.reason == "unreadable_reply")


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1},
        {"description": None},
        {"arguments": 3},
        {"arguments": {"drug": "x"}},
        {"arguments": {"drug": {"name": 1}}},
        {"arguments": [{"original": ["drug"], "name": "a", "description": "b"}]},
        {"arguments": [{"name": "a", "description": "b"}]},
        {"arguments": ["drug"]},
        {"arguments": [{"original": "drug", "name": name} for name in "ab"]},
        {"description": "half \ud83d"},
        {"description": "a\x00b"},
        {"name": "n\x1b[31m"},
        {"name": "n\ud800"},
        {"arguments": {"drug\ud800": {"name": "a"}}},
        {"arguments": {"drug": {"name": "a", "description": "\x07"}}},
    ],
)
def test_a_version_that_cannot_be_read_does_not_spoil_the_others(change: dict[str, Any]) -> None:
    found = read_reply(json.dumps([version(1) | change, version(2)]), [1, 2])
    assert not isinstance(found, NoDraft)
    assert isinstance(found[1], NoDraft) and found[1].reason == "unreadable_version" and found[2] == DRAFT
    assert found[1].found.encode("utf-8")


@pytest.mark.parametrize("number", ["9" * 5000, 10**18, "version " + "1" * 5000, [1], {"a": 1}])
def test_a_number_that_is_none_leaves_the_order(number: Any) -> None:
    assert read_reply(json.dumps([version(number), version(number)]), [1, 2]) == {1: DRAFT, 2: DRAFT}


def test_a_number_that_json_takes_and_python_does_not_leaves_the_order() -> None:
    text = PLAIN.replace('"version": 1', f'"version": {"9" * 5000}')
    assert read_reply(text, [1, 2]) == {1: DRAFT, 2: DRAFT}


@pytest.mark.parametrize("depth", [500, 940, 960, 970, 980, 990, 3000, 100000])
def test_depth_is_a_value_too(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    for text in (deep, "[" * depth, f'[{{"version": 1, "name": {deep}}}]', PLAIN.replace('"What."', deep)):
        found = read_reply(text, [1, 2])
        assert isinstance(found, NoDraft) or not any(isinstance(item, Draft) for item in found.values())


ANY_TEXT = st.text(st.characters(exclude_categories=()))
ITEM = st.fixed_dictionaries(
    {"name": ANY_TEXT, "description": ANY_TEXT},
    optional={
        "version": st.sampled_from([1, 2, "1", "9" * 5000, 10**20, None]),
        "arguments": st.dictionaries(ANY_TEXT, st.fixed_dictionaries({"name": ANY_TEXT, "description": ANY_TEXT})),
    },
)


@given(
    ANY_TEXT
    | st.lists(ITEM).map(json.dumps)
    | st.recursive(
        st.none() | st.integers() | ANY_TEXT,
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["versions", "version", "name", "description", "arguments", "original"]), inner
            )
        ),
    ).map(json.dumps)
)
def test_nothing_that_a_model_may_write_raises_and_what_is_read_can_be_written(text: str) -> None:
    found = read_reply(text, [1, 2])
    for item in [found] if isinstance(found, NoDraft) else found.values():
        json.dumps(asdict(item), ensure_ascii=False).encode("utf-8")
