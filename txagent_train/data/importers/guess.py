"""Which format a file has, from its first records.

A record tells its container by its keys (``turns``, ``messages``, ``conversations``), and often its format by what
stands in it: the way in which it writes calls. A container with no such sign in any record has the plain format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import FINISH, JsonObject
from txagent_train.data.importers.sharegpt import CALL_ROLES
from txagent_train.data.importers.values import parse_once
from txagent_train.data.reading import read_records
from txagent_train.data.strict_json import strict_loads

RECORDS_READ = 50
PLAIN = {"turns": "native", "messages": "openai", "conversations": "sharegpt", "conversation": "txagent"}
"""The format of each container where no record shows another."""
_KEYS_SHOWN = 8


def guess_format(path: Path, known: Iterable[str]) -> str:
    """The format of a file.

    Args:
        known: the formats there are, for the message of an error.

    Raises:
        DataError: the file cannot be read, holds no record, or its records do not tell (reason ``unknown_format``).
    """
    records = [record for _, record in islice(read_records(path), RECORDS_READ)]
    if not records:
        raise DataError("the file holds no records", reason="no_records", path=str(path))
    containers = Counter(key for record in records if (key := _container(record)))
    for container, count in containers.most_common(1):
        signs = Counter(sign for record in records if (sign := _sign(record, container)))
        best = signs.most_common(1)[0] if signs else (PLAIN[container], 1)
        # A faulty record among sound ones must not decide; an import drops and counts it.
        if 2 * count > containers.total() and 2 * best[1] > signs.total():
            return best[0]
    fix = (
        f"name it with --format (in a recipe: format): {', '.join(known)}; rows of questions and answers, or of texts "
        "and summaries, are not imported: a recipe reads them with kind: qa or kind: summary"
    )
    seen = f"the format cannot be told from the first {len(records)} records: {_seen(records)}"
    raise DataError(seen, reason="unknown_format", path=str(path), fix=fix)


def _container(record: JsonObject) -> str:
    return next((key for key in PLAIN if _turns(record, key) is not None), "")


def _turns(record: JsonObject, container: str) -> list[Any] | None:
    """The list that a container holds, as it is or as JSON text."""
    value = record.get(container)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = strict_loads(value)
        except ValueError:
            return None
    return value if isinstance(value, list) else None


def _seen(records: list[JsonObject]) -> str:
    found: Counter[str] = Counter()
    for record in records:
        container = _container(record)
        if container:
            found[f"{container} as in the format {_sign(record, container) or PLAIN[container]}"] += 1
        else:
            shown = ", ".join(list(record)[:_KEYS_SHOWN]) + (", ..." if len(record) > _KEYS_SHOWN else "")
            found[f"none of {', '.join(PLAIN)}, but {shown or 'no key'}"] += 1
    return "; ".join(f"{count} have {what}" for what, count in found.most_common(_KEYS_SHOWN))


def _sign(record: JsonObject, container: str) -> str | None:
    """The format that the turns of a record show, or None."""
    if container == "turns":
        return None
    turns = _turns(record, container) or []
    sign = next((sign for turn in turns if isinstance(turn, dict) and (sign := _turn_sign(turn))), None)
    if container == "conversations":
        return sign if sign in (None, "athena") else "sharegpt"
    if sign == "function_call":  # all data of that time; ToolBench's ends with a function that it declares
        return "toolbench" if _declares_finish(record.get("functions")) else "openai"
    return sign


def _declares_finish(functions: Any) -> bool:
    try:
        return any(tool["name"] == FINISH for tool in parse_once(functions, "functions", "tools_not_json"))
    except (DataError, TypeError, KeyError):
        return False


def _turn_sign(turn: JsonObject) -> str | None:
    role, text = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
    calls = turn.get("tool_calls")
    if isinstance(calls, str) or (role == "system" and isinstance(turn.get("tools"), str)):
        return "txagent"
    if isinstance(calls, list) and calls:
        return "openai"
    if turn.get("function_call") is not None or ("role" in turn and role == "function"):
        return "function_call"
    if role in CALL_ROLES or role == "observation" or (role in ("human", "gpt") and "role" in turn):
        return "sharegpt"
    if role in ("assistant", "gpt") and isinstance(text, str) and "<tool_call>" in text:
        return "athena"
    return None
