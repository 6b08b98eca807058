from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given

from tests.support.traces import traces
from txagent_train.config.sft import SourceFormat
from txagent_train.core.codec import trace_from_json, trace_to_json
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.importers import AUTO, IMPORTERS, SUPERVISED, parser_for
from txagent_train.data.importers.native import parse


@given(traces())
def test_every_trace_survives_json(trace: Trace) -> None:
    text = json.dumps(trace_to_json(trace))
    assert trace_from_json(json.loads(text)) == trace
    assert json.dumps(trace_to_json(parse(json.loads(text), path=Path("x"), line=1))) == text


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": "t", "messages": []}, "other_format"),
        ({"id": "t"}, "missing_key"),
        ({"id": "t", "turns": [], "colour": 1}, "unknown_key"),
        ({"id": "t", "turns": []}, "empty_trace"),
    ],
)
def test_faults_name_the_trace(record: JsonObject, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        parse(record, path=Path("x"), line=1)
    assert (caught.value.reason, caught.value.trace_id) == (reason, "t")


def test_an_unknown_format_names_the_nearest() -> None:
    assert parser_for("openai") is IMPORTERS["openai"]
    with pytest.raises(UserError, match="did you mean openai"):
        parser_for("open-ai")


def test_a_recipe_knows_the_formats_that_there_are() -> None:
    assert set(get_args(SourceFormat)) == {AUTO, *IMPORTERS}
    assert set(SUPERVISED) <= set(IMPORTERS)


def test_records_of_other_formats_and_kinds_say_how_to_read_them() -> None:
    for record, fix in (
        ({"messages": []}, "--format openai; in a recipe format: openai"),
        ({"conversations": []}, "format: sharegpt"),
        ({"question": "a", "answer": "b"}, "kind: qa or kind: summary and format: auto"),
    ):
        with pytest.raises(DataError, match=fix):
            parse(record, path=Path("x"), line=1)


def test_a_weight_beyond_all_numbers_is_a_fault() -> None:
    turns = [{"user": "a"}, {"step": {"thought": "b", "weight": 10**400}}]
    with pytest.raises(DataError, match="too large"):
        parse({"id": "t", "turns": turns}, path=Path("x"), line=1)
