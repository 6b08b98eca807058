from __future__ import annotations

from txagent_train.core.records import TOOL_RAG, Step, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.decompose import decompose


def test_a_tool_that_two_calls_of_a_step_returned_is_shown_once() -> None:
    rag = ToolSpec(TOOL_RAG, "Retrieve.", {"type": "object"})
    first, second = ToolSpec("f", "first", {}), ToolSpec("f", "second", {})
    retrieve = Step(
        calls=(ToolCall(TOOL_RAG, {"description": "a"}), ToolCall(TOOL_RAG, {"description": "b"})),
        results=(ToolResult(0, ["f"]), ToolResult(1, ["f", "g"])),
        tools_added=(first, second, ToolSpec("g", "", {}), rag),
    )
    trace = Trace("t", (UserMessage("q?"), retrieve, Step()), answer="a", initial_tools=(rag,))
    for shuffle in (True, False):
        last = list(decompose(trace, shuffle_tools=shuffle))[-1]
        assert sorted(tool.name for tool in last.tools) == [TOOL_RAG, "f", "g"]
        assert first in last.tools and second not in last.tools


def test_each_step_keeps_the_tools_that_it_brought_into_view_in_the_order_shown() -> None:
    first, again, late = (ToolSpec(name, "", {}) for name in ("f", "g", "h"))
    steps = (
        Step(
            calls=(ToolCall(TOOL_RAG, {}),), results=(ToolResult(0, ["g", "f", "h"]),), tools_added=(again, first, late)
        ),
        Step(calls=(ToolCall(TOOL_RAG, {}),), results=(ToolResult(0, ["h"]),), tools_added=(late, again)),
    )
    trace = Trace("t", (UserMessage("q?"), *steps, Step()), answer="a", initial_tools=(first,))
    orders = set()
    for epoch in range(9):
        examples = list(decompose(trace, epoch=epoch))
        batches = [step.tools_added for step in examples[-1].trace.steps]
        assert sorted(tool.name for tool in batches[0]) == ["g", "h"] and batches[1:] == [(), ()]
        assert [example.tools for example in examples] == [(first,), (first, *batches[0]), (first, *batches[0])]
        assert len({id(example.trace) for example in examples}) == 1
        orders.add(tuple(tool.name for tool in batches[0]))
    assert orders == {("g", "h"), ("h", "g")}
