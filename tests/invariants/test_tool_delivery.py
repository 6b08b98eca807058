"""Where found tools stand: nothing is lost, every tool stands before its call, and prompts that only grow share more.

That training, template and parser agree for both deliveries is in test_template_parity.py and test_targets_parse.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.invariants.test_template_parity import FORMATS, listed, renderer_for, template_ids
from tests.support import augmentation
from tests.support.traces import objects, odd_trace, searching_traces, some_text, specs, texts
from txagent_train.agent.backends import Generation
from txagent_train.agent.loop import AgentSettings, AgentTask, run_agent
from txagent_train.agent.tools import ToolOutcome
from txagent_train.core.errors import DataError
from txagent_train.core.records import FINISH, TOOL_RAG, Step, StepExample, ToolCall, ToolResult, ToolSpec, Trace
from txagent_train.data.decompose import decompose
from txagent_train.data.overlong import Fitter
from txagent_train.demo.formulary import load_formulary
from txagent_train.demo.teacher import demo_traces
from txagent_train.rendering.messages import listed_tool, tool_message
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import FinishStyle, SyntaxName

PROPERTY = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SYNTAXES: tuple[SyntaxName, ...] = ("txagent", "hermes")
FRAMED = [(name, syntax, finish) for name, syntax, finish, delivery in FORMATS if delivery == "result"]


def prompt_of(renderer: Renderer, example: StepExample) -> list[int]:
    trace = example.trace
    return renderer.prompt_ids(trace_id=trace.id, system=trace.system, tools=example.tools, turns=example.history)


# ---- prompts that only grow ----


@pytest.mark.parametrize(("name", "syntax", "finish"), FRAMED)
def test_each_prompt_begins_with_the_one_before(name: str, syntax: SyntaxName, finish: FinishStyle) -> None:
    renderer = renderer_for(name, syntax, finish, "result")

    @PROPERTY
    @given(searching_traces())
    def check(trace: Trace) -> None:
        examples = list(decompose(trace, seed=2))
        for before, after in pairwise(prompt_of(renderer, example) for example in examples):
            assert after[: len(before)] == before
        for example in examples:  # the list is the same for every step
            assert listed(renderer, example) == examples[0].tools
            assert sorted(map(repr, examples[0].tools)) == sorted(map(repr, trace.initial_tools))

    check()


def test_in_the_head_found_tools_make_another_prompt() -> None:
    """What the option is for: by default the prompt after a search does not begin with the one before."""
    renderer = renderer_for("llama3", "txagent", "call")
    first, second = (prompt_of(renderer, example) for example in list(decompose(odd_trace()))[:2])
    assert second[: len(first)] != first


# ---- tokens ----


def trie_tokens(rows: Iterable[Sequence[int]]) -> int:
    """How many tokens are computed where each beginning that rows have in common is computed once."""
    root: dict[int, Any] = {}
    count = 0
    for row in rows:
        node = root
        for token in row:
            count += token not in node
            node = node.setdefault(token, {})
    return count


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_traces_that_search_take_fewer_tokens(syntax: SyntaxName) -> None:
    traces = demo_traces(load_formulary()[:20], n=30, seed=0, schedule={"rag": 2, "rag_unknown_brand": 1})
    ratio = {}
    computed: dict[str, list[int]] = {}
    for delivery in ("prompt", "result"):
        renderer = renderer_for("smollm2", syntax, "call", delivery)
        rows = [[renderer.render(example).input_ids for example in decompose(trace)] for trace in traces]
        computed[delivery] = [trie_tokens(samples) for samples in rows]
        ratio[delivery] = sum(len(ids) for samples in rows for ids in samples) / sum(computed[delivery])
    assert all(less < more for less, more in zip(computed["result"], computed["prompt"], strict=True))
    assert ratio["result"] > 1.05 * ratio["prompt"] > 2, ratio


# ---- nothing is lost ----


def batch_of(step: Step) -> list[ToolSpec]:
    return [spec for spec in step.tools_added if spec.name != FINISH]


def results_of(renderer: Renderer, trace: Trace, step: Step) -> list[str]:
    messages = renderer.messages(trace_id=trace.id, system=None, turns=(step,))
    return [message["content"] for message in messages if message["role"] == "tool"]


def as_json(value: object) -> str:
    """As text, for which the order of keys and the types of numbers count."""
    return json.dumps(value)


def check_results(plain: Sequence[str], carrying: Sequence[str], batch: Sequence[ToolSpec], renderer: Renderer) -> None:
    """Results that carry tools say what they said without, and carry each tool of the batch once."""
    if not batch:
        assert list(carrying) == list(plain)
        return
    carried: list[Any] = []
    for before, after in zip(plain or [""], carrying, strict=True):
        if before == after:
            continue
        value = json.loads(after)
        tools = value.pop("tools")
        places = [[as_json(listed_tool(spec, renderer.wire)) for spec in batch].index(as_json(tool)) for tool in tools]
        assert tools and places == sorted(places)
        carried += tools
        if renderer.wire.syntax == "txagent" and "call_id" in value:
            assert as_json(value) == as_json(json.loads(before))
        else:
            content = value.pop("content")
            assert not value
            assert before == (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    assert sorted(map(as_json, carried)) == sorted(as_json(listed_tool(spec, renderer.wire)) for spec in batch)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_nothing_that_a_result_held_is_lost(syntax: SyntaxName) -> None:
    plain, carrying = (renderer_for("qwen3", syntax, "call", delivery) for delivery in ("prompt", "result"))

    @settings(PROPERTY, max_examples=150)
    @given(searching_traces())
    def check(trace: Trace) -> None:
        seen: list[ToolSpec] = list(trace.initial_tools)
        examples = list(decompose(trace, shuffle_tools=False))
        for step in examples[-1].trace.steps:
            names = {spec.name for spec in seen}
            assert not names.intersection(spec.name for spec in step.tools_added)
            check_results(results_of(plain, trace, step), results_of(carrying, trace, step), batch_of(step), carrying)
            seen += step.tools_added
        recorded = {spec.name for step in trace.steps for spec in step.tools_added}
        assert {spec.name for spec in seen} == recorded | {spec.name for spec in trace.initial_tools}

    check()


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_each_search_carries_what_it_found(syntax: SyntaxName) -> None:
    one, two, other = (ToolSpec(name, f"The {name} é.", {"type": "object"}) for name in ("one", "two", "other"))
    rag = ToolSpec(TOOL_RAG, "Retrieve.", {"type": "object"})
    step = Step(
        calls=(ToolCall(TOOL_RAG, {}), ToolCall("get", {}), ToolCall(TOOL_RAG, {})),
        results=tuple(
            ToolResult(index, content) for index, content in enumerate([["two", "one"], ["one"], {"two": 0.5}])
        ),
        tools_added=(one, two, other, rag),
    )
    trace = Trace("t", (step, Step()), answer="a", initial_tools=(rag,))
    renderer = renderer_for("smollm2", syntax, "call", "result")
    shown = next(iter(decompose(trace, shuffle_tools=False))).trace.steps[0]
    first, second, third = results_of(renderer, trace, shown)
    spec = '{"name": "%s", "description": "The %s %s.", "parameters": {"type": "object"}}'
    if syntax == "txagent":
        tools = ", ".join(spec % (name, name, "\\u00e9") for name in ("one", "two"))
        assert first.startswith(f'{{"content": ["two", "one"], "tools": [{tools}], "call_id": "')
        assert "tools" not in second and '"tools": [{"name": "other"' in third
    else:
        wrapped = '{"type": "function", "function": %s}'
        tools = ", ".join(wrapped % (spec % (name, name, "é")) for name in ("one", "two"))
        assert first == f'{{"content": ["two", "one"], "tools": [{tools}]}}'
        assert second == '["one"]' and third.startswith('{"content": {"two": 0.5}, "tools": [{"type": "function"')
    # Tool_RAG is listed, so it is not repeated.
    assert first.count('"name"') + third.count('"name"') == 3


@PROPERTY
@given(searching_traces(), st.integers(50, 600), st.sampled_from(SYNTAXES))
def test_tools_stay_where_results_give_way_to_summaries(trace: Trace, limit: int, syntax: SyntaxName) -> None:
    renderer = renderer_for("llama3", syntax, "text", "result")
    given_way: list[Trace] = []

    def render(example: StepExample) -> Any:
        given_way.append(example.trace)
        return renderer.render(example)

    fitter = Fitter(render, limit)
    for example in decompose(trace):
        try:
            fitter.fit(example)
        except DataError as fault:
            assert fault.reason == "overlong"
        for short, whole in zip(given_way[-1].steps, example.trace.steps, strict=True):
            assert short == whole or not (whole.tools_added or any(call.name == TOOL_RAG for call in whole.calls))


# ---- every tool stands before its call ----


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("delivery", ["prompt", "result"])
def test_every_tool_stands_in_the_prompt_before_it_is_called(syntax: SyntaxName, delivery: Any) -> None:
    """Under the names that augmentation gave them, searched for by virtual calls or not; and each tool once."""
    renderer = renderer_for("smollm2", syntax, "call", delivery)
    augmenter = augmentation.augmenter(virtual_share=0.7, n_random=1, n_hard=1)

    @PROPERTY
    @given(augmentation.traces(), st.integers(0, 3))
    def check(trace: Trace, epoch: int) -> None:
        made = augmenter.augment(trace, seed=0, epoch=epoch).trace
        for example in decompose(made, seed=0, epoch=epoch):
            shown = shown_tools(renderer, example)
            assert sorted(shown) == sorted(as_json(tool_message(spec)) for spec in example.tools)
            names = {json.loads(tool)["function"]["name"] for tool in shown}
            assert names.issuperset(call.name for call in example.target.calls)

    check()


def shown_tools(renderer: Renderer, example: StepExample) -> list[str]:
    """The tools that the prompt shows, read from its text: from the list, and from the results of the steps before."""
    text = renderer.tokenizer.decode(prompt_of(renderer, example))
    assert text == renderer.tokenizer.decode(template_ids(renderer, example))
    head, _, rest = text.partition("<|im_end|>")
    lines = (line for line in head.splitlines() if line.startswith("{") and "<args-json-object>" not in line)
    found: list[Any] = [json.loads(line) for line in lines]
    for part in rest.split('"tools": [')[1:]:
        listing, _ = json.JSONDecoder().raw_decode(f"[{part}")
        found += [tool for tool in listing if isinstance(tool, dict)]  # a result of the data may have such a key, too
    wrapped = [tool if "function" in tool else {"type": "function", "function": tool} for tool in found]
    return [as_json(tool) for tool in wrapped if tool["function"]["name"] != FINISH]


# ---- the agent ----


class Recording:
    """A back end that says what it is given to say, token by token, and keeps the prompts."""

    context_length = 10**6

    def __init__(self, outputs: Iterable[Sequence[int]], last: Sequence[int]) -> None:
        self._outputs = iter(outputs)
        self._last = tuple(last)
        self.prompts: list[list[int]] = []

    def generate(
        self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, temperature: float = 0.0, seed: int = 0
    ) -> list[Generation]:
        self.prompts += map(list, prompts)
        return [Generation(tuple(next(self._outputs, self._last)), stopped=True) for _ in prompts]


class Drawn:
    """An executor that answers with the next of its outcomes."""

    def __init__(self, outcomes: Sequence[ToolOutcome]) -> None:
        self._outcomes = iter(outcomes)

    def specs(self) -> Sequence[ToolSpec]:
        return ()

    def call(self, call: ToolCall) -> ToolOutcome:
        return next(self._outcomes, ToolOutcome("nothing"))


def outputs_of(renderer: Renderer, trace: Trace) -> Iterator[tuple[int, ...]]:
    """What a model that has learnt a trace says, step by step."""
    for example in decompose(trace):
        try:
            rendered = renderer.render(example)
        except DataError as fault:
            assert fault.reason == "step_without_call"
            continue
        yield rendered.input_ids[rendered.loss_mask.index(True) : -1]


outcomes = st.builds(
    ToolOutcome,
    content=st.one_of(texts, objects, st.just(["get_dose"])),
    is_error=st.booleans(),
    tools_added=st.lists(specs, max_size=2).map(tuple),
)


@pytest.mark.parametrize(("name", "syntax", "finish", "delivery"), FORMATS)
def test_the_agent_is_prompted_as_training_is(
    name: str, syntax: SyntaxName, finish: FinishStyle, delivery: Any
) -> None:
    """Whatever it says and finds: its trace in samples, and through the template, has the prompts of the run."""
    renderer = renderer_for(name, syntax, finish, delivery)
    last = renderer.text_ids("[FinalAnswer] so" if finish == "call" else "so")

    @PROPERTY
    @given(searching_traces(), st.lists(outcomes, max_size=6), some_text)
    def check(trace: Trace, found: list[ToolOutcome], question: str) -> None:
        backend = Recording(outputs_of(renderer, trace), last)
        task = AgentTask("run", question, system=trace.system, initial_tools=trace.initial_tools)
        limits = AgentSettings(max_steps=4, max_unparsable=9)
        made = run_agent(task, backend=backend, renderer=renderer, executor=Drawn(found), settings=limits)
        for example in decompose(made, shuffle_tools=False):
            prompt = backend.prompts[example.step_index]
            assert prompt == prompt_of(renderer, example) == template_ids(renderer, example)
        if delivery == "result":  # also where the answer was forced
            for before, after in pairwise(backend.prompts):
                assert after[: len(before)] == before

    check()
