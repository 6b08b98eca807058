"""A tool as name, description and JSON schema alone.

The schema is called ``parameters``; in lists made for Anthropic models ``input_schema``, and by an MCP server
``inputSchema``.
"""

from __future__ import annotations

from txagent_train.data.toolspecs.placed import PlacedFormat

FORMAT = PlacedFormat(
    name="plain",
    places=(("name",), ("description",), (("parameters",), ("input_schema",), ("inputSchema",))),
    around={"name": None, "description": None, "parameters": None},
)
