"""Traces from files, record by record: leniently for an import, strictly for training.

A fault of the file (not UTF-8, a torn line, not JSON) is always an error. A fault of one record is handed to the
caller: an import counts it by reason and goes on, training stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Step, Trace
from txagent_train.data.checks import check_calls, check_complete, check_names, check_text
from txagent_train.data.importers import NATIVE, SUPERVISED, Parser, Supervise, parser_for, resolved_format
from txagent_train.data.reading import Wanted, every_record, read_records

InvalidCalls: TypeAlias = Literal["error", "drop", "keep"]
"""What to do with a trace whose calls name no tool or break its schema."""
Incomplete: TypeAlias = Literal["error", "drop", "steps"]
"""What to do with a trace that does not end in an answer; ``steps`` keeps it, so that its steps are trained on."""
OnFault: TypeAlias = Callable[[DataError], None]
"""Receives the fault of a record that is left out."""


@dataclass(frozen=True, slots=True)
class Policies:
    """Where each fault of a record goes; None: it is not looked for.

    ``on_fault`` receives what no setting concerns. A handler may raise the fault.
    """

    on_fault: OnFault
    on_incomplete: OnFault | None
    on_invalid_call: OnFault | None


def read_numbered(
    path: Path,
    format: str,
    policies: Policies,
    *,
    supervise: Supervise | None = None,
    wanted: Wanted = every_record,
    unique_ids: bool = True,
) -> Iterator[tuple[int, Trace]]:
    """The sound traces of a file, streamed, each with its line. A record is left out after its fault was handed over.

    Args:
        format: one of IMPORTERS, or AUTO.
        supervise: which steps are trained on; None: as is usual for the format (importers.SUPERVISED).
        wanted: which records are parsed at all, by line.
        unique_ids: an id that comes a second time is a fault; else the caller sees to it, who knows of more records.

    Raises:
        DataError: the file cannot be read or holds no record, or its format cannot be told.
        UserError: there is no such format.
    """
    format = resolved_format(path, format)
    last_only = (supervise or SUPERVISED.get(format, "all")) == "last"
    seen = set[str]() if unique_ids else None
    return read_parsed(path, parser_for(format), policies, seen=seen, last_only=last_only, wanted=wanted)


def read_parsed(
    path: Path,
    parse: Parser,
    policies: Policies,
    *,
    seen: set[str] | None,
    last_only: bool = False,
    limit: int | None = None,
    wanted: Wanted = every_record,
) -> Iterator[tuple[int, Trace]]:
    """The same with the parser at hand.

    Args:
        seen: the ids of the traces so far, of this file and of others; they are added to it. None: any id may come.
        last_only: only the last step of each trace is trained on.
        limit: how many records are read; None: all.

    Raises:
        DataError: the file cannot be read or holds no record.
    """
    read = 0

    def counted(line: int) -> bool:
        nonlocal read
        read += 1
        return wanted(line)

    for line, record in islice(read_records(path, counted), limit):
        handler = policies.on_fault
        try:
            trace = parse(record, path=path, line=line)
            if last_only:
                trace = supervise_last(trace)
            _check_record(trace, seen)
            if policies.on_incomplete is not None:
                handler = policies.on_incomplete
                check_complete(trace)
            if policies.on_invalid_call is not None:
                handler = policies.on_invalid_call
                check_calls(trace)
        except DataError as error:
            handler(error.at(path=str(path), line=line))
            continue
        except RecursionError:
            deep = DataError("the record is nested too deeply", reason="nested_too_deeply")
            policies.on_fault(deep.at(path=str(path), line=line))
            continue
        if seen is not None:
            seen.add(trace.id)
        yield line, trace
    if not read:
        raise DataError("the file holds no records", reason="no_records", path=str(path))


def supervise_last(trace: Trace) -> Trace:
    """The trace with no step trained on but its last, and that one as its own flags say."""
    last = trace.steps[-1]
    turns = (
        replace(turn, train=False) if isinstance(turn, Step) and turn is not last else turn for turn in trace.turns
    )
    return replace(trace, turns=tuple(turns))


def _check_record(trace: Trace, seen: set[str] | None) -> None:
    if seen is not None and trace.id in seen:
        raise DataError("another trace of the file has the same id", reason="duplicate_id", trace_id=trace.id)
    check_text(trace)
    check_names(trace)


def raise_fault(error: DataError) -> NoReturn:
    """The strict handler: the fault is an error."""
    raise error


def policies_for(
    invalid_calls: InvalidCalls, incomplete: Incomplete, *, drop: OnFault, stop: OnFault, on_fault: OnFault
) -> Policies:
    handlers: dict[str, OnFault | None] = {"error": stop, "drop": drop, "keep": None, "steps": None}
    return Policies(on_fault, on_incomplete=handlers[incomplete], on_invalid_call=handlers[invalid_calls])


def load_traces(
    path: Path,
    format: str = NATIVE,
    *,
    invalid_calls: InvalidCalls = "error",
    incomplete: Incomplete = "error",
    on_drop: OnFault | None = None,
) -> Iterator[Trace]:
    """The traces of a file for training, streamed; see load_numbered."""
    numbered = load_numbered(path, format, invalid_calls=invalid_calls, incomplete=incomplete, on_drop=on_drop)
    return (trace for _, trace in numbered)


def load_numbered(
    path: Path,
    format: str = NATIVE,
    *,
    invalid_calls: InvalidCalls = "error",
    incomplete: Incomplete = "error",
    on_drop: OnFault | None = None,
    on_fault: OnFault = raise_fault,
    wanted: Wanted = every_record,
    unique_ids: bool = True,
) -> Iterator[tuple[int, Trace]]:
    """The traces of a file for training, streamed, each with its line: the first bad record is an error.

    Args:
        invalid_calls: what to do with a trace whose calls name no tool or break its schema.
        incomplete: what to do with a trace that does not end in an answer. A native file was made by an import or by
            this package, so an incomplete trace in it was kept on purpose: it is no error there.
        on_drop: receives each fault where one of these is "drop"; needed then, for nothing is dropped unseen.
        on_fault: receives every fault that is an error; it may take note of it and go on.
        wanted: which records are parsed at all, by line; the others are not judged.
        unique_ids: as read_numbered.

    Raises:
        DataError: names the file and line, the trace, and the step where there is one.
        UserError: there is no such format.
    """
    assert "drop" not in (invalid_calls, incomplete) or on_drop is not None, "dropping needs on_drop"
    format = resolved_format(path, format)
    if format == NATIVE and incomplete == "error":
        incomplete = "steps"
    policies = policies_for(invalid_calls, incomplete, drop=on_drop or raise_fault, stop=on_fault, on_fault=on_fault)
    return read_numbered(path, format, policies, wanted=wanted, unique_ids=unique_ids)


FAULT_KEYS = {"file", "line", "id", "step", "reason", "problem"}
"""What fault_to_json writes."""


def fault_to_json(error: DataError) -> JsonObject:
    """One dropped record as it is written: where it stands and why it was left out."""
    return {
        "file": error.path,
        "line": error.line,
        "id": _encodable(error.trace_id),
        "step": error.step,
        "reason": error.reason,
        "problem": _encodable(error.problem),
    }


def _encodable(text: str) -> str:
    """The text with half surrogate pairs spelled out, for they may be the very fault that is told."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
