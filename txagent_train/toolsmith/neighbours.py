"""Which tools of a toolbox are alike: the hard distractors of augmentation."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.writing import check_free
from txagent_train.toolsmith.embedding import Embedder
from txagent_train.toolsmith.reserved import rewritable
from txagent_train.tracking.files import atomic_write_json


def nearest_tools(toolbox: Toolbox, embedder: Embedder, n: int) -> dict[str, list[str]]:
    """For each tool the ``n`` tools most like it, nearest first; the tools of the agent's loop are left out."""
    tools = rewritable(toolbox)
    if not tools:
        return {}
    vectors = embedder.embed(tools)
    near = vectors @ vectors.T  # [tools, tools]
    np.fill_diagonal(near, -np.inf)
    # Stable: tools that are equally near stand in the order of the toolbox.
    order = np.argsort(-near, axis=1, kind="stable")[:, : min(n, len(tools) - 1)]
    return {tool.name: [tools[other].name for other in row] for tool, row in zip(tools, order, strict=True)}


def write_neighbours(
    toolbox: Toolbox, embedder: Embedder, path: Path, *, n: int = 10, overwrite: bool = False
) -> JsonObject:
    """Write the neighbour file, and say what is in it.

    Raises:
        UserError: the file exists and ``overwrite`` is False, its name promises a compressed one, or nothing can be
            written there.
    """
    if path.suffix in (".gz", ".zst"):
        raise UserError("a file of neighbours is not compressed", where=str(path), fix="end its name in .json")
    check_free(path, overwrite=overwrite)
    nearest = nearest_tools(toolbox, embedder, n)
    file = {"toolbox_hash": toolbox.hash, "embedder": embedder.name, "neighbours": nearest}
    atomic_write_json(path, file)
    return {"tools": len(nearest), "neighbours_each": min(n, max(len(nearest) - 1, 0)), "embedder": embedder.name}
