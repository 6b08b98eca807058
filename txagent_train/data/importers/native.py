"""The native format: traces as ``core.codec`` writes them."""

from __future__ import annotations

from pathlib import Path

from txagent_train.core.codec import trace_from_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.importers.values import named_format

OTHERS = {"messages": "openai", "conversations": "sharegpt", "conversation": "txagent"}
"""What a record of another format holds its messages in."""


def parse(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The trace of one record; see importers.Parser."""
    if "turns" not in record:
        raise _other_format(record)
    return trace_from_json(record)


def _other_format(record: JsonObject) -> DataError:
    found = next((key for key in OTHERS if key in record), None)
    if found is not None:
        reason, fix = "other_format", named_format(OTHERS[found])
        problem = f"the record has {found}, not turns: it is not in the native format"
    else:
        reason = "missing_key"
        problem = f"a trace lacks the key 'turns'; it has {', '.join(list(record)[:8]) or 'none'}"
        fix = (
            "for pairs of question and answer or texts with summaries, set kind: qa or kind: summary and format: auto "
            f"for the source; formats of traces have {', '.join(OTHERS)} or turns"
        )
    return DataError(problem, reason=reason, trace_id=str(record.get("id", "")), fix=fix)
