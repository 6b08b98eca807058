"""Traces from files, record by record: leniently for an import, strictly for training.

A fault of the file (not UTF-8, a torn line, not JSON) is always an error. A fault of one record is handed to the
caller: an import counts it by reason and goes on, training stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.checks import check_calls, check_complete, check_names, check_text
from txagent_train.data.importers import NATIVE, parser_for
from txagent_train.data.reading import read_records
from txagent_train.data.writing import check_free, jsonl_writer

InvalidCalls: TypeAlias = Literal["error", "drop", "keep"]
"""What to do with a trace whose calls name no tool or break its schema."""
OnFault: TypeAlias = Callable[[DataError], None]
"""Receives the fault of a record that is left out."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. ``dropped`` counts records by reason; read = accepted + the sum of dropped.

    ``dropped_file`` names every dropped record, or is None where all were accepted. ``fixes`` says what to do
    about a reason, where that can be said.
    """

    source: str
    out: str
    read: int
    accepted: int
    dropped: dict[str, int]
    dropped_file: str | None = None
    fixes: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_traces(
    path: Path,
    format: str,
    *,
    keep_incomplete: bool,
    on_fault: OnFault,
    on_invalid_call: OnFault | None,
) -> Iterator[Trace]:
    """The sound traces of a file, streamed; see read_numbered."""
    numbered = read_numbered(
        path, format, keep_incomplete=keep_incomplete, on_fault=on_fault, on_invalid_call=on_invalid_call
    )
    return (trace for _, trace in numbered)


def read_numbered(
    path: Path,
    format: str,
    *,
    keep_incomplete: bool,
    on_fault: OnFault,
    on_invalid_call: OnFault | None,
) -> Iterator[tuple[int, Trace]]:
    """The sound traces of a file, streamed, each with its line. A record is left out after its fault was handed over.

    Args:
        on_fault: receives every fault but invalid calls; may raise it.
        on_invalid_call: receives the fault of a trace whose calls name no tool or break its schema; None does not
            check calls.

    Raises:
        DataError: the file cannot be read or holds no record.
        UserError: there is no such format.
    """
    parse = parser_for(format)
    seen: set[str] = set()
    read = 0
    for line, record in read_records(path):
        read += 1
        handler = on_fault
        try:
            trace = parse(record, path=path, line=line)
            _check_record(trace, seen, keep_incomplete)
            if on_invalid_call is not None:
                handler = on_invalid_call
                check_calls(trace)
        except DataError as error:
            handler(error.at(path=str(path), line=line))
            continue
        seen.add(trace.id)
        yield line, trace
    if not read:
        raise DataError("the file holds no records", reason="no_records", path=str(path))


def _check_record(trace: Trace, seen: set[str], keep_incomplete: bool) -> None:
    if trace.id in seen:
        raise DataError("another trace of the file has the same id", reason="duplicate_id", trace_id=trace.id)
    check_text(trace)
    check_names(trace)
    if not keep_incomplete:
        check_complete(trace)


def raise_fault(error: DataError) -> NoReturn:
    """The strict handler: the fault is an error."""
    raise error


def _call_handler(invalid_calls: InvalidCalls, drop: OnFault) -> OnFault | None:
    handlers: dict[InvalidCalls, OnFault | None] = {"error": raise_fault, "drop": drop, "keep": None}
    return handlers[invalid_calls]


def load_traces(
    path: Path,
    format: str = NATIVE,
    *,
    invalid_calls: InvalidCalls = "error",
    on_drop: OnFault | None = None,
) -> Iterator[Trace]:
    """The traces of a file for training, streamed; see load_numbered."""
    return (trace for _, trace in load_numbered(path, format, invalid_calls=invalid_calls, on_drop=on_drop))


def load_numbered(
    path: Path,
    format: str = NATIVE,
    *,
    invalid_calls: InvalidCalls = "error",
    on_drop: OnFault | None = None,
) -> Iterator[tuple[int, Trace]]:
    """The traces of a file for training, streamed, each with its line: the first bad record is an error.

    A native file was made by an import or by this package, so an incomplete trace in it was kept on purpose; in any
    other format it is an error.

    Args:
        invalid_calls: what to do with a trace whose calls name no tool or break its schema.
        on_drop: receives each fault where ``invalid_calls`` is "drop"; needed then, for nothing is dropped unseen.

    Raises:
        DataError: names the file and line, the trace, and the step where there is one.
        UserError: there is no such format.
    """
    assert invalid_calls != "drop" or on_drop is not None, "dropping needs on_drop"
    return read_numbered(
        path,
        format,
        keep_incomplete=format == NATIVE,
        on_fault=raise_fault,
        on_invalid_call=_call_handler(invalid_calls, on_drop or raise_fault),
    )


def dropped_path(out: Path) -> Path:
    """Where an import to ``out`` names the records that it left out."""
    return out.with_name(f"{out.name}.dropped.jsonl")


def import_traces(
    source: Path,
    out: Path,
    *,
    format: str,
    keep_incomplete: bool = False,
    invalid_calls: InvalidCalls = "drop",
    overwrite: bool = False,
) -> ImportReport:
    """Write the sound traces of a file in the native format, and the dropped ones, with their reasons, beside it.

    Raises:
        DataError: the file cannot be read, or a call is invalid and ``invalid_calls`` is "error": nothing is written.
            Or no record is accepted: the dropped ones are written.
        UserError: ``out`` or the file beside it exists already, or there is no such format.
        EnvironmentFailure: the machine refused to write.
    """
    check_free(out, overwrite=overwrite)
    side = dropped_path(out)
    check_free(side, overwrite=overwrite)
    dropped: Counter[str] = Counter()
    fixes: dict[str, str] = {}
    # The side file is named first: an import that left its out file is whole.
    with jsonl_writer(out, overwrite=overwrite) as accepted:
        with jsonl_writer(side, overwrite=overwrite) as left_out:

            def drop(error: DataError) -> None:
                dropped[error.reason] += 1
                if error.fix:
                    fixes.setdefault(error.reason, error.fix)
                left_out.write(fault_to_json(error))

            for trace in read_traces(
                source,
                format,
                keep_incomplete=keep_incomplete,
                on_fault=drop,
                on_invalid_call=_call_handler(invalid_calls, drop),
            ):
                accepted.write(trace_to_json(trace))
        if not accepted.count:
            raise _nothing_accepted(source, side, dropped, fixes)
    if not dropped:
        side.unlink()
    return ImportReport(
        source=str(source),
        out=str(out),
        read=accepted.count + dropped.total(),
        accepted=accepted.count,
        dropped=dict(dropped.most_common()),
        dropped_file=str(side) if dropped else None,
        fixes=fixes,
    )


def _nothing_accepted(source: Path, side: Path, dropped: Counter[str], fixes: dict[str, str]) -> DataError:
    lines = [
        f"{count} {reason}" + (f": {fixes[reason]}" if reason in fixes else "") for reason, count in dropped.items()
    ]
    problem = "".join([f"none of the {dropped.total()} records is accepted", *(f"\n  {line}" for line in lines)])
    return DataError(problem, reason="nothing_accepted", path=str(source), fix=f"each is named in {side}")


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
