from __future__ import annotations

import json
import re
from collections import Counter
from statistics import mean

import pytest

from txagent_train.core.codec import trace_from_json, trace_to_json
from txagent_train.core.records import FINISH, TOOL_RAG, Trace
from txagent_train.data.checks import check_calls
from txagent_train.data.decompose import decompose
from txagent_train.demo.formulary import load_formulary, split_drugs
from txagent_train.demo.recorder import SYSTEM_PROMPT
from txagent_train.demo.teacher import SCHEDULE, demo_traces
from txagent_train.demo.tools import DemoTools
from txagent_train.scoring.answers import answer_matches

STEPS = {"out_of_scope": 1, "brand": 3, "search_then_lookup": 3, "rag": 3, "unknown_brand": 4, "misspelt": 4}
STEPS["rag_unknown_brand"] = 5  # and 2 for every other kind


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return demo_traces(split_drugs(0)[0], n=480, seed=0)


@pytest.fixture(scope="module")
def held_out_traces() -> list[Trace]:
    return demo_traces(split_drugs(0)[1], n=160, seed=0, id_prefix="held-out")


def text_of(traces: list[Trace]) -> str:
    return json.dumps([trace_to_json(trace) for trace in traces])


def names_in(text: str, drugs) -> list[str]:
    names = [name for drug in drugs for name in drug.names]
    return [name for name in names if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE)]


def test_no_text_of_one_side_names_a_drug_of_the_other(traces: list[Trace], held_out_traces: list[Trace]) -> None:
    train, held_out = split_drugs(0)
    assert names_in(text_of(traces), held_out) == []
    assert names_in(text_of(held_out_traces), train) == []
    assert not {trace.question_id for trace in traces} & {trace.question_id for trace in held_out_traces}


def test_the_seed_decides(traces: list[Trace]) -> None:
    train = split_drugs(0)[0]
    assert demo_traces(train, n=480, seed=0) == traces
    assert demo_traces(tuple(reversed(train)), n=100, seed=0) == traces[:100]
    assert demo_traces(train, n=100, seed=1) != traces[:100]


def test_every_trace_is_whole_and_its_own(traces: list[Trace]) -> None:
    assert len({trace.question for trace in traces}) == len({trace.id for trace in traces}) == len(traces) == 480
    generic = {drug.generic_name for drug in load_formulary()}
    for trace in traces:
        assert trace_from_json(json.loads(json.dumps(trace_to_json(trace)))) == trace
        assert trace.is_complete and trace.answer is not None
        assert (trace.source, trace.teacher, trace.license) == ("demo", "scripted", "Apache-2.0")
        assert trace.system == SYSTEM_PROMPT
        assert trace.question_id and trace.entities and set(trace.entities) <= generic
        assert answer_matches(trace.answer, trace.metadata["gold"])
        assert all(step.thought for step in trace.steps)


def test_calls_fit_their_specs_and_results_are_what_the_tools_give(traces: list[Trace]) -> None:
    tools = DemoTools(split_drugs(0)[0])
    for trace in traces:
        check_calls(trace)
        for step in trace.steps:
            outcomes = [tools.call(call) for call in step.calls]
            assert [result.content for result in step.results] == [outcome.content for outcome in outcomes]
            assert step.tools_added == tuple(spec for outcome in outcomes for spec in outcome.tools_added)
            assert not any(outcome.is_error for outcome in outcomes)


def test_arguments_stand_in_the_question_or_in_an_earlier_result(traces: list[Trace]) -> None:
    for trace in traces:
        known = trace.question
        for step in trace.steps:
            for call in step.calls:
                if call.name != TOOL_RAG:
                    assert all(f"{value}" in known for value in call.arguments.values()), (trace.id, call)
            known += json.dumps([result.content for result in step.results])


def test_kinds_and_steps_come_as_scheduled(traces: list[Trace]) -> None:
    kinds = Counter(trace.metadata["kind"] for trace in traces)
    assert set(kinds) == set(SCHEDULE)
    rounds = len(traces) / sum(SCHEDULE.values())
    for kind, count in SCHEDULE.items():
        assert 0.8 * count * rounds <= kinds[kind] <= 1.2 * count * rounds, kind
    for trace in traces:
        assert len(trace.steps) == STEPS.get(trace.metadata["kind"], 2)
    assert {len(trace.steps) for trace in traces} == {1, 2, 3, 4, 5}
    assert sum(len(trace.steps) <= 3 for trace in traces) > 0.8 * len(traces)


def test_every_drug_and_every_tool_is_covered(traces: list[Trace]) -> None:
    asked = Counter(entity for trace in traces for entity in trace.entities)
    assert set(asked) == {drug.generic_name for drug in split_drugs(0)[0]}
    called = {call.name for trace in traces for step in trace.steps for call in step.calls}
    assert called == {spec.name for spec in DemoTools(()).specs()}


def test_candidates_are_few_and_hold_no_second_right_tool(traces: list[Trace]) -> None:
    population = "get_population_use_info_by_drug_name"
    one_of_them = {"get_pregnancy_effects_info_by_drug_name", population}
    shown_without_need = 0
    for trace in traces:
        names = [spec.name for spec in trace.initial_tools]
        called = {call.name for step in trace.steps for call in step.calls}
        assert 2 <= len(names) <= 5 and FINISH not in names
        assert not {"get_drug_generic_name", "get_brand_name_generic_name"} <= {*names} or not (
            called & {"get_drug_generic_name", "get_brand_name_generic_name"}
        )
        assert not (one_of_them <= {*names} and called & one_of_them)
        added = [spec.name for step in trace.steps for spec in step.tools_added]
        assert not set(added) & set(names)
        assert (TOOL_RAG in called) == bool(added)
        shown_without_need += TOOL_RAG in names and TOOL_RAG not in called
    assert shown_without_need > 0


def test_recovery_follows_from_an_empty_result(traces: list[Trace]) -> None:
    for trace in traces:
        empty = [step.results[0].content == {"results": []} for step in trace.steps if step.calls]
        expected = {"unknown_brand": 0, "misspelt": 0, "rag_unknown_brand": 1}.get(trace.metadata["kind"])
        assert [index for index, is_empty in enumerate(empty) if is_empty] == ([] if expected is None else [expected])
        if expected is not None:
            name = trace.steps[expected].calls[0].arguments["drug_name"]
            assert trace.steps[expected + 1].calls[0].arguments == {"drug_name": name}


@pytest.mark.slow
def test_too_many_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="different questions"):
        demo_traces(load_formulary()[:1], n=10_000, seed=0)


@pytest.mark.slow
def test_samples_are_short_enough_for_a_laptop(traces: list[Trace], held_out_traces: list[Trace]) -> None:
    from tests.support.tokenizers import smollm2
    from txagent_train.rendering.renderer import Renderer
    from txagent_train.rendering.wire import wire_format_for

    tokenizer = smollm2()
    renderer = Renderer(tokenizer, wire_format_for(tokenizer, syntax="txagent", finish="call"))
    examples = [example for trace in (*traces, *held_out_traces) for example in decompose(trace, seed=0, epoch=0)]
    lengths = [len(renderer.render(example).input_ids) for example in examples]
    assert max(lengths) <= 900
    assert mean(lengths) <= 460
