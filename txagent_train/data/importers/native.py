"""The native format: traces as ``core.codec`` writes them."""

from __future__ import annotations

from pathlib import Path

from txagent_train.core.codec import trace_from_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Trace


def parse(record: JsonObject, *, path: Path, line: int) -> Trace:
    """The trace of one record; see importers.Parser."""
    if "turns" not in record and "messages" in record:
        problem = "the record has messages, not turns: it is not in the native format"
        trace_id = str(record.get("id", ""))
        raise DataError(problem, reason="other_format", trace_id=trace_id, fix="read it with --format openai")
    return trace_from_json(record)
