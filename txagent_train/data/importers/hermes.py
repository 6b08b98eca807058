"""Text of the Hermes and Qwen form: blocks of calls and results in messages, tools in the system prompt.

Only its spelling is known here; what a model's output means at inference is for rendering.parse.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import check_json
from txagent_train.data.strict_json import strict_loads

CALL = "<tool_call>"
_CALL_END = re.compile(r"\s*(?:</tool_call>|\Z)")
_RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_DECODER = json.JSONDecoder()
# The wording of Qwen's template, and that of Hermes' own data sets. Each part may be missing.
_BEFORE = (
    r"(?:#\s*Tools\s+)?(?:You may call one or more functions to assist with the user query\.\s*)?"
    r"(?:You are provided with function signatures within <tools>\s*</tools> XML tags[.:]?\s*)?"
    r"(?:You may call one or more functions to assist with the user query\.\s*)?"
    r"(?:Don't make assumptions about what values to plug into functions\.\s*)?"
    r"(?:Here are the available tools:\s*)?"
)
_AFTER = (
    r"(?:\s*Use the following pydantic model json schema for each tool call you will make:.*?(?=\s*For each function))?"
    r"(?:\s*For each function call,? return a json object with function name and arguments within.*?:\s*"
    r"<tool_call>.*?</tool_call>)?"
)
_TOOLS = re.compile(rf"{_BEFORE}<tools>\s*(?P<specs>[\[{{].*?)\s*</tools>{_AFTER}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CallText:
    """An assistant's text: what stands before the calls, the calls, and whether text stands behind them."""

    before: str
    calls: tuple[Any, ...]
    has_more: bool


def split_calls(text: str) -> CallText:
    """The calls in the blocks of a text. One block may hold several, as a list or one after the other.

    Raises:
        ValueError: a block cannot be read; says which and why.
    """
    before, marker, _ = text.partition(CALL)
    if not marker:
        return CallText(text, (), False)
    calls: list[Any] = []
    position, more = len(before), ""
    while (start := text.find(CALL, position)) >= 0:
        more += text[position:start]
        values, position = _block(text, start + len(CALL))
        calls += values
    return CallText(before, tuple(calls), bool((more + text[position:]).strip()))


def _block(text: str, start: int) -> tuple[list[Any], int]:
    """The calls of the block whose content begins at ``start``, and where the block ends."""
    # Decoded value by value: a string inside the JSON may hold the words that end a block.
    values: list[Any] = []
    position = start
    while not (values and (end := _CALL_END.match(text, position))):
        try:
            skipped = len(text) - len(text[position:].lstrip())
            _, position_after = _DECODER.raw_decode(text, skipped)
        except (ValueError, RecursionError):
            return _python_block(text, start)
        values.append(strict_loads(text[skipped:position_after]))
        position = position_after
    return [call for value in values for call in (value if isinstance(value, list) else [value])], end.end()


def _python_block(text: str, start: int) -> tuple[list[Any], int]:
    """The same for a block that is no JSON: the first Hermes data sets hold calls as Python prints a dictionary."""
    content, end, _ = text[start:].partition("</tool_call>")
    try:
        value = ast.literal_eval(content.strip())
        check_json(value, "the call")
    except (ValueError, SyntaxError, MemoryError, RecursionError, DataError):
        raise ValueError(f"{content.strip()[:80]!r} is not JSON") from None
    return value if isinstance(value, list) else [value], start + len(content) + len(end)


def split_responses(text: str) -> tuple[list[str], str]:
    """The contents of the ``<tool_response>`` blocks of a text, and the rest of it."""
    return _RESPONSE.findall(text), _RESPONSE.sub("", text).strip()


def split_tools(system: str) -> tuple[list[Any], str]:
    """The tool specs in the ``<tools>`` block of a system prompt, and the prompt without the block and its wording.

    Raises:
        DataError: the block holds what is not JSON (reason ``tools_not_json``).
    """
    found = _TOOLS.search(system)
    if found is None:
        return [], system
    rest = "\n\n".join(part for part in (system[: found.start()].strip(), system[found.end() :].strip()) if part)
    return _specs(found["specs"]), rest


def _specs(text: str) -> list[Any]:
    specs: list[Any] = []
    position = 0
    while position < len(text):
        try:
            _, end = _DECODER.raw_decode(text, position)
            value = strict_loads(text[position:end])
        except (ValueError, RecursionError) as error:
            try:
                value, end = ast.literal_eval(text[position:].strip()), len(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                problem = f"the <tools> of the system prompt are not JSON: {error}"
                raise DataError(problem, reason="tools_not_json") from None
        specs += value if isinstance(value, list) else [value]
        position = end + len(text[end:]) - len(text[end:].lstrip(" \t\r\n,"))
    return specs
