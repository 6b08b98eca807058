"""The format of ATHENA's data and of Hermes' function calling data sets: calls and results as blocks of text.

    {"messages": [{"role": "system", "content": "... <tools>\\n{...}\\n</tools> ..."},
                  {"role": "user", "content": ...},
                  {"role": "assistant", "content": "<think>...</think>THOUGHT\\n<tool_call>\\n{...}\\n</tool_call>"},
                  {"role": "tool", "content": ...}, ...], "tools": [...]}

- The messages may also be ``conversations`` of ``from`` and ``value`` (system, human, gpt, tool), and a JSON text.
- Tools stand in ``tools``, else in the system prompt, which is kept without them and without the wording around them.
- Results are tool messages, one for each call in order, or ``<tool_response>`` blocks in a tool or user message.
  They stay text.
- A block that cannot be read makes a step of the history an unparsable one. In the last message it is a fault.
- A Finish call ends the trace, ``[FinalAnswer]`` parts thought and answer (see ``conversation``).
- Text behind the calls is no part of the thought: the step then keeps the whole text as ``raw_output``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolSpec, Trace
from txagent_train.data.importers.annotated import AnnotatedConversation, as_call, messages_of, trace_of
from txagent_train.data.importers.hermes import CALL, split_calls, split_responses, split_tools
from txagent_train.data.importers.txagent import once, read_tools
from txagent_train.data.importers.values import EMPTY, parse_call, text_of
from txagent_train.data.importers.words import split_think

ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}
ROLES |= dict.fromkeys(("observation", "function", "ipython", "tool_response"), "tool")
"""Words for roles that are not those of the OpenAI form."""


def parse(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The trace of one record; see importers.Parser. A record without id is named after its file and line."""
    return trace_of(record, _read, path=path, line=line)


def _read(record: JsonObject, trace_id: str) -> tuple[AnnotatedConversation, tuple[ToolSpec, ...]]:
    reader = _Reader()
    messages = [_standard(message) for message in messages_of(record)]
    reader.read(messages)
    tools = record.get("tools")
    return reader.conversation, once(read_tools(reader.tools if tools in EMPTY else tools))


def _standard(message: Any) -> Any:
    """A message with the keys and the role of the OpenAI form."""
    if not isinstance(message, dict):
        return message
    role = message.get("role", message.get("from"))
    content = message.get("content", message.get("value"))
    rest = {key: value for key, value in message.items() if key not in ("role", "from", "content", "value")}
    return {"role": ROLES.get(role, role) if isinstance(role, str) else role, "content": content, **rest}


class _Reader:
    """Reads the messages of one conversation; ``tools`` are those that stand in the system prompt."""

    def __init__(self) -> None:
        self.conversation = AnnotatedConversation()
        self.tools: list[Any] = []

    def read(self, messages: Sequence[Any]) -> None:
        for position, message in enumerate(messages):
            following = messages[position + 1 :]
            with self.conversation.reading(position, message):
                role = message["role"] if isinstance(message, dict) else None
                if role == "system":
                    self.tools, rest = split_tools(text_of(message["content"]))
                    self.conversation.add(position, {**message, "content": rest})
                elif role == "assistant":
                    self._add_step(position, message, following)
                elif role == "tool" or (role == "user" and _is_response(message)):
                    self._add_results(position, message)
                else:
                    self.conversation.add(position, message)

    def _add_step(self, position: int, message: JsonObject, following: Sequence[Any]) -> None:
        text = text_of(message["content"])
        reasoning, body = split_think(text)
        answers = _answers(following)
        try:
            parts = split_calls(body)
            calls = [as_call(call) for call in parts.calls]
            for call in calls:
                parse_call(call)
        except (ValueError, DataError) as error:
            if not following:
                reason = error.problem if isinstance(error, DataError) else error
                problem = f"a call of the last message cannot be read: {reason}"
                raise DataError(problem, reason="calls_not_json") from None
            self.conversation.add_unparsable(position, message, text, answers)
            return
        if not calls and answers and message.get("tool_calls") in EMPTY:
            self.conversation.add_unparsable(position, message, text, answers)
            return
        fields = {**message, "content": parts.before.strip() if calls else body}
        if reasoning:
            fields["reasoning_content"] = reasoning
        if calls:
            if message.get("tool_calls") not in EMPTY:
                problem = f"the message has both tool_calls and {CALL} blocks"
                raise DataError(problem, reason="two_call_forms", fix="keep one of them")
            fields["tool_calls"] = calls
        ends_turn = bool(following) and isinstance(following[0], dict) and following[0]["role"] == "user"
        note = self.conversation.add_step(position, fields, ends_turn=ends_turn and not answers)
        if parts.has_more:
            note.raw_output = text

    def _add_results(self, position: int, message: JsonObject) -> None:
        contents, rest = split_responses(text_of(message["content"]))
        fields = {key: value for key, value in message.items() if key not in ("role", "content", "tool_call_id")}
        if not contents:
            contents, rest = [text_of(message["content"])], ""
        call_id = message.get("tool_call_id") if len(contents) == 1 else None
        for content in contents:
            self.conversation.add_result(position, content, fields, call_id=call_id)
        if rest and message["role"] == "user":
            self.conversation.add(position, {"role": "user", "content": rest})
        elif rest:
            raise DataError("the message holds text beside its <tool_response> blocks", reason="text_beside_results")


def _is_response(message: JsonObject) -> bool:
    return bool(split_responses(text_of(message["content"]))[0])


def _answers(following: Sequence[Any]) -> int:
    """How many results stand in the messages right behind an assistant message."""
    count = 0
    for message in following:
        if not isinstance(message, dict) or message["role"] not in ("tool", "user"):
            break
        blocks, rest = split_responses(text_of(message["content"]))
        if not blocks and message["role"] == "user":
            break
        count += len(blocks) or 1
        if rest and message["role"] == "user":
            break
    return count
