"""ToolUniverse from 1.0: ``parameter`` is a JSON schema; beside it the type of the tool, what it returns, examples."""

from __future__ import annotations

from txagent_train.data.toolspecs.placed import PlacedFormat
from txagent_train.data.toolspecs.tooluniverse_v0 import merged_required

FORMAT = PlacedFormat(
    name="tooluniverse_v1",
    places=(("name",), ("description",), (("parameter",),)),
    around={"name": None, "description": None, "parameter": None},
    merged=merged_required,
)
