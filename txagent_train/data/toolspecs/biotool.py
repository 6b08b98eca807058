"""BioTool's records of single calls: the tool is their ``document``, beside the call and what came of it.

    {"function": ..., "document": {"name", "description", "parameters"}, "params": {...}, "observation": ...}

BioTool's tools.json has the format ``openai``.
"""

from __future__ import annotations

from txagent_train.data.toolspecs.placed import PlacedFormat

FORMAT = PlacedFormat(
    name="biotool",
    places=(("document", "name"), ("document", "description"), (("document", "parameters"),)),
    around={"document": {"name": None, "description": None, "parameters": None}},
)
