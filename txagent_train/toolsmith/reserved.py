"""Which tools get versions, and which names no version may take."""

from __future__ import annotations

from txagent_train.core.records import ToolSpec
from txagent_train.data.mentions import SPECIAL_TOOLS
from txagent_train.data.toolbox import Toolbox


def rewritable(toolbox: Toolbox) -> tuple[ToolSpec, ...]:
    """The tools that get versions, in the order of the toolbox: all but those that the agent knows by name."""
    return tuple(tool for tool in toolbox.tools if tool.name not in SPECIAL_TOOLS)


def reserved_names(toolbox: Toolbox) -> frozenset[str]:
    """Names that no version may have, case folded: those of all tools, and of the special ones."""
    return frozenset(name.casefold() for name in (*toolbox.by_name, *SPECIAL_TOOLS))
