"""An import: the sound traces of a file in the native format, and beside them what was left out, with reasons."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import DataKind, Trace
from txagent_train.data.arrow import is_table, struct_columns
from txagent_train.data.general import uses_tools
from txagent_train.data.importers import AUTO, SUPERVISED, Supervise, resolved_format
from txagent_train.data.loading import (
    FAULT_KEYS,
    Incomplete,
    InvalidCalls,
    Policies,
    fault_to_json,
    policies_for,
    raise_fault,
    read_numbered,
)
from txagent_train.data.reading import read_jsonl
from txagent_train.data.writing import check_free, jsonl_writer


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did. ``dropped`` counts records by reason; read = accepted + the sum of dropped.

    ``guessed`` says that ``format`` was not named. ``kinds`` counts what was accepted by its kind, trace or chat.
    ``dropped_file`` names every dropped record, or is None where all were accepted. ``fixes`` says what to do
    about a reason, where that can be said. ``chat_out`` is the file of the plain chat, where ``out`` has the traces
    alone: a source of a recipe is of one kind. ``notes`` are what else a user should know.
    """

    source: str
    out: str
    format: str
    guessed: bool
    supervise: Supervise
    read: int
    accepted: int
    kinds: dict[str, int]
    dropped: dict[str, int]
    dropped_file: str | None = None
    chat_out: str | None = None
    fixes: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def stem_of(out: Path) -> str:
    """The name of a native file without its endings."""
    return out.name.removesuffix(".gz").removesuffix(".jsonl")


def beside(out: Path, part: str) -> Path:
    """``traces.jsonl.gz`` with ``eval`` -> ``traces.eval.jsonl.gz``."""
    stem = stem_of(out)
    return out.with_name(f"{stem}.{part}{out.name.removeprefix(stem)}")


def chat_path(out: Path) -> Path:
    """Where an import to ``out`` writes the plain chat that stands beside traces."""
    return beside(out, "chat")


def dropped_path(out: Path) -> Path:
    """Where an import to ``out`` names the records that it left out."""
    return out.with_name(f"{out.name}.dropped.jsonl")


def import_traces(
    source: Path,
    out: Path,
    *,
    format: str = AUTO,
    incomplete: Incomplete = "drop",
    invalid_calls: InvalidCalls = "drop",
    supervise: Supervise | None = None,
    overwrite: bool = False,
) -> ImportReport:
    """Write the sound traces of a file in the native format, and the dropped ones, with their reasons, beside it.

    Plain chat that stands beside traces goes to ``chat_path(out)``.

    Args:
        supervise: as read_numbered.

    Raises:
        DataError: the file cannot be read, or a record has a fault that is to be an error: nothing is written.
            Or no record is accepted: the dropped ones are written.
        UserError: ``out`` or a file beside it exists already, or there is no such format.
        EnvironmentFailure: the machine refused to write.
    """
    check_free(out, overwrite=overwrite)
    found = resolved_format(source, format)
    guessed = format == AUTO
    written = write_traces(
        lambda policies: (trace for _, trace in read_numbered(source, found, policies, supervise=supervise)),
        out,
        source=source,
        read_as=f"{found} (guessed; --format names another)" if guessed else found,
        incomplete=incomplete,
        invalid_calls=invalid_calls,
        overwrite=overwrite,
    )
    return ImportReport(
        source=str(source),
        out=str(out),
        format=found,
        guessed=guessed,
        supervise=supervise or SUPERVISED.get(found, "all"),
        read=written.read,
        accepted=written.accepted,
        kinds=written.kinds,
        dropped=written.dropped,
        dropped_file=written.dropped_file,
        chat_out=written.chat_out,
        fixes=written.fixes,
        notes=(*_notes(source), *written.notes),
    )


@dataclass(frozen=True, slots=True)
class Written:
    """What was written and what was left out; see ImportReport."""

    accepted: int
    kinds: dict[str, int]
    dropped: dict[str, int]
    dropped_file: str | None
    chat_out: str | None
    fixes: dict[str, str]
    notes: tuple[str, ...]

    @property
    def read(self) -> int:
        """How many records there were."""
        return self.accepted + sum(self.dropped.values())


def write_traces(
    read: Callable[[Policies], Iterable[Trace]],
    out: Path,
    *,
    source: Path,
    read_as: str,
    incomplete: Incomplete,
    invalid_calls: InvalidCalls,
    overwrite: bool,
) -> Written:
    """Write the traces that ``read`` gives in the native format, and what it leaves out, with reasons, beside it.

    Plain chat goes to ``chat_path(out)`` where there are traces, too. ``source`` is what the user named, and
    ``read_as`` its format, for the message of an error.

    Raises:
        DataError, UserError, EnvironmentFailure: as import_traces.
    """
    check_free(out, overwrite=overwrite)
    side, chat_out = dropped_path(out), chat_path(out)
    over_side = overwrite or is_leftover(side, out)
    check_free(side, overwrite=over_side)
    dropped: Counter[str] = Counter()
    fixes: dict[str, str] = {}
    behind_calls = 0
    # The out file is named last: an import that left it is whole.
    with jsonl_writer(out, overwrite=overwrite) as traces:
        with jsonl_writer(chat_out, overwrite=overwrite) as chat:
            with jsonl_writer(side, overwrite=over_side) as left_out:

                def drop(error: DataError) -> None:
                    dropped[error.reason] += 1
                    if error.fix:
                        fixes.setdefault(error.reason, error.fix)
                    left_out.write(fault_to_json(error))

                for trace in read(policies_for(invalid_calls, incomplete, drop=drop, stop=raise_fault, on_fault=drop)):
                    (traces if uses_tools(trace) else chat).write(trace_to_json(trace))
                    behind_calls += any(step.calls and step.raw_output is not None for step in trace.steps)
            if not traces.count + chat.count:
                raise _nothing_accepted(source, read_as, side, dropped, fixes)
        kinds = {DataKind.TRACE.value: traces.count, DataKind.CHAT.value: chat.count}
        if not traces.count:
            for _, record in read_jsonl(chat_out):
                traces.write(record)
    both = all(kinds.values())
    if not both:
        chat_out.unlink()
    if not dropped:
        side.unlink()
    return Written(
        accepted=sum(kinds.values()),
        kinds=kinds,
        dropped=dict(dropped.most_common()),
        dropped_file=str(side) if dropped else None,
        chat_out=str(chat_out) if both else None,
        fixes=fixes,
        notes=(f"{behind_calls:,} records have text that only raw_output keeps: it stands behind calls",)
        if behind_calls
        else (),
    )


def is_leftover(side: Path, out: Path) -> bool:
    """Whether ``side`` is what an import left that accepted nothing: it has the form of one, and no file beside it."""
    if os.path.exists(out) or not os.path.isfile(side):
        return False
    try:
        first = next(read_jsonl(side), None)
    except DataError:
        return False
    return first is not None and first[1].keys() == FAULT_KEYS


def _notes(source: Path) -> tuple[str, ...]:
    columns = struct_columns(source) if is_table(source) else ()
    if not columns:
        return ()
    return (
        f"{', '.join(columns)}: a key with null inside was left out, for the file format fills in such keys; "
        "if nulls are data there, write the column as JSON text",
    )


def _nothing_accepted(
    source: Path, read_as: str, side: Path, dropped: Counter[str], fixes: dict[str, str]
) -> DataError:
    lines = [
        f"{count} {reason}" + (f": {fixes[reason]}" if reason in fixes else "") for reason, count in dropped.items()
    ]
    problem = f"none of the {dropped.total()} records is accepted, read as {read_as}"
    problem = "".join([problem, *(f"\n  {line}" for line in lines)])
    return DataError(problem, reason="nothing_accepted", path=str(source), fix=f"each is named in {side}")
