"""What one source of a recipe brings: traces of its kind, and none that must not be trained on.

    file ──format──> Trace ──kind──> trace with tools, or chat ──guards──> trained on
                                                          │
                                                          ├── exclusion list, ablations, held-out tools: left out
                                                          │   and counted
                                                          └── frozen evaluation set: an error

Weights are those of the loss (config.sft.SourceSection.weight): every trace is read once an epoch, whatever its source.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Self

from txagent_train.config.sft import DataSection, SourceSection
from txagent_train.core.errors import DataError, RecipeError
from txagent_train.core.records import DataKind, JsonObject, Trace
from txagent_train.data.checks import check_text
from txagent_train.data.exclusion import EXCLUDED, Exclusion
from txagent_train.data.frozen import FrozenSet
from txagent_train.data.general import ROW_PARSERS, as_chat, is_plain_row, uses_tools
from txagent_train.data.importers import AUTO, Parser, resolved_format
from txagent_train.data.loading import OnFault, load_numbered, raise_fault
from txagent_train.data.reading import Wanted, every_record, read_records
from txagent_train.data.variation import Variation
from txagent_train.tracking.files import file_sha256

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Guards:
    """What keeps traces out of training. Read once for all sources; can be sent to other processes.

    ``variation`` also says what becomes of those that stay. ``fingerprint`` is of the contents of the files: prepared
    rows depend on it.
    """

    exclusion: Exclusion
    frozen: tuple[FrozenSet, ...]
    variation: Variation
    fingerprint: JsonObject

    @classmethod
    def of(cls, data: DataSection, seed: int = 0) -> Self:
        """Read the files that a recipe names; ``seed`` is the recipe's.

        Raises:
            DataError: one cannot be read, or is not what it should be.
        """
        variation = Variation.of(data, seed)
        return cls(
            exclusion=Exclusion.read(data.exclude),
            frozen=tuple(FrozenSet.read(path) for path in data.frozen),
            variation=variation,
            fingerprint={
                "exclude": [file_sha256(path) for path in data.exclude],
                "frozen": [file_sha256(path) for path in data.frozen],
                "augment": variation.fingerprint,
            },
        )

    def check(self, trace: Trace) -> None:
        """Raise DataError where a trace must not be trained on; what is left out need not be unfrozen too."""
        self.exclusion.check(trace)
        self.variation.check(trace)
        for frozen in self.frozen:
            frozen.check(trace)

    def drops(self, reason: str) -> bool:
        """Whether a trace with this fault is left out and counted; if not, it is an error."""
        return reason == EXCLUDED or self.variation.drops(reason)

    def shares_call(self, trace: Trace) -> bool:
        """Whether a call of the trace is also in a frozen set, which is told and not forbidden (data.frozen)."""
        return any(frozen.shares_call(trace) for frozen in self.frozen)


def source_traces(
    source: SourceSection,
    data: DataSection,
    *,
    training: bool,
    guards: Guards,
    on_drop: OnFault,
    on_fault: OnFault = raise_fault,
    wanted: Wanted = every_record,
    unique_ids: bool = True,
) -> Iterator[tuple[int, Trace]]:
    """The traces of a source, streamed, each with its line; general data comes as chat traces.

    Args:
        training: whether they will be trained on; held-out data is not guarded.
        on_drop: receives the fault of each trace that is left out: those that the recipe says to drop, those about
            an excluded entity, and those that ablations or held-out tools keep out.
        on_fault: receives every other fault: an error, unless the caller takes note of it and goes on.
        wanted: which records are read, by line; what is dropped elsewhere is not told.
        unique_ids: as loading.read_numbered.

    Raises:
        DataError: a record is wrong and the recipe says error, is of another kind, or is in a frozen evaluation set;
            names file, line and trace.
    """
    for line, found in _read(source, data, on_drop, on_fault, wanted, unique_ids):
        try:
            trace = of_kind(found, source.kind)
            if training:
                guards.check(trace)
        except DataError as error:
            fault = error.at(path=str(source.path), line=line, trace_id=found.id)
            (on_drop if guards.drops(fault.reason) else on_fault)(fault)
            continue
        yield line, trace


def _read(
    source: SourceSection, data: DataSection, on_drop: OnFault, on_fault: OnFault, wanted: Wanted, unique_ids: bool
) -> Iterator[tuple[int, Trace]]:
    parse = row_parser(source)
    if parse is not None:
        return _read_rows(source.path, parse, on_fault, wanted, unique_ids)
    return load_numbered(
        source.path,
        source.format,
        invalid_calls=data.invalid_calls,
        incomplete=data.incomplete,
        on_drop=on_drop,
        on_fault=on_fault,
        wanted=wanted,
        unique_ids=unique_ids,
    )


def format_of(source: SourceSection) -> str:
    """The format of a source, guessed where it is to be; ``rows`` are plain rows of general data (data.general).

    Raises:
        DataError: it cannot be told, or the file cannot be read.
    """
    if row_parser(source) is not None:
        return "rows"
    return resolved_format(source.path, source.format)


def row_parser(source: SourceSection) -> Parser | None:
    """The parser of plain rows, where the format is to be told and the file begins with such a row."""
    if source.format != AUTO or source.kind not in ROW_PARSERS:
        return None
    first = next((record for _, record in read_records(source.path)), None)
    return ROW_PARSERS[source.kind] if first is not None and is_plain_row(first) else None


def _read_rows(
    path: Path, parse: Parser, on_fault: OnFault, wanted: Wanted, unique_ids: bool
) -> Iterator[tuple[int, Trace]]:
    lines: dict[str, int] = {}
    for line, record in read_records(path, wanted):
        try:
            trace = parse(record, path=path, line=line)
            if unique_ids and trace.id in lines:
                problem = "another row of the file has the same id"
                fix = f"the other one is in line {lines[trace.id]}; give each row an id of its own"
                raise DataError(problem, reason="duplicate_id", trace_id=trace.id, fix=fix)
            check_text(trace)
        except DataError as error:
            on_fault(error.at(path=str(path), line=line))
            continue
        lines[trace.id] = line
        yield line, trace


def of_kind(trace: Trace, kind: str) -> Trace:
    """The trace as its source's kind has it: recorded tool use as it is, the rest as chat.

    Raises:
        DataError: reason ``other_kind``: the trace is of the other sort.
    """
    if kind != DataKind.TRACE:
        return as_chat(trace)
    if not uses_tools(trace):
        problem = "the record has neither a tool nor a call: it is plain chat"
        fix = "set kind: chat for this source, or put such records into a file of their own"
        raise DataError(problem, reason="other_kind", trace_id=trace.id, fix=fix)
    return trace


def check_sources(data: DataSection, hashes: Mapping[str, str], *, recipe: str) -> None:
    """Check that no two data files have the same content, whatever they are called.

    Args:
        hashes: of the files, by path as in the recipe.

    Raises:
        RecipeError: a file counts twice, or is trained on and held out too.
    """
    problems = []
    seen: dict[str, str] = {}
    for part, sources in (("sources", data.sources), ("eval", data.eval)):
        for index, source in enumerate(sources):
            key, content = f"data.{part}.{index}.path", hashes[str(source.path)]
            if content in seen:
                other = seen[content]
                why = "held-out data must be other data" if part != other.split(".")[1] else "use its weight instead"
                problems.append(f"{key}: has the same content as {other}; {why}")
            else:
                seen[content] = key
    if problems:
        raise RecipeError(recipe, problems)


def source_labels(paths: Sequence[str]) -> tuple[str, ...]:
    """Short names of files for charts and records: the end of each path, as much as tells it from the others."""
    parts = [PurePath(path).parts for path in paths]

    def label(own: tuple[str, ...]) -> str:
        ends = (own[-depth:] for depth in range(1, len(own) + 1))
        alone = (end for end in ends if sum(other[-len(end) :] == end for other in parts) == 1)
        return str(PurePath(*next(alone, own)))

    return tuple(label(own) for own in parts)
