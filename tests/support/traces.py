"""Traces for tests: a fixed one with every odd thing that a trace may hold, and a hypothesis strategy."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from txagent_train.core.records import (
    FINISH,
    TOOL_RAG,
    Step,
    StepStatus,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trace,
    Turn,
    UserMessage,
)

CONTROL_STRINGS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|begin_of_text|>",
    "<|reserved_special_token_3|>", "[TOOL_CALLS]", "[FinalAnswer]", "<tool_call>", "</tool_call>", "<tool_response>",
    "</tool_response>", "<think>", "</think>", "<repo_name>",
]  # fmt: skip
ODD_TEXTS = [
    "\n",
    "\n\n",
    " ",
    "\t",
    "é",
    "e\u0301",
    "漢字",
    "👩‍⚕️",
    "\ud83d",
    "\\",
    '"',
    "}}",
    "]",
    ".",
    "0" * 9,
    "x" * 300,
    "\u200b",
]

# SmolLM2's vocabulary lacks a few bytes (some ASCII control characters, planes 4 to 11) and drops them in encoding.
_characters = st.characters(exclude_categories=("Cc", "Cs"), max_codepoint=0x2FFFF)
texts = st.lists(
    st.one_of(st.sampled_from(CONTROL_STRINGS), st.sampled_from(ODD_TEXTS), st.text(_characters, max_size=8)),
    max_size=6,
).map("".join)
some_text = texts.filter(lambda text: bool(text.strip()))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
names = st.sampled_from(["get_dose", "check_pair", "naïve", "tool-<think>"])
calls = st.builds(ToolCall, name=names, arguments=objects)
specs = st.builds(ToolSpec, name=names, description=texts, parameters=st.dictionaries(texts, json_values, max_size=2))


@st.composite
def call_steps(draw: st.DrawFn) -> Step:
    made = tuple(draw(st.lists(calls, min_size=1, max_size=3)))
    results = tuple(ToolResult(index, draw(json_values)) for index in range(len(made)))
    return Step(
        thought=draw(texts),
        reasoning=draw(st.one_of(st.just(""), texts)),
        calls=made,
        results=results,
        tools_added=tuple(draw(st.lists(specs, max_size=1))),
        summary=draw(st.one_of(st.none(), texts)),
    )


@st.composite
def search_steps(draw: st.DrawFn) -> Step:
    """Tool_RAG calls, with others beside them or not; what they return names the tools that come, or does not."""
    found = draw(st.lists(specs, min_size=1, max_size=3))
    search = st.builds(ToolCall, name=st.just(TOOL_RAG), arguments=objects)
    made = (draw(search), *draw(st.lists(st.one_of(search, calls), max_size=2)))
    listed = [spec.name for spec in found]
    contents = st.one_of(st.sampled_from([listed, listed[:1], dict.fromkeys(listed, 0.5), ", ".join(listed)]), texts)
    return Step(
        thought=draw(texts),
        calls=tuple(draw(st.permutations(made))),
        results=tuple(ToolResult(index, draw(contents)) for index in draw(st.permutations(range(len(made))))),
        tools_added=tuple(found),
        summary=draw(st.one_of(st.none(), texts)),
    )


unparsable_steps = st.builds(
    Step,
    raw_output=texts,
    status=st.just(StepStatus.UNPARSABLE),
    results=st.just((ToolResult(None, "Not a valid function call", is_error=True),)),
)
users = st.builds(UserMessage, content=some_text)
said = st.builds(Step, thought=some_text)


@st.composite
def _traces(draw: st.DrawFn, turns: st.SearchStrategy[Turn]) -> Trace:
    middle = draw(st.lists(turns, max_size=4))
    tools = tuple(draw(st.lists(specs, max_size=3, unique_by=lambda spec: spec.name)))
    return Trace(
        id=draw(st.sampled_from(["t-1", "t-2", "é"])),
        turns=(draw(users), *middle, Step(thought=draw(texts))),
        answer=draw(some_text),
        system=draw(st.one_of(st.none(), texts)),
        initial_tools=tools,
    )


def traces() -> st.SearchStrategy[Trace]:
    return _traces(st.one_of(call_steps(), unparsable_steps, users, said))


def searching_traces() -> st.SearchStrategy[Trace]:
    """Traces with steps that find tools, also ones that are there already; sometimes nothing says whence they come."""
    any_spec = st.one_of(specs, st.just(ToolSpec(FINISH, "Ends it.", {})))
    unsaid = st.builds(Step, thought=some_text, tools_added=st.lists(any_spec, min_size=1, max_size=2).map(tuple))
    return _traces(st.one_of(search_steps(), call_steps(), unparsable_steps, unsaid, users, said))


def odd_trace() -> Trace:
    """Parallel calls, an unparsable output, a follow-up question, Tool_RAG, control strings everywhere."""
    spec = ToolSpec(
        "get_dose", "The dose <|im_end|> of é.", {"type": "object", "properties": {"drug": {"type": "string"}}}
    )
    rag = ToolSpec(TOOL_RAG, "Retrieve tools", {"type": "object", "properties": {"description": {"type": "string"}}})
    added = ToolSpec("check_pair", "Known interaction.", {"type": "object", "properties": {}})
    return Trace(
        id="odd",
        system="Answer, and end with [FinalAnswer].",
        initial_tools=(spec, rag),
        turns=(
            UserMessage("  What <|im_end|><|eot_id|> is the dose? [TOOL_CALLS]"),
            Step(
                "Two things <tool_call>",
                calls=(
                    ToolCall("get_dose", {"drug": "<tool_call> é", "n": 1.0}),
                    ToolCall(TOOL_RAG, {"description": "pairs"}),
                ),
                results=(ToolResult(0, {"dose": [1, "<|im_start|>"]}), ToolResult(1, ["check_pair"])),
                tools_added=(added,),
            ),
            Step(
                raw_output="bad [TOOL_CALLS] {",
                status=StepStatus.UNPARSABLE,
                results=(ToolResult(None, "Not valid", True),),
            ),
            Step(
                "Then the pair.",
                calls=(ToolCall("check_pair", {}),),
                results=(ToolResult(0, "  text\n"),),
                summary="One line.",
            ),
            UserMessage("And for a child?"),
            Step("All is known.", reasoning="hidden"),
        ),
        answer="42 <think>",
    )
