"""Specs in, a toolbox file out; and the way back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject
from txagent_train.data.importing import dropped_path, is_leftover
from txagent_train.data.loading import fault_to_json, raise_fault
from txagent_train.data.toolbox import Toolbox, check_packing, write_packed
from txagent_train.data.toolspecs import AUTO, ORIGIN, format_for, origin_format, states_parameters
from txagent_train.data.toolspecs.reading import read_specs
from txagent_train.data.writing import check_free, jsonl_writer

Duplicates: TypeAlias = Literal["error", "first"]
"""What to do with a tool that has the name of an earlier, different one: stop, or keep the first and count."""


@dataclass(frozen=True, slots=True)
class ToolImportReport:
    """What an import did: read = accepted + repeated + the sum of dropped.

    ``formats`` counts the accepted specs by format, ``guessed`` says that it was not named. ``repeated`` are specs that
    were there already, the same to the letter. ``no_parameters`` counts accepted ones that say nothing of their
    arguments: they are tools that take none. ``dropped_file`` names every dropped spec. ``fixes`` says what to do about
    a reason, where that can be said.
    """

    sources: list[str]
    out: str
    formats: dict[str, int]
    guessed: bool
    read: int
    accepted: int
    repeated: int
    no_parameters: int
    hash: str
    dropped: dict[str, int]
    dropped_file: str | None = None
    fixes: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def import_tools(
    sources: Sequence[Path],
    out: Path,
    *,
    format: str = AUTO,
    duplicates: Duplicates = "error",
    overwrite: bool = False,
) -> ToolImportReport:
    """Write the tools of files and folders as one toolbox, and the dropped ones, with their reasons, beside it.

    Raises:
        DataError: a file cannot be read, two different tools have one name, or no spec is accepted.
        UserError: ``out`` or the file beside it exists already, or there is no such format.
        EnvironmentFailure: the machine refused to write.
    """
    check_packing(out)
    check_free(out, overwrite=overwrite)
    side = dropped_path(out)
    over_side = overwrite or is_leftover(side, out)
    check_free(side, overwrite=over_side)
    faults: list[DataError] = []
    found = read_specs(
        sources, format, on_fault=faults.append, on_duplicate=raise_fault if duplicates == "error" else faults.append
    )
    dropped = Counter(fault.reason for fault in faults)
    if faults:
        with jsonl_writer(side, overwrite=over_side) as left_out:
            for fault in faults:
                left_out.write(fault_to_json(fault))
    elif over_side:
        side.unlink(missing_ok=True)
    if not found.specs:
        listed = "".join(f"\n  {count} {reason}" for reason, count in dropped.items())
        fix = f"each is named in {side}" if faults else ""
        problem = f"none of the {found.read} specs is accepted{listed}"
        raise DataError(problem, reason="nothing_accepted", path=str(sources[0]), fix=fix)
    toolbox = Toolbox(tuple(placed.spec for placed in found.specs))
    toolbox.write(out, overwrite=overwrite)
    return ToolImportReport(
        sources=[str(source) for source in sources],
        out=str(out),
        formats=dict(found.formats.most_common()),
        guessed=format == AUTO,
        read=found.read,
        accepted=len(toolbox.tools),
        repeated=found.repeated,
        no_parameters=sum(not states_parameters(tool) for tool in toolbox.tools),
        hash=toolbox.hash,
        dropped=dict(dropped.most_common()),
        dropped_file=str(side) if faults else None,
        fixes={fault.reason: fault.fix for fault in reversed(faults) if fault.fix},
    )


@dataclass(frozen=True, slots=True)
class ToolExportReport:
    """What an export wrote. ``formats`` counts the specs by the format they were written in.

    ``reduced`` counts those that were read in another format and had more than name, description and parameters: the
    rest stays in the toolbox.
    """

    out: str
    written: int
    formats: dict[str, int]
    reduced: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def export_tools(toolbox: Toolbox, out: Path, *, format: str = ORIGIN, overwrite: bool = False) -> ToolExportReport:
    """Write the specs of a toolbox as a JSON list, or one a line where ``out`` is named ``.jsonl``; ``.gz`` compresses.

    Args:
        format: the format to write them in; ORIGIN: each as it was read, to the letter.

    Raises:
        DataError: the format cannot hold a tool.
        UserError: ``out`` exists already, or there is no such format.
    """
    check_packing(out)
    check_free(out, overwrite=overwrite)
    named = None if format == ORIGIN else format_for(format)
    items: list[JsonObject] = []
    formats: Counter[str] = Counter()
    reduced = 0
    for tool in toolbox.tools:
        own = origin_format(tool)
        chosen = named or own
        items.append(chosen.write(tool))
        formats[chosen.name] += 1
        reduced += "item" in tool.origin and chosen.name not in ("native", own.name)
    if out.name.endswith((".jsonl", ".jsonl.gz")):
        text = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
    else:
        text = json.dumps(items, ensure_ascii=False, indent=2) + "\n"
    write_packed(out, text)
    return ToolExportReport(str(out), len(items), dict(formats.most_common()), reduced)
