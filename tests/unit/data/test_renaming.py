from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.support.augmentation import GET_DOSE, TOOLS, augmenter, tool
from txagent_train.config.sft import AugmentSection
from txagent_train.core.codec import trace_to_json
from txagent_train.core.records import TOOL_RAG, Step, StepStatus, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.augment import Augmented, Augmenter
from txagent_train.data.candidates import Neighbours
from txagent_train.data.decompose import decompose
from txagent_train.data.overlong import SUMMARIES
from txagent_train.data.rewrites import ArgumentRewrite, RewriteSet, ToolRewrite
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.virtual import RAG_TOOL

SEARCH, ROUTE = TOOLS[2], TOOLS[5]


def _renamed(
    *turns: UserMessage | Step, tools: tuple[ToolSpec, ...] = (GET_DOSE, RAG_TOOL), **fields: Any
) -> Augmented:
    """What becomes of a trace; get_dose becomes find_strength, or find_strength_2."""
    trace = Trace("t", (UserMessage("What?"), *turns, Step("So.")), answer="It is.", initial_tools=tools)
    made = augmenter().augment(replace(trace, **fields), seed=0, epoch=0)
    assert made.undo() == replace(trace, **fields)
    return made


def _call(name: str = "get_dose", content: Any = 1, **step: Any) -> Step:
    arguments = {"drug_name": "a", "limit": 1} if name == "get_dose" else {"description": "get_dose, or so", "limit": 3}
    return Step(calls=(ToolCall(name, arguments),), results=(ToolResult(0, content),), **step)


def _results(made: Augmented) -> Any:
    return made.trace.steps[0].results[0].content


def test_calls_and_specs_and_words() -> None:
    made = _renamed(_call(thought="I use get_dose (not get_dose_x).", reasoning="get_dose!", summary="`get_dose`: 1"))
    new = made.renamed["get_dose"]
    (step, _), spec = made.trace.steps, made.trace.initial_tools[0]
    assert spec.name == new == step.calls[0].name
    assert list(step.calls[0].arguments.items()) == list(zip(spec.parameters["properties"], ("a", 1), strict=True))
    assert (step.thought, step.reasoning) == (f"I use {new} (not get_dose_x).", f"{new}!")
    assert step.summary == f"`{new}`: 1"
    assert made.counts == {"traces_augmented": 1, "tools_renamed": 1, "mentions_renamed": 3}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (["get_dose", "other"], ["NEW", "other"]),
        ({"tools": [["get_dose"]], "scores": {"get_dose": 0.5}}, {"tools": [["NEW"]], "scores": {"NEW": 0.5}}),
        ([{"name": "get_dose", "score": 1}], [{"name": "NEW", "score": 1}]),
        ("Found: get_dose, get_dose_x.", "Found: NEW, get_dose_x."),
    ],
)
def test_what_tool_rag_returned(content: Any, expected: Any) -> None:
    made = _renamed(_call(TOOL_RAG, content))
    assert _results(made) == _with(expected, made.renamed["get_dose"])
    said = made.trace.steps[0].calls[0].arguments["description"]
    assert said == f"{made.renamed['get_dose']}, or so"


def _with(value: Any, new: str) -> Any:
    if isinstance(value, str):
        return value.replace("NEW", new)
    if isinstance(value, list):
        return [_with(item, new) for item in value]
    return {_with(key, new): _with(item, new) for key, item in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("marked", [False, True])
def test_specs_that_tool_rag_returned_are_those_that_are_shown(marked: bool) -> None:
    """Also where each property says of itself that it is required, as ToolUniverse 0.1.4 has it."""
    parameter = GET_DOSE.parameters
    if marked:
        marks = {name: schema | {"required": True} for name, schema in parameter["properties"].items()}
        parameter = {"type": "object", "properties": marks}
    content = [{"name": "get_dose", "description": GET_DOSE.description, "parameter": parameter, "type": "FDA"}]
    made = _renamed(_call(TOOL_RAG, content))
    (told,), shown = _results(made), made.trace.initial_tools[0]
    assert (told["name"], told["description"], told["type"]) == (shown.name, shown.description, "FDA")
    assert list(told["parameter"]["properties"]) == list(shown.parameters["properties"])
    for name, schema in shown.parameters["properties"].items():
        assert told["parameter"]["properties"][name]["description"] == schema["description"]
    assert marked or told["parameter"] == shown.parameters


def test_what_an_ordinary_tool_says_is_renamed_only_as_a_whole() -> None:
    made = _renamed(_call(content={"asked": "get_dose", "get_dose": ["get_dose"], "of": "get_dose_x"}))
    new = made.renamed["get_dose"]
    assert _results(made) == {"asked": new, new: [new], "of": "get_dose_x"}


@pytest.mark.parametrize(
    "fields",
    [
        {"system": "Use get_dose."},
        {"turns": (UserMessage("What says get_dose?"), _call(), Step("So."))},
        {"turns": (UserMessage("What?"), _call(content="get_dose says 1"), Step("So."))},
    ],
)
def test_a_tool_that_others_name_stays_as_it_is(fields: dict[str, Any]) -> None:
    made = _renamed(_call(), **fields)
    assert not made.renamed and made.counts["kept_named_by_others"] == 1


def test_an_error_is_the_loops_own_and_an_unparsable_output_the_models() -> None:
    error = ToolResult(None, "get_dose is not called so.", is_error=True)
    made = _renamed(Step(raw_output='[{"name": "get_dose"', status=StepStatus.UNPARSABLE, results=(error,)), _call())
    new = made.renamed["get_dose"]
    assert made.trace.steps[0].raw_output == f'[{{"name": "{new}"'
    assert _results(made) == f"{new} is not called so."


def test_an_ordinary_word_is_renamed_only_in_quotation_marks_and_counted() -> None:
    call = Step(
        'I search with "search", and search again.',
        calls=(ToolCall("search", {"query_text": "q", "drug_name": "d"}),),
        results=(ToolResult(0, "the search found none"),),
    )
    made = _renamed(call, tools=(SEARCH,))
    new = made.renamed["search"]
    assert made.trace.steps[0].thought == f'I search with "{new}", and search again.'
    assert made.trace.steps[0].calls[0].name == new and _results(made) == "the search found none"
    assert made.counts["mentions_ambiguous"] == 2


def test_arguments_are_renamed_in_text_where_they_mean_one() -> None:
    words = "query_text first, then drug_name; the limit is 1."
    made = _renamed(_call(thought=words), tools=(GET_DOSE, SEARCH))
    query = next(
        name for spec in made.trace.initial_tools for name in spec.parameters["properties"] if name.startswith("asked")
    )
    said = made.trace.steps[0].thought
    assert said.startswith(f"{query} first, then ") and said.endswith("; the limit is 1.")
    names = [set(spec.parameters["properties"]) for spec in made.trace.initial_tools]
    if not {name for name in names[0] & names[1] if name.startswith("medicine")}:
        assert "drug_name" in said and made.counts["mentions_ambiguous"] == 1


def test_a_specs_mention_of_another_tool_follows_it() -> None:
    made = _renamed(_call(), tools=(GET_DOSE, TOOLS[1], RAG_TOOL))
    dose, form = made.trace.initial_tools[:2]
    assert form.name in dose.description and "get_dose_form" not in dose.description
    assert dose.name in form.description


def test_stored_summaries_follow() -> None:
    made = _renamed(_call(), metadata={SUMMARIES: {"0": "get_dose gave 1."}, "kind": "get_dose"})
    assert made.trace.metadata == {SUMMARIES: {"0": f"{made.renamed['get_dose']} gave 1."}, "kind": "get_dose"}


def test_no_name_is_taken_that_stands_in_the_trace() -> None:
    made = _renamed(_call(thought="find_strength_2 is better."))
    assert made.renamed == {"get_dose": "find_strength"}
    none = _renamed(_call(thought="find_strength_2, find_strength"))
    assert not none.renamed and none.counts["kept_no_free_version"] == 1
    shown = _renamed(_call(), tools=(GET_DOSE, tool("find_strength", "Another.")))
    assert shown.renamed == {"get_dose": "find_strength_2"}


def test_another_spec_than_the_toolbox_has_is_left() -> None:
    made = _renamed(_call(), tools=(tool("get_dose", "Another.", drug_name="string"),))
    assert not made.renamed and made.counts["kept_unlike_toolbox"] == 1
    twice = _call(TOOL_RAG, ["get_dose"], tools_added=(tool("get_dose", "Another.", drug_name="string"),))
    assert _renamed(twice).counts["kept_unlike_toolbox"] == 1


def test_what_a_call_adds_does_not_collide_with_a_new_argument() -> None:
    extra = ToolCall("get_dose", {"drug_name": "a", "limit": 1, "medicine_name1": "x"})
    made = _renamed(Step(calls=(extra,), results=(ToolResult(0, 1),)))
    assert made.renamed == {"get_dose": "find_strength_2"}
    assert list(made.trace.steps[0].calls[0].arguments) == ["medicine_name2", "top2", "medicine_name1"]


def test_tool_rag_and_other_tools_of_the_loop_keep_their_names() -> None:
    agent = tool("CallAgent", "Ask another agent.", solution="string")
    call = Step(calls=(ToolCall("CallAgent", {"solution": "Use get_dose."}),), results=(ToolResult(0, "1"),))
    made = _renamed(call, tools=(GET_DOSE, agent, RAG_TOOL))
    assert [spec.name for spec in made.trace.initial_tools][1:] == ["CallAgent", TOOL_RAG]
    assert made.trace.steps[0].calls[0].arguments == {"solution": f"Use {made.renamed['get_dose']}."}


def test_a_tool_added_later_has_one_name_throughout() -> None:
    found = _call(TOOL_RAG, ["lookup_route"], tools_added=(ROUTE,))
    use = Step(calls=(ToolCall("lookup_route", {"drug_name": "a"}),), results=(ToolResult(0, 1),))
    made = _renamed(found, use)
    new = made.renamed["lookup_route"]
    last = list(decompose(made.trace))[1]
    assert new in [spec.name for spec in last.tools] and last.target.calls[0].name == new
    assert Counter(spec.name for spec in last.tools)[new] == 1


def test_a_tool_whose_name_ends_in_anothers_is_not_mistaken_for_it() -> None:
    made = _renamed(_call(thought="x-get_dose, get_dose"), tools=(GET_DOSE, tool("x-get_dose", "Another.")))
    assert made.trace.steps[0].thought == f"x-get_dose, {made.renamed['get_dose']}"


def test_an_argument_stays_in_text_where_its_new_name_stands_too() -> None:
    made = _renamed(_call(thought="drugA is no first_drug1, no first_drug2."), tools=(GET_DOSE, TOOLS[4]))
    assert made.trace.steps[0].thought == "drugA is no first_drug1, no first_drug2."
    assert made.counts["mentions_ambiguous"] == 1


SEARCH_CALL = Step(calls=(ToolCall("search", {"query_text": "q", "drug_name": "d"}),), results=(ToolResult(0, "none"),))


@pytest.mark.parametrize(
    ("step", "fields"),
    [
        (SEARCH_CALL, {"system": "Use 'search'."}),
        (SEARCH_CALL, {"turns": (UserMessage("Call search(x)."), SEARCH_CALL, Step("So."))}),
        (replace(SEARCH_CALL, results=(ToolResult(0, '{"type": "search"}'),)), {}),
        (replace(SEARCH_CALL, results=(ToolResult(0, {"type": ["search"]}),)), {}),
        (replace(SEARCH_CALL, results=(ToolResult(0, "search"),)), {}),
        (replace(SEARCH_CALL, calls=(ToolCall("search", {"query_text": "search", "drug_name": "d"}),)), {}),
    ],
)
def test_a_tool_named_like_a_word_stays_where_data_has_the_word_alone(step: Step, fields: dict[str, Any]) -> None:
    made = _renamed(step, tools=(SEARCH,), **fields)
    assert not made.renamed and made.counts["kept_named_by_others"] == 1


@pytest.mark.parametrize(
    "content", [{"text": "The search went on."}, {"search": 1}, '{"search": 1}', json.dumps({"x": '{"search" : 1}'})]
)
def test_a_word_in_running_text_or_as_a_key_of_data_is_no_mention_of_a_tool(content: Any) -> None:
    step = replace(SEARCH_CALL, results=(ToolResult(0, content),))
    made = _renamed(step, tools=(SEARCH,), system="Search, then search again.")
    assert "search" in made.renamed and _results(made) == content


def test_a_word_in_a_list_of_tools_is_renamed_and_not_counted_as_ambiguous() -> None:
    for content in (["search", "x_y"], '["search", "x_y"]', "search, x_y", "1. search: finds\n2. x_y: not"):
        made = _renamed(_call(TOOL_RAG, content), SEARCH_CALL, tools=(SEARCH, RAG_TOOL))
        new = made.renamed["search"]
        assert json.dumps(_results(made)) == json.dumps(content).replace("search", new)
        assert not made.counts["mentions_ambiguous"]


@pytest.mark.parametrize("name", ["get-dose", "fda.search", "dose finder", "поиск", "查询"])
def test_a_name_with_other_letters_leaves_no_trace(name: str) -> None:
    spec = replace(ROUTE, name=name)
    one = _augmenter(spec, version(spec, "find_way", drug_name="medicine"))
    call = ToolCall(name, {"drug_name": "a"})
    step = Step(f"I call {name} now, `{name}` and {name}(q).", calls=(call,), results=(ToolResult(0, 1),))
    trace = Trace("t", (UserMessage("?"), step, Step(f"By {name}.")), answer=f"{name}: a.", initial_tools=(spec,))
    made = one.augment(trace, seed=0, epoch=0)
    assert made.renamed == {name: "find_way"} and made.undo() == trace
    assert name not in json.dumps(trace_to_json(made.trace), ensure_ascii=False)


def test_a_name_in_other_letter_case_keeps_the_tool() -> None:
    made = _renamed(_call(thought="I call GET_DOSE."))
    assert not made.renamed and made.counts["kept_named_by_others"] == 1


FORMS = [
    lambda spec: json.dumps([_entry(spec, "parameters")]),
    lambda spec: json.dumps([_entry(spec, "parameter")], indent=2),
    lambda spec: str([_entry(spec, "parameters")]),
    lambda spec: {"content": json.dumps({"tools": [_entry(spec, "input_schema")]})},
    lambda spec: [json.dumps({"type": "function", "function": _entry(spec, "parameters")})],
    lambda spec: [{"tool_name": spec.name, "description": spec.description, "parameters": spec.parameters}],
]


def _entry(spec: ToolSpec, key: str) -> dict[str, Any]:
    return {"name": spec.name, "description": spec.description, key: spec.parameters}


@pytest.mark.parametrize("form", FORMS)
def test_specs_in_a_result_are_those_that_are_shown_in_any_form(form: Any) -> None:
    made = _renamed(_call(TOOL_RAG, form(GET_DOSE)))
    assert made.renamed and _results(made) == form(made.trace.initial_tools[0])


def test_a_version_whose_description_is_told_already_is_not_taken() -> None:
    told = [{"name": "get_dose", "description": f"Version 1: {GET_DOSE.description}"}]
    for content in (told, json.dumps(told)):
        assert _renamed(_call(TOOL_RAG, content)).renamed == {"get_dose": "find_strength_2"}


# ---- words that are values ----


def _augmenter(spec: ToolSpec, *rewrites: ToolRewrite, others: tuple[ToolSpec, ...] = ()) -> Augmenter:
    toolbox = Toolbox((spec, *others))
    by_tool: dict[str, tuple[ToolRewrite, ...]] = {}
    for rewrite in rewrites:
        by_tool[rewrite.tool] = (*by_tool.get(rewrite.tool, ()), rewrite)
    section = AugmentSection.model_validate({"toolbox": "t", "originals": False})
    return Augmenter(toolbox, RewriteSet(toolbox.hash, frozenset(), by_tool), Neighbours(), section)


def version(spec: ToolSpec, name: str, number: int = 1, **arguments: str) -> ToolRewrite:
    given = {old: ArgumentRewrite(new, f"{new}.") for old, new in arguments.items()}
    return ToolRewrite(spec.name, number, name, f"{name} does it.", given)


def _trace(step: Step, *tools: ToolSpec) -> Trace:
    return Trace("t", (UserMessage("?"), step, Step("So.")), answer="A.", initial_tools=tools)


@pytest.mark.parametrize("key", ["enum", "examples", "default", "const", "x-values"])
def test_a_word_that_is_also_a_value_is_left_and_counted(key: str) -> None:
    value: Any = ["object_name", "x"] if key in ("enum", "examples") else "object_name"
    properties = {"kind": {"type": "string", key: value}, "object_name": {"type": "string"}}
    spec = ToolSpec("query_it", "Query.", {"type": "object", "properties": properties})
    call = ToolCall("query_it", {"kind": "object_name", "object_name": "M31"})
    step = Step("I query with kind object_name.", calls=(call,), results=(ToolResult(0, 1),))
    made = _augmenter(spec, version(spec, "ask_it", object_name="name_text")).augment(
        _trace(step, spec), seed=0, epoch=0
    )
    assert made.trace.steps[0].thought == "I query with kind object_name."
    assert made.trace.steps[0].calls[0].arguments == {"kind": "object_name", "name_text": "M31"}
    assert made.counts["mentions_ambiguous"] == 1


def test_a_word_that_is_a_value_of_a_call_is_left_and_one_that_is_none_is_renamed() -> None:
    properties = {"kind": {"type": "string"}, "object_name": {"type": "string"}}
    spec = ToolSpec("query_it", "Query.", {"type": "object", "properties": properties})
    one = _augmenter(spec, version(spec, "ask_it", object_name="name_text"))
    for value, said in ((["object_name"], "object_name"), (["other"], "name_text")):
        call = ToolCall("query_it", {"kind": value, "object_name": "M31"})
        step = Step("By object_name.", calls=(call,), results=(ToolResult(0, 1),))
        made = one.augment(_trace(step, spec), seed=0, epoch=0)
        assert made.trace.steps[0].thought == f"By {said}."


def test_values_stay_and_descriptions_follow() -> None:
    """A tool whose name is a value that an argument may have keeps it: the model reads it there."""
    target = {"type": "string", "enum": ["get_dose", "none"], "title": "lookup_route or not", "description": "get_form"}
    odd = {"type": "object", "properties": {"enum": {"type": "string", "description": "of lookup_route"}}}
    route = ToolSpec("route_to", "To lookup_route.", {"type": "object", "properties": {"target": target, "deep": odd}})
    dose = replace(GET_DOSE, description="A dose.")
    one = _augmenter(route, version(dose, "find_dose"), version(ROUTE, "find_way"), others=(dose, ROUTE))
    step = Step(calls=(ToolCall("route_to", {"target": "none"}),), results=(ToolResult(0, 1),))
    made = one.augment(_trace(step, route, dose, ROUTE), seed=0, epoch=0)
    assert made.renamed == {"lookup_route": "find_way"} and made.counts["kept_named_by_others"] == 1
    shown = made.trace.initial_tools[0]
    assert shown.description == "To find_way."
    assert shown.parameters["properties"]["target"] == target | {"title": "find_way or not"}
    assert shown.parameters["properties"]["deep"]["properties"]["enum"]["description"] == "of find_way"
    assert made.undo() == _trace(step, route, dose, ROUTE)


def test_a_tool_named_like_an_argument_that_is_spoken_of_stays() -> None:
    spec = ToolSpec("drug_name", "A name.", {"type": "object", "properties": {"drug_name": {"type": "string"}}})
    one = _augmenter(spec, version(spec, "find_label", drug_name="compound"))
    step = Step("With drug_name=a.", calls=(ToolCall("drug_name", {"drug_name": "a"}),), results=(ToolResult(0, 1),))
    made = one.augment(_trace(step, spec), seed=0, epoch=0)
    assert not made.renamed and made.trace.steps[0].thought == "With drug_name=a."
    silent = one.augment(_trace(replace(step, thought="Now."), spec), seed=0, epoch=0)
    assert silent.renamed == {"drug_name": "find_label"}


# ---- versions that do not fit ----


class Narrower(ToolRewrite):
    """A version that wants more of its calls than the tool did."""

    def spec(self, original: ToolSpec) -> ToolSpec:
        made = super().spec(original)
        return replace(made, parameters=made.parameters | {"minProperties": 9})


def test_a_version_that_a_call_does_not_fit_is_not_taken() -> None:
    good = version(ROUTE, "good_one", 2, drug_name="medicine")
    bad = Narrower(ROUTE.name, 1, "bad_one", "It.", good.arguments)
    step = Step(calls=(ToolCall("lookup_route", {"drug_name": "a"}),), results=(ToolResult(0, 1),))
    made = _augmenter(ROUTE, bad).augment(_trace(step, ROUTE), seed=0, epoch=0)
    assert not made.renamed and made.counts["kept_schema"] == 1
    both = _augmenter(ROUTE, bad, good)
    names = {both.augment(_trace(step, ROUTE), seed=0, epoch=epoch).renamed["lookup_route"] for epoch in range(8)}
    assert names == {"good_one"}
    wrong = replace(step, calls=(ToolCall("lookup_route", {"drug_name": 5}),), train=False)
    free = _augmenter(ROUTE, bad).augment(_trace(wrong, ROUTE), seed=0, epoch=0)
    assert free.renamed == {"lookup_route": "bad_one"}, "what did not fit before need not fit after"


def test_where_a_spec_was_read_from_makes_no_other_tool_of_it() -> None:
    bare = replace(GET_DOSE, origin={})
    found = _call(TOOL_RAG, ["get_dose"], tools_added=(bare,))
    trace = _trace(found, GET_DOSE, RAG_TOOL)
    made = augmenter().augment(trace, seed=0, epoch=0)
    assert made.renamed and made.trace.initial_tools[0] == made.trace.steps[0].tools_added[0]
    other = augmenter()
    other.augment(trace, seed=0, epoch=0)
    again = other.augment(_trace(_call(), bare, RAG_TOOL), seed=0, epoch=0)
    assert again.renamed and again.undo().initial_tools[0].origin == {}
