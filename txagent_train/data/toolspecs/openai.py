"""The list of functions of an OpenAI request: ``{"type": "function", "function": {name, description, parameters}}``.

The tools.json of BioTool is such a list.
"""

from __future__ import annotations

from txagent_train.data.toolspecs.placed import PlacedFormat

FORMAT = PlacedFormat(
    name="openai",
    places=(("function", "name"), ("function", "description"), (("function", "parameters"),)),
    around={"type": "function", "function": {"name": None, "description": None, "parameters": None}},
)
