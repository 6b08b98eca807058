"""The text inside messages: tools in the system prompt, calls in an assistant message, results, the target.

Every function takes a ``Cleaner``, which breaks control strings and counts them. The chat template (template.py)
holds the same words in Jinja; tests compare the two on ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from txagent_train.core.errors import DataError
from txagent_train.core.records import FINISH, JsonObject, Step, StepExample, ToolSpec
from txagent_train.rendering.controls import Neutraliser, well_formed, well_formed_json
from txagent_train.rendering.messages import Message, json_text, listed_tool
from txagent_train.rendering.wire import FINAL_ANSWER_MARKER, TOOL_CALLS_MARKER, WireFormat

HERMES_TOOLS_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
HERMES_TOOLS_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
"""The wording of Qwen's own template: its models know it."""


@dataclass(slots=True)
class Cleaner:
    """Breaks control strings in foreign text and counts them.

    ``foreign`` knows the tokenizer's control strings and the syntax markers. ``system`` knows only the former: a
    system prompt may well tell the model to end with ``[FinalAnswer]``.
    """

    foreign: Neutraliser
    system: Neutraliser
    broken: int = 0

    def text(self, text: str) -> str:
        cleaned, count = self.foreign.clean(text)
        self.broken += count
        return cleaned

    def json(self, text: str) -> str:
        cleaned, count = self.foreign.clean_json(text)
        self.broken += count
        return cleaned

    def system_text(self, text: str) -> str:
        cleaned, count = self.system.clean(text)
        self.broken += count
        return cleaned


def system_text(system: str, tools: Sequence[ToolSpec], wire: WireFormat, cleaner: Cleaner) -> str:
    """The system message with the tools, or "" where there is neither."""
    head = cleaner.system_text(system.strip())
    if not tools:
        return head
    listing = "\n".join(cleaner.json(json_text(listed_tool(tool, wire), ascii_only=False)) for tool in tools)
    if wire.syntax == "txagent":
        return f"{head}\n{listing}" if head else listing
    block = f"{HERMES_TOOLS_BEFORE}{listing}{HERMES_TOOLS_AFTER}"
    return f"{head}\n\n{block}" if head else block


def _call_text(name: str, arguments: JsonObject, identifier: str, wire: WireFormat) -> str:
    call: JsonObject = {"name": name, "arguments": arguments}
    if identifier and wire.syntax == "txagent":
        call["call_id"] = identifier
    return json_text(call, ascii_only=wire.syntax == "txagent")


def _with_calls(content: str, calls: Sequence[str], wire: WireFormat) -> str:
    if not calls:
        return content
    if wire.syntax == "txagent":
        return f"{content}{TOOL_CALLS_MARKER}[{', '.join(calls)}]"
    blocks = "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)
    return f"{content}\n{blocks}" if content else blocks


def assistant_text(message: Message, wire: WireFormat, cleaner: Cleaner) -> str:
    """An assistant message as it stands in the history: with call ids in the txagent syntax."""
    calls = [
        cleaner.json(_call_text(call["function"]["name"], call["function"]["arguments"], call["id"], wire))
        for call in message.get("tool_calls", ())
    ]
    return _with_calls(cleaner.text(message["content"].strip()), calls, wire)


def target_text(example: StepExample, wire: WireFormat, cleaner: Cleaner) -> str:
    """What the model should write at a step: the target, without ids and without the stop token.

    Where ``Finish`` ends the model's turn, a reply to the user is written as an answer is: plain text without a
    call would be no readable output (rendering.parse). In the history it is the plain text, as a chat client keeps it.
    Where no tool is listed there is no Finish (wire.arrange_tools), and an answer too is plain text.

    Raises:
        DataError: the format has no words for the step: text without a call, and then another step of the model
            (reason ``step_without_call``); or nothing at all (``empty_output``).
    """
    step, answer = example.target, example.trace.answer if example.is_final else None
    if not wire.listed_tools(example.tools, example.history):
        wire = replace(wire, finish="text")
    if answer is None and not step.calls:
        problem = reason = ""
        if not step.thought.strip():
            problem, reason = "the step has neither text nor a call to write", "empty_output"
        elif wire.finish == "call" and not example.is_reply:
            problem, reason = "the step is text without a call, and the model goes on after it", "step_without_call"
        if problem:
            fix = "join the text to the step after it, set the step's train to false, or use wire.finish=text"
            raise DataError(problem, reason=reason, trace_id=example.trace.id, step=example.step_index, fix=fix)
        if wire.finish == "call":
            step, answer = replace(step, thought=""), step.thought
    return _output_text(step, answer, wire, cleaner)


def _output_text(step: Step, answer: str | None, wire: WireFormat, cleaner: Cleaner) -> str:
    """The output of a step; ``answer`` is what it tells the user, where it ends the model's turn."""
    thought = cleaner.text(well_formed(step.thought).strip())
    calls = [(well_formed(call.name), well_formed_json(call.arguments)) for call in step.calls]
    if answer is not None:
        text = cleaner.text(well_formed(answer).strip())
        if wire.finish == "call":
            text = f"{FINAL_ANSWER_MARKER} {text}"
            calls = [(FINISH, {})]
        thought = f"{thought}\n\n{text}" if thought else text
    texts = [cleaner.json(_call_text(name, arguments, "", wire)) for name, arguments in calls]
    body = _with_calls(thought, texts, wire)
    if step.reasoning.strip():
        return f"<think>\n{cleaner.text(well_formed(step.reasoning).strip())}\n</think>\n\n{body}"
    return body


def tool_turns(messages: Sequence[Message], wire: WireFormat, cleaner: Cleaner) -> list[str]:
    """The turns that carry a run of tool messages: one each (txagent), or one for all (hermes)."""
    contents = [cleaner.text(message["content"]) for message in messages]
    if wire.syntax == "txagent":
        return contents
    return ["\n".join(f"<tool_response>\n{content}\n</tool_response>" for content in contents)]
