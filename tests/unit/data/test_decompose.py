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
