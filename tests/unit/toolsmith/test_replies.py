from __future__ import annotations

import json
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
    ],
)
def test_a_version_that_cannot_be_read_does_not_spoil_the_others(change: dict[str, Any]) -> None:
    found = read_reply(json.dumps([version(1) | change, version(2)]), [1, 2])
    assert not isinstance(found, NoDraft)
    assert isinstance(found[1], NoDraft) and found[1].reason == "unreadable_version" and found[2] == DRAFT


@given(
    st.text()
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["versions", "version", "name", "description", "arguments"]), inner)
        ),
    ).map(json.dumps)
)
def test_nothing_that_a_model_may_write_raises(text: str) -> None:
    read_reply(text, [1, 2])
