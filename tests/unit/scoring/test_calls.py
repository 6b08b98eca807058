from __future__ import annotations

import pytest

from txagent_train.core.records import Json, ToolCall
from txagent_train.scoring.calls import argument_f1, canonical_json, score_calls


def call(name: str = "t", **arguments: Json) -> ToolCall:
    return ToolCall(name, dict(arguments))


def test_key_order_and_call_order_are_ignored() -> None:
    expected = [call("a", x=1, y={"p": 1, "q": [2]}), call("b", z="s")]
    predicted = [call("b", z="s"), call("a", y={"q": [2], "p": 1}, x=1)]
    score = score_calls(expected, predicted)
    assert score.exact and score.names and score.argument_f1 == 1.0


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (1, "1"), (0, None), (1.0, True), ([1], [1.0])])
def test_types_are_told_apart(one: Json, other: Json) -> None:
    assert canonical_json(one) != canonical_json(other)
    score = score_calls([call(x=one)], [call(x=other)])
    assert not score.exact and score.names and score.argument_f1 == 0.0


def test_a_repeated_call_counts() -> None:
    assert not score_calls([call(x=1), call(x=1)], [call(x=1)]).exact
    assert not score_calls([call(x=1), call(x=1)], [call(x=1), call(x=2)]).exact
    assert score_calls([call(x=1), call(x=1)], [call(x=1), call(x=1)]).exact


def test_list_order_is_part_of_a_value() -> None:
    assert not score_calls([call(x=[1, 2])], [call(x=[2, 1])]).exact


def test_partial_figures() -> None:
    score = score_calls([call("a", x=1, y=2), call("b", z=3)], [call("a", x=1, y=9)])
    assert (score.matched_arguments, score.expected_arguments, score.predicted_arguments) == (1, 3, 2)
    assert score.argument_f1 == pytest.approx(2 / 5) and not score.names
    assert argument_f1([score, score_calls([call("a", x=1)], [call("a", x=1)])]) == pytest.approx(4 / 7)


def test_nothing_predicted() -> None:
    score = score_calls([call("a", x=1)], [])
    assert not score.exact and not score.names and score.argument_f1 == 0.0
    assert score_calls([call("a")], [call("a")]).argument_f1 == 1.0
