"""The toolbox that traces bring with them: every tool that they show or that Tool_RAG added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.importers import AUTO
from txagent_train.data.loading import policies_for, raise_fault, read_numbered
from txagent_train.data.mentions import reads_alike
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolimport import Duplicates
from txagent_train.data.writing import check_free


@dataclass(frozen=True, slots=True)
class CollectReport:
    """What was found in how many traces. ``unlike`` counts, by name, traces whose tool is not the one that was kept;
    ``undeclared`` the traces that call a tool that they do not show."""

    sources: list[str]
    out: str
    traces: int
    tools: int
    unlike: dict[str, int]
    undeclared: dict[str, int]
    dropped: dict[str, int]

    def to_json(self) -> JsonObject:
        return asdict(self)


def collect_tools(
    sources: Sequence[Path],
    out: Path,
    *,
    format: str = AUTO,
    duplicates: Duplicates = "error",
    overwrite: bool = False,
) -> CollectReport:
    """Write the tools of traces as one toolbox, in the order in which they occur.

    Args:
        duplicates: for a tool that another trace has with other parameters or another description: ``error``, or
            ``first``: the first is kept, and the others are counted.

    Raises:
        DataError: a file cannot be read, a tool has two forms and ``duplicates`` is ``error``, or there is no tool.
        UserError: ``out`` exists already, or there is no such format.
    """
    check_free(out, overwrite=overwrite)
    tools: dict[str, ToolSpec] = {}
    unlike: Counter[str] = Counter()
    undeclared: Counter[str] = Counter()
    dropped: Counter[str] = Counter()

    def drop(error: DataError) -> None:
        dropped[error.reason] += 1

    policies = policies_for("keep", "steps", drop=drop, stop=raise_fault, on_fault=drop)
    traces = 0
    for source in sources:
        for line, trace in read_numbered(source, format, policies):
            traces += 1
            shown = trace.tools()
            for spec in shown:
                kept = tools.setdefault(spec.name, replace(spec, origin={}))
                if not reads_alike(kept, spec):
                    if duplicates == "error":
                        raise DataError(
                            f"{spec.name} has another description or other parameters here than in an earlier trace",
                            reason="unlike_tool",
                            path=str(source),
                            line=line,
                            trace_id=trace.id,
                            fix="keep the first with --duplicates first",
                        )
                    unlike[spec.name] += 1
            names = {spec.name for spec in shown}
            undeclared.update({call.name for step in trace.steps for call in step.calls} - names)
    if not tools:
        problem = f"none of the {traces} traces brings a tool"
        raise DataError(problem, reason="no_tools", path=str(sources[0]), fix="read the specs with tools import")
    Toolbox(tuple(tools.values())).write(out, overwrite=overwrite)
    return CollectReport(
        sources=[str(source) for source in sources],
        out=str(out),
        traces=traces,
        tools=len(tools),
        unlike=dict(unlike.most_common()),
        undeclared=dict(undeclared.most_common()),
        dropped=dict(dropped.most_common()),
    )
