"""Traces recorded with one version of a toolbox, made traces of another: new names, new specs.

The map says which tool became which. Specs are those of the target toolbox, without their origin (it stays in the
toolbox file); names change wherever they stand in a trace (data.renaming), also where Tool_RAG returned them.
Arguments are left as they were recorded, and those that do not fit the new spec are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, JsonObject, Step, ToolSpec, Trace
from txagent_train.data.checks import check_call
from txagent_train.data.importers import AUTO, resolved_format
from txagent_train.data.importing import write_traces
from txagent_train.data.loading import Policies, read_numbered
from txagent_train.data.mentions import SPECIAL_TOOLS, Word, is_identifier
from txagent_train.data.reading import read_document
from txagent_train.data.renaming import Change, Renaming
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toollists import listed_names, without

Direction: TypeAlias = Literal["v1", "v0"]
"""The version that traces are migrated to: v1 has the new names of a map, v0 the old ones."""
Unmapped: TypeAlias = Literal["drop", "keep", "error"]
"""What to do with a tool that has no counterpart.

``drop``: a trace that calls it is left out; where it is only listed, it leaves the list. ``keep``: it stays under its
name, with its spec.
"""
NOT_IN_MAP = "the map does not name it"
NO_COUNTERPART = "the map has no counterpart for it"


def read_name_map(path: Path, to: Direction) -> dict[str, str | None]:
    """The names of a map, from those of the traces to those of the target; None: there is no counterpart.

    The file is a list of ``{"old_name": ..., "new_name": ... or null}``, or an object ``{old: new or null}``.

    Raises:
        DataError: it cannot be read, or one name would become two.
    """
    value = read_document(path)
    if isinstance(value, dict):
        pairs: list[Any] = list(value.items())
    else:
        rows = value if isinstance(value, list) else [None]
        pairs = [(row.get("old_name"), row.get("new_name")) if isinstance(row, dict) else (None, None) for row in rows]
    out: dict[str, str | None] = {}
    for place, (old, new) in enumerate(pairs, 1):
        if not isinstance(old, str) or not isinstance(new, (str, type(None))):
            problem = "this is no map of names: each entry needs old_name, and new_name or null"
            raise DataError(problem, reason="invalid_name_map", path=str(path), line=place)
        source, target = (old, new) if to == "v1" else (new, old)
        if source is None:
            continue
        if out.setdefault(source, target) != target:
            problem = f"{source} would become both {out[source]} and {target}"
            raise DataError(problem, reason="invalid_name_map", path=str(path), line=place, fix="keep one of the two")
    return out


@dataclass(slots=True)
class Migrator:
    """Migrates traces, one after the other, and counts.

    ``unmapped`` counts the traces in which a tool without counterpart is called or listed, by tool; ``why`` says for
    each why it has none. ``calls`` counts the calls that were migrated, ``invalid_arguments`` those of them that do not
    fit the new spec, by new name.
    """

    toolbox: Toolbox
    names: Mapping[str, str | None]
    on_unmapped: Unmapped = "drop"
    unmapped: Counter[str] = field(default_factory=Counter)
    why: dict[str, str] = field(default_factory=dict)
    calls: int = 0
    invalid_arguments: Counter[str] = field(default_factory=Counter)

    def migrate(self, trace: Trace) -> Trace:
        """The trace of the other toolbox.

        Raises:
            DataError: it uses a tool without counterpart (reason ``unmapped_tool``), or two of its tools become one.
        """
        specs = {spec.name: spec for spec in trace.tools()}
        called = {call.name for step in trace.steps for call in step.calls}
        returned = {name for step in trace.steps for name in _returned(step) if name in self.names or name in specs}
        targets = {name: self._target(name) for name in (*specs, *called, *returned) if name not in SPECIAL_TOOLS}
        lost = sorted(name for name, target in targets.items() if target is None)
        self.unmapped.update(lost)
        self._handle(lost, called, trace)
        if lost and self.on_unmapped == "drop":
            trace = _without(trace, set(lost))
        changes = dict(self._changes(specs, targets))
        renamed = {old: change.new.name for old, change in changes.items() if change.new.name != old}
        words = {old: Word(new, quoted=not is_identifier(old)) for old, new in renamed.items()}
        out = self._finished(Renaming(changes, words).apply(trace))
        self._count_calls(out, {change.new.name for change in changes.values()})
        return out

    def _target(self, name: str) -> ToolSpec | None:
        """The counterpart of a tool; without one, ``why`` says why."""
        new = self.names.get(name, name)
        if new is not None and new in self.toolbox.by_name:
            return replace(self.toolbox.by_name[new], origin={})
        reason = NO_COUNTERPART if new is None else f"its counterpart {new} is not in the toolbox"
        self.why[name] = reason if name in self.names else NOT_IN_MAP
        return None

    def _handle(self, lost: list[str], called: set[str], trace: Trace) -> None:
        refused = [name for name in lost if self.on_unmapped == "error" or name in called]
        if refused and self.on_unmapped != "keep":
            use = "calls" if refused[0] in called else "lists"
            problem = f"the trace {use} {refused[0]}: {self.why[refused[0]]}"
            fix = "add it to the map or to the toolbox, or keep such tools as they are (--unmapped keep)"
            raise DataError(problem, reason="unmapped_tool", trace_id=trace.id, fix=fix)

    def _changes(
        self, specs: Mapping[str, ToolSpec], targets: Mapping[str, ToolSpec | None]
    ) -> Iterator[tuple[str, Change]]:
        for name, target in targets.items():
            if target is not None:
                yield name, Change(specs.get(name, ToolSpec(name, "", {})), target, {})

    def _finished(self, trace: Trace) -> Trace:
        """The trace with the toolbox's own specs for the tools of the agent's loop, and nested traces migrated."""

        def specs(tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
            own = self.toolbox.by_name
            return tuple(
                replace(own[tool.name], origin={}) if tool.name in SPECIAL_TOOLS and tool.name in own else tool
                for tool in tools
            )

        turns = []
        for turn in trace.turns:
            if isinstance(turn, Step):
                results = tuple(
                    result if result.sub_trace is None else replace(result, sub_trace=self.migrate(result.sub_trace))
                    for result in turn.results
                )
                turn = replace(turn, tools_added=specs(turn.tools_added), results=results)
            turns.append(turn)
        return replace(trace, initial_tools=specs(trace.initial_tools), turns=tuple(turns))

    def _count_calls(self, trace: Trace, new_names: set[str]) -> None:
        for call in (call for step in trace.steps for call in step.calls if call.name in new_names):
            self.calls += 1
            try:
                check_call(call, self.toolbox.by_name)
            except DataError:
                self.invalid_arguments[call.name] += 1


def _is_search(step: Step, index: int | None) -> bool:
    return index is not None and step.calls[index].name == TOOL_RAG


def _returned(step: Step) -> Iterator[str]:
    """What Tool_RAG returned, as far as it may be a name."""
    for result in step.results:
        if _is_search(step, result.call_index):
            yield from listed_names(result.content)


def _without(trace: Trace, names: set[str]) -> Trace:
    """The trace with some tools listed and returned no more."""

    def kept(tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        return tuple(tool for tool in tools if tool.name not in names)

    turns = []
    for turn in trace.turns:
        if isinstance(turn, Step):
            results = tuple(
                replace(result, content=without(result.content, names.__contains__))
                if _is_search(turn, result.call_index)
                else result
                for result in turn.results
            )
            turn = replace(turn, tools_added=kept(turn.tools_added), results=results)
        turns.append(turn)
    return replace(trace, initial_tools=kept(trace.initial_tools), turns=tuple(turns))


# ---- files ----


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """What a migration did; read = accepted + the sum of dropped. The other counts are those of Migrator."""

    source: str
    out: str
    format: str
    to: Direction
    read: int
    accepted: int
    dropped: dict[str, int]
    dropped_file: str | None
    fixes: dict[str, str]
    unmapped: dict[str, int]
    why: dict[str, str]
    calls: int
    invalid_arguments: dict[str, int]

    def to_json(self) -> JsonObject:
        return asdict(self)


def migrate_traces(
    source: Path,
    out: Path,
    *,
    names: Path,
    to: Direction,
    toolbox: Toolbox,
    unmapped: Unmapped = "drop",
    format: str = AUTO,
    overwrite: bool = False,
) -> MigrateReport:
    """Write the traces of a file with the tools of another toolbox; what is left out, with reasons, beside it.

    Args:
        names: the file of the map.

    Raises:
        DataError: a file cannot be read, with ``unmapped="error"`` a tool has no counterpart, or no trace is accepted.
        UserError: ``out`` exists already, or there is no such format.
        EnvironmentFailure: the machine refused to write.
    """
    migrator = Migrator(toolbox, read_name_map(names, to), unmapped)
    found = resolved_format(source, format)

    def read(policies: Policies) -> Iterator[Trace]:
        for line, trace in read_numbered(source, found, policies):
            try:
                migrated = migrator.migrate(trace)
            except DataError as error:
                error = error.at(path=str(source), line=line)
                if unmapped == "error" and error.reason == "unmapped_tool":
                    raise error from None
                policies.on_fault(error)
                continue
            yield migrated

    written = write_traces(
        read, out, source=source, read_as=found, incomplete="steps", invalid_calls="keep", overwrite=overwrite
    )
    return MigrateReport(
        source=str(source),
        out=str(out),
        format=found,
        to=to,
        read=written.read,
        accepted=written.accepted,
        dropped=written.dropped,
        dropped_file=written.dropped_file,
        fixes=written.fixes,
        unmapped=dict(migrator.unmapped.most_common()),
        why={name: migrator.why[name] for name in migrator.unmapped},
        calls=migrator.calls,
        invalid_arguments=dict(migrator.invalid_arguments.most_common()),
    )
