"""Which tools are shown besides those that a trace brings: random ones, and near neighbours of those it uses.

TxAgent's candidates are the tools used, all that Tool_RAG returned, and random ones, shuffled (paper 4.1; the shuffle
is in decompose). A neighbour file is JSON: ``{"toolbox_hash", "neighbours": {tool: [names, nearest first]}}``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, ToolSpec, Trace
from txagent_train.data.mentions import SPECIAL_TOOLS
from txagent_train.data.strict_json import strict_loads
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toollists import listed_names

_FIX = "make the file anew from this toolbox"


@dataclass(frozen=True, slots=True)
class Neighbours:
    """For each tool the names of others, nearest first; a tool that is not listed has none."""

    by_tool: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, toolbox: Toolbox) -> Self:
        """Read a neighbour file.

        Raises:
            DataError: it cannot be read, is no such file, or is of another toolbox (reason ``other_toolbox``).
        """
        try:
            value = strict_loads(path.read_bytes().decode("utf-8-sig"))
        except (OSError, ValueError) as error:
            detail = getattr(error, "strerror", None) or error
            problem = f"the neighbour file cannot be read: {detail}"
            raise DataError(problem, reason="invalid_neighbours", path=str(path)) from None
        listed = value.get("neighbours") if isinstance(value, dict) else None
        if not isinstance(listed, dict) or not all(_is_list_of_texts(names) for names in listed.values()):
            problem = "a neighbour file is an object with toolbox_hash and neighbours: tool to list of names"
            raise DataError(problem, reason="invalid_neighbours", path=str(path), fix=_FIX)
        if value.get("toolbox_hash") != toolbox.hash:
            raise DataError("these are neighbours in another toolbox", reason="other_toolbox", path=str(path), fix=_FIX)
        unknown = [name for tool, names in listed.items() for name in (tool, *names) if name not in toolbox.by_name]
        if unknown:
            problem = f"the neighbours name {unknown[0]}, which is not in the toolbox"
            raise DataError(problem, reason="invalid_neighbours", path=str(path), fix=_FIX)
        return cls({tool: tuple(names) for tool, names in listed.items()})


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


@dataclass(frozen=True, slots=True)
class Pool:
    """The tools that may be shown besides those of a trace, and which are near which."""

    tools: Mapping[str, ToolSpec]
    neighbours: Neighbours
    names: Sequence[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.tools))  # a mapping cannot be drawn from

    def nearest(self, tool: str, count: int, taken: set[str]) -> list[ToolSpec]:
        """Up to ``count`` tools nearest to one, none of ``taken``, to which they are added."""
        near = (name for name in self.neighbours.by_tool.get(tool, ()) if name in self.tools)
        return self._take(near, count, taken)

    def drawn(self, count: int, taken: set[str], rng: random.Random) -> list[ToolSpec]:
        """Up to ``count`` random tools, none of ``taken``, to which they are added."""
        # Among so many there are enough that are free, if there are enough at all.
        names = rng.sample(self.names, min(len(self.names), count + len(taken)))
        return self._take(names, count, taken)

    def _take(self, names: Iterator[str] | Sequence[str], count: int, taken: set[str]) -> list[ToolSpec]:
        found: list[ToolSpec] = []
        for name in names:
            if len(found) == count:
                break
            if name not in taken:
                taken.add(name)
                found.append(self.tools[name])
        return found


def taken_names(trace: Trace) -> set[str]:
    """Names that no further tool of a trace may have: of its tools, its calls, and what Tool_RAG told."""
    taken = {*SPECIAL_TOOLS, *(spec.name for spec in trace.tools())}
    for step in trace.steps:
        taken.update(call.name for call in step.calls)
        for result in step.results:
            if result.call_index is not None and step.calls[result.call_index].name == TOOL_RAG:
                taken.update(listed_names(result.content))
    return taken


def distractors(trace: Trace, pool: Pool, rng: random.Random, *, n_random: int, n_hard: int) -> tuple[ToolSpec, ...]:
    """Tools to show besides those of a trace: ``n_hard`` nearest ones to each tool it uses, and ``n_random`` others.

    None of them is a tool of the trace, also not one that Tool_RAG adds later. Fewer where the toolbox has no more.
    """
    taken = taken_names(trace)
    used = dict.fromkeys(call.name for step in trace.steps for call in step.calls)
    hard = [spec for name in used for spec in pool.nearest(name, n_hard, taken)]
    return (*hard, *pool.drawn(n_random, taken, rng))
