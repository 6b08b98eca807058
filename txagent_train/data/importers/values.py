"""Single values of records, as exporters write them: JSON once or as text, calls, tool specs, content in parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from txagent_train.core.codec import weight_of
from txagent_train.core.errors import DataError
from txagent_train.core.records import FINISH, Json, JsonObject, ToolCall, ToolSpec, check_json
from txagent_train.data.strict_json import strict_loads
from txagent_train.data.toolspecs.fields import read_fields

EMPTY: tuple[object, ...] = (None, "", [], {})
"""Values of a message's key that say nothing: what exporters and Arrow fill in."""


def parse_once(value: Any, what: str, reason: str) -> Any:
    """The value itself, or the JSON value of a text. A text inside the text is an error: it was encoded twice.

    Raises:
        DataError: with ``reason`` where the text is no JSON, else ``double_encoded``.
    """
    if not isinstance(value, str):
        return value
    try:
        parsed = strict_loads(value)
    except ValueError as error:
        raise DataError(f"{what} are a text that is not JSON: {error}", reason=reason) from None
    if isinstance(parsed, str):
        fix = "write them as a JSON object, or as the text of one"
        raise DataError(f"{what} are JSON in JSON: encoded twice", reason="double_encoded", fix=fix)
    return parsed


def text_of(content: object) -> str:
    """The text of a message: itself, nothing for null, or a list of text parts joined with nothing between.

    Raises:
        DataError: it is something else, or a part is no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise DataError(f"content must be text or a list of parts, not {type(content).__name__}", reason="wrong_type")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise DataError(f"content has a part that is not text: {kind}", reason="unsupported_content_part")
        texts.append(part["text"])
    return "".join(texts)


def result_content(content: object) -> Json:
    """What a tool answered: a JSON object as it is, anything else as text."""
    return content if isinstance(content, dict) else text_of(content)


def call_function(item: object) -> tuple[str, Any]:
    """The name and the arguments, as written, of a call; with its ``function`` wrapper or bare.

    ``parameters`` stands for ``arguments`` in some data sets.

    Raises:
        DataError: it is no call, or names no tool.
    """
    if not isinstance(item, dict):
        raise DataError(f"a call must be an object, not {type(item).__name__}", reason="wrong_type")
    function = item.get("function", item)
    if not isinstance(function, dict):
        raise DataError("the function of a call must be an object", reason="wrong_type")
    name = function.get("name")
    if not isinstance(name, str) or not name.strip():
        raise DataError("a call names no tool", reason="call_without_name")
    arguments, parameters = function.get("arguments"), function.get("parameters")
    if arguments is not None and parameters is not None:
        problem = f"the call to {name} has both arguments and parameters"
        raise DataError(problem, reason="two_arguments", fix="keep one of them")
    return name, parameters if arguments is None else arguments


def parse_call(item: object) -> ToolCall:
    """One call; its arguments are an object, or the JSON text of one. A call without arguments may say nothing.

    Raises:
        DataError: as call_function; or the arguments are no object.
    """
    name, arguments = call_function(item)
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return ToolCall(name, {})
    return ToolCall(name, parse_once(arguments, f"the arguments of the call to {name}", "arguments_not_json"))


def parse_tools(value: object) -> tuple[ToolSpec, ...]:
    """Tool specs from a list, or from a JSON text of one; each with its ``function`` wrapper or bare. Without Finish.

    Raises:
        DataError: a spec has no name, or a part of it has the wrong type.
    """
    if value is None or value == "":
        return ()
    value = parse_once(value, "tools", "tools_not_json")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise DataError(f"tools must be a list, not {type(value).__name__}", reason="wrong_type")
    return tuple(tool for tool in map(_parse_tool, value) if tool.name != FINISH)


def _parse_tool(item: object) -> ToolSpec:
    if not isinstance(item, dict):
        raise DataError(f"a tool must be an object, not {type(item).__name__}", reason="invalid_tool_spec")
    function = item.get("function", item)
    if not isinstance(function, dict):
        raise DataError("the function of a tool must be an object", reason="invalid_tool_spec")
    name, parameters = function.get("name"), function.get("parameters")
    parameters = parse_once(parameters, f"the parameters of tool {name}", "invalid_tool_spec")
    check_json(parameters, f"the parameters of tool {name}")
    spec = read_fields(name, function.get("description"), parameters)
    plain = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    # Most specs can be written back from the three fields; the others keep what they were read from.
    return spec if item == {"type": "function", "function": plain} else replace(spec, origin={"openai": item})


def train_field(record: JsonObject) -> bool:
    """Whether a message or a whole record is trained on: all are, unless ``train`` is false."""
    value = record.get("train")
    if value is not None and not isinstance(value, bool):
        raise DataError(f"train must be true or false, not {value!r}", reason="wrong_type")
    return value is not False


def weight_field(record: JsonObject) -> float:
    """The ``weight`` of a message or of a whole record; 1 where there is none."""
    value = record.get("weight")
    return 1.0 if value is None else weight_of(value)


def named_format(name: str) -> str:
    """What to do about a record of another format, on the command line and in a recipe."""
    return f"its format is {name} (--format {name}; in a recipe format: {name})"


def text_field(record: JsonObject, name: str, default: str = "") -> str:
    """A text, or a number written as text: ids are often numbers."""
    value = record.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DataError(f"{name} must be text, not {type(value).__name__}", reason="wrong_type")
    return str(value)


def entities_field(record: JsonObject) -> tuple[str, ...]:
    """The list of texts that ``entities`` is."""
    value = record.get("entities")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError("entities must be a list of texts", reason="wrong_type")
    return tuple(value)


def round_field(record: JsonObject) -> int:
    """The integer that ``round`` is."""
    value = record.get("round")
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError("round must be an integer", reason="wrong_type")
    return value
