from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.augmentation import GET_DOSE, TOOLBOX, TOOLS
from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, Step, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.candidates import Neighbours, Pool, distractors
from txagent_train.data.virtual import RAG_TOOL

NAMES = [spec.name for spec in TOOLS]
POOL = Pool({spec.name: spec for spec in TOOLS}, Neighbours({"get_dose": ("search", "checkPair", "lookup_route")}))
USE = Step(calls=(ToolCall("get_dose", {"drug_name": "a", "limit": 1}),), results=(ToolResult(0, 1),))
TRACE = Trace("t", (UserMessage("?"), USE, Step("So.")), answer="A.", initial_tools=(GET_DOSE, RAG_TOOL))


def _added(trace: Trace, *, n_random: int = 0, n_hard: int = 0, seed: int = 0) -> list[str]:
    return [spec.name for spec in distractors(trace, POOL, random.Random(seed), n_random=n_random, n_hard=n_hard)]


def test_hard_ones_are_the_nearest_and_random_ones_any_others() -> None:
    assert _added(TRACE, n_hard=2) == ["search", "checkPair"]
    seen = set()
    for seed in range(40):
        added = _added(TRACE, n_hard=1, n_random=2, seed=seed)
        assert added[0] == "search" and len(set(added)) == 3
        seen.update(added[1:])
    assert seen == set(NAMES) - {"get_dose", "search"}


@pytest.mark.parametrize(
    "content",
    [{"names": ["checkPair"]}, '["checkPair"]', "['checkPair']", "Found: x, checkPair.", "1. x: y\n2. checkPair: z"],
)
def test_no_tool_of_the_trace_and_none_that_tool_rag_brings_is_added(content: Any) -> None:
    rag = Step(
        calls=(ToolCall(TOOL_RAG, {"description": "x", "limit": 2}),),
        results=(ToolResult(0, content),),
        tools_added=(TOOLS[2],),
    )
    trace = Trace("t", (UserMessage("?"), USE, rag, Step("So.")), answer="A.", initial_tools=(GET_DOSE, RAG_TOOL))
    assert _added(trace, n_hard=1) == ["lookup_route"]
    assert set(_added(trace, n_random=99)) == set(NAMES) - {"get_dose", "checkPair", "search"}


def test_a_name_that_was_called_without_being_there_stays_absent() -> None:
    wrong = Step(calls=(ToolCall("lookup_route", {}),), results=(ToolResult(0, "no such tool", True),), train=False)
    trace = Trace("t", (UserMessage("?"), wrong, USE, Step("So.")), answer="A.", initial_tools=(GET_DOSE,))
    assert "lookup_route" not in _added(trace, n_random=99)


def _file(folder: Path, value: object) -> Path:
    path = folder / "near.json"
    path.write_text(json.dumps(value))
    return path


def test_a_neighbour_file(tmp_path: Path) -> None:
    content = {"toolbox_hash": TOOLBOX.hash, "embedder": "words", "neighbours": {"get_dose": ["search"]}}
    assert Neighbours.read(_file(tmp_path, content), TOOLBOX).by_tool == {"get_dose": ("search",)}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "a neighbour file is an object"),
        ({"toolbox_hash": TOOLBOX.hash, "neighbours": {"a": "b"}}, "a neighbour file is an object"),
        ({"toolbox_hash": "x", "neighbours": {}}, "another toolbox"),
        ({"toolbox_hash": TOOLBOX.hash, "neighbours": {"get_dose": ["none"]}}, "name none, which is not"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, value: object, problem: str) -> None:
    with pytest.raises(DataError, match=rf"near.json: .*{problem}"):
        Neighbours.read(_file(tmp_path, value), TOOLBOX)


def test_a_file_that_is_not_there_or_torn(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: No such file"):
        Neighbours.read(tmp_path / "none.json", TOOLBOX)
    (tmp_path / "torn.json").write_text('{"neighbours": ')
    with pytest.raises(DataError, match="cannot be read: Expecting value"):
        Neighbours.read(tmp_path / "torn.json", TOOLBOX)
