"""The one place that decides what a conversation is: messages in the OpenAI form become turns and an answer.

The other formats are written in this form first. What messages must keep to:

- A tool message answers a call of the assistant message before it: the one with its id, or the first one that is
  unanswered where ids are missing. An id may come back in a later message.
- The older form, ``function_call`` answered by the role ``function``, is one call without an id.
- ``content`` is text, null, or a list of text parts, which are joined with nothing between. Text of a tool stays
  text, also where it is JSON. A tool message may hold a JSON object as it is.
- A last assistant message without calls is the answer of the trace; so is one that calls nothing but ``Finish``, the
  word of a wire format for the end. ``[FinalAnswer]`` in it parts thought and answer; ToolBench's ``final_answer`` in
  the arguments of Finish is the answer, and its ``give_up_and_restart`` gives none.
- Plain chat, where no tool is declared or called, has no answer: its last message is a reply like the others.
- A leading ``<think>...</think>`` in ``content`` is reasoning, and so is what stands before a lone ``</think>``: many
  templates open the tag in the prompt. Elsewhere in the text these tags are a fault.
- Calls belong in ``tool_calls``: as text in ``content`` they are a fault.
- ``thinking`` and the texts of ``reasoning_details`` are reasoning, too; ``thought`` is the thought of a message whose
  content is empty.
- ``weight`` and ``train: false`` of an assistant message are those of its step. A key that is nearly one that is known
  here is a fault.
- Keys with null that Arrow puts into messages (``tool_calls``, ``name``) count as absent. Nulls inside arguments and
  tool schemas are data.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, field

from txagent_train.core.errors import DataError
from txagent_train.core.records import FINISH, Json, JsonObject, Step, ToolCall, ToolResult, Turn, UserMessage
from txagent_train.data.importers.values import (
    EMPTY,
    parse_call,
    result_content,
    text_of,
    train_field,
    weight_field,
)
from txagent_train.data.importers.words import (
    FINAL_ANSWER,
    check_no_calls,
    check_no_think,
    split_answer,
    split_think,
)

REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
MESSAGE_KEYS = {
    "system": {"role", "content"},
    "developer": {"role", "content"},
    "user": {"role", "content"},
    "assistant": {*("role", "content", "thought", "tool_calls", "function_call", "weight", "train", *REASONING_KEYS)},
    "tool": {"role", "content", "tool_call_id", "name"},
    "function": {"role", "content", "name"},
}
_ALL_KEYS = set().union(*MESSAGE_KEYS.values(), {"reasoning_details"})
_CLOSE = 0.8
"""How alike (of difflib, 0 to 1) a key must be to one that is known to be taken for a slip."""


@dataclass
class _OpenStep:
    """An assistant message whose results are still coming in."""

    position: int
    thought: str
    reasoning: str
    weight: float
    train: bool
    calls: tuple[ToolCall, ...]
    ids: tuple[str | None, ...]
    results: list[ToolResult] = field(default_factory=list)
    raw_output: str | None = None

    def take(self, message: JsonObject) -> None:
        """Add the result that a tool message holds."""
        index = self._call_of(message.get("tool_call_id"))
        name = message.get("name")
        if name is not None and name != self.calls[index].name:
            problem = f"the result of {self.calls[index].name} says that it comes from {name}"
            raise DataError(problem, reason="result_of_other_tool")
        self.results.append(ToolResult(index, result_content(message.get("content"))))

    def _call_of(self, call_id: object) -> int:
        answered = {result.call_index for result in self.results}
        if call_id in (None, "") or all(known is None for known in self.ids):
            index = next((index for index in range(len(self.calls)) if index not in answered), None)
            if index is None:
                raise DataError("a tool message answers no call", reason="result_without_call")
            return index
        if str(call_id) not in self.ids:
            problem = f"a tool message answers {call_id!r}, which no call before it has"
            raise DataError(problem, reason="result_without_call")
        index = self.ids.index(str(call_id))
        if index in answered:
            raise DataError(f"call {call_id!r} has two results", reason="duplicate_result")
        return index

    def close(self) -> Step:
        """The step, with its results in the order of its calls."""
        return Step(
            thought=self.thought,
            reasoning=self.reasoning,
            calls=self.calls,
            # Not every wire format has ids: the order must say which result belongs to which call.
            results=tuple(sorted(self.results, key=_place)),
            raw_output=self.raw_output,
            train=self.train,
            weight=self.weight,
        )


def _place(result: ToolResult) -> int:
    return -1 if result.call_index is None else result.call_index


class Conversation:
    """Reads messages in order; call ``add`` for each and then ``end``. ``extras`` are keys that no record has."""

    def __init__(self) -> None:
        self.system: str | None = None
        self.turns: list[Turn] = []
        self.answer: str | None = None
        self.extras: list[Json] = []
        self._open: _OpenStep | None = None
        self._steps = 0
        self._called = False

    def add(self, position: int, message: object) -> None:
        """Read one message; ``position`` is where it stands, for errors.

        Raises:
            DataError: it does not fit what came before; names the step.
        """
        try:
            if self._open is not None and not self._open.results:
                check_no_calls(self._open.thought)  # only the last message may hold words of a wire format
            if not isinstance(message, dict):
                raise DataError(f"a message must be an object, not {type(message).__name__}", reason="wrong_type")
            self._add(position, message)
        except DataError as error:
            step = self._steps - 1 if self._steps else None
            problem = f"message {position}: {error.problem}"
            raise DataError(problem, reason=error.reason, step=step, fix=error.fix) from None

    def _add(self, position: int, message: JsonObject) -> None:
        role = message.get("role")
        if not isinstance(role, str) or role not in MESSAGE_KEYS:
            known = ", ".join(MESSAGE_KEYS)
            raise DataError(f"there is no role {role!r}", reason="unknown_role", fix=f"known: {known}")
        extras = {key: value for key, value in message.items() if key not in MESSAGE_KEYS[role] and value not in EMPTY}
        _check_spelling(extras, role)
        if extras:
            self.extras.append({"message": position, **extras})
        if role in ("tool", "function"):
            if self._open is None:
                raise DataError(f"a {role} message follows no call", reason="result_without_call")
            self._open.take(message)
            return
        self._close_step()
        if role == "assistant":
            self._steps += 1
            self._open = _open_step(message, position)
            self._called = self._called or bool(self._open.calls)
        elif role == "user":
            self.turns.append(UserMessage(text_of(message.get("content"))))
        else:
            if position > 0:
                raise DataError("a system message must be the first message", reason="misplaced_system")
            self.system = text_of(message.get("content")) or None

    def _close_step(self) -> None:
        if self._open is not None:
            self.turns.append(self._open.close())
            self._open = None

    def end(self, *, has_tools: bool = True, finish_needed: bool = False) -> None:
        """Close the last step: without calls, or with Finish as its only one, it is the answer.

        Args:
            has_tools: whether the record declares tools; a conversation without tools and calls is plain chat.
            finish_needed: whether text without Finish is no answer, as in ToolBench.

        Raises:
            DataError: as add.
        """
        last = self._open
        if last is None:
            return
        step = self._steps - 1
        if [call.name for call in last.calls] == [FINISH] and not last.results:
            self._finish(last, step)
        elif last.calls:
            check_no_calls(last.thought, step=step)
        elif finish_needed or not (has_tools or self._called or FINAL_ANSWER in last.thought):
            if not last.thought.strip():
                raise _nothing_said(step)
            check_no_calls(last.thought, step=step)
        else:
            last.thought, self.answer = split_answer(last.thought)
        if self.answer is not None:
            if not self.answer.strip():
                raise _nothing_said(step)
            check_no_calls(last.thought + self.answer, step=step)
        self._close_step()

    def _finish(self, last: _OpenStep, step: int) -> None:
        """Take the answer out of a Finish call; a call that gives up stays as text that is not trained on."""
        arguments = dict(last.calls[0].arguments)
        last.calls, last.ids = (), ()
        if str(arguments.get("return_type", "")).startswith("give_up"):
            call = json.dumps({"name": FINISH, "arguments": arguments}, ensure_ascii=False)
            last.raw_output = f"{last.thought}\n{call}" if last.thought else call
            last.train = False
            return
        if "final_answer" in arguments:
            self.answer = arguments.pop("final_answer")
            if not isinstance(self.answer, str):
                problem = f"the final_answer of {FINISH} must be text, not {type(self.answer).__name__}"
                raise DataError(problem, reason="wrong_type", step=step)
        elif "return_type" in arguments:
            raise DataError(f"{FINISH} gives no final_answer", reason="empty_answer", step=step)
        else:
            last.thought, self.answer = split_answer(last.thought)
        if arguments:
            self.extras.append({"message": last.position, "finish_arguments": arguments})


def _check_spelling(extras: JsonObject, role: str) -> None:
    """A slip such as ``trian`` would silently change what is trained on; other unknown keys are kept as they are."""
    for key in extras.keys() - _ALL_KEYS:
        close = difflib.get_close_matches(key, MESSAGE_KEYS[role], n=1, cutoff=_CLOSE)
        if close:
            fix = f"did you mean {close[0]}? rename or remove the key"
            raise DataError(f"a {role} message has the unknown key {key!r}", reason="unknown_key", fix=fix)


def _nothing_said(step: int) -> DataError:
    problem = "the last assistant message has neither content nor a call"
    return DataError(problem, reason="empty_answer", step=step)


def _open_step(message: JsonObject, position: int) -> _OpenStep:
    calls, ids = _calls_of(message)
    hidden, content = split_think(text_of(message.get("content")))
    check_no_think(content)
    return _OpenStep(
        position=position,
        thought=_thought(message, content),
        reasoning=_reasoning(message, hidden),
        weight=weight_field(message),
        train=train_field(message),
        calls=calls,
        ids=ids,
    )


def _thought(message: JsonObject, content: str) -> str:
    """The content; some agents put what they think beside their calls into ``thought`` and leave it empty."""
    thought = text_of(message.get("thought"))
    if not thought.strip() or thought.strip() == content.strip():
        return content
    if content.strip():
        raise DataError("thought and content differ", reason="two_thoughts", fix="keep one of them")
    return thought


def _reasoning(message: JsonObject, hidden: str) -> str:
    """Servers name the field one way or the other, or leave it in <think> (``hidden``); some send several, equal."""
    texts = [text for key in REASONING_KEYS if (text := text_of(message.get(key)))]
    texts += [text for text in (_details(message.get("reasoning_details")), hidden) if text]
    if len({text.strip() for text in texts}) > 1:
        problem = f"{', '.join(REASONING_KEYS)}, reasoning_details and <think> in content differ"
        raise DataError(problem, reason="two_reasonings", fix="keep one of them")
    return texts[0] if texts else ""


def _details(value: object) -> str:
    """The texts, or the summaries, in a list of ``reasoning_details``; encrypted ones have none."""
    if value in EMPTY:
        return ""
    if not isinstance(value, list) or not all(isinstance(part, dict) for part in value):
        raise DataError("reasoning_details must be a list of objects", reason="wrong_type")
    texts, summaries = ("".join(text_of(part.get(key)) for part in value) for key in ("text", "summary"))
    if not (texts or summaries or all("data" in part for part in value)):
        fix = "write the text as reasoning_content"
        raise DataError("reasoning_details hold no text", reason="unreadable_reasoning", fix=fix)
    return texts or summaries


def _calls_of(message: JsonObject) -> tuple[tuple[ToolCall, ...], tuple[str | None, ...]]:
    """The calls of an assistant message, and their ids."""
    value, older = message.get("tool_calls"), message.get("function_call")
    if older is not None:
        if value not in EMPTY:
            problem = "the message has both tool_calls and function_call"
            raise DataError(problem, reason="two_call_forms", fix="keep one of them")
        return (parse_call(older),), (None,)
    if value is None:
        return (), ()
    if not isinstance(value, list):
        raise DataError(f"tool_calls must be a list, not {type(value).__name__}", reason="wrong_type")
    calls = tuple(_numbered_call(number, item) for number, item in enumerate(value))
    ids = tuple(None if item.get("id") in (None, "") else str(item["id"]) for item in value)
    present = [call_id for call_id in ids if call_id is not None]
    if len(set(present)) != len(present):
        twice = next(call_id for call_id in present if present.count(call_id) > 1)
        raise DataError(f"two calls of the message have the id {twice!r}", reason="duplicate_call_id")
    return calls, ids


def _numbered_call(number: int, item: object) -> ToolCall:
    """A call; an error names it by its id, or by its place."""
    try:
        return parse_call(item)
    except DataError as error:
        call_id = item.get("id") if isinstance(item, dict) else None
        named = f"call {number}" if call_id in (None, "") else f"call {call_id}"
        raise DataError(f"{named}: {error.problem}", reason=error.reason, fix=error.fix) from None
