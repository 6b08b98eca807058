"""``txagent-train tools neighbours``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from txagent_train.cli.data.shared import AsJson, Overwrite, print_json
from txagent_train.cli.tools.shared import EmbedderOption, ToolsArgument, ToolsFormat, check_not_input
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolspecs import AUTO


def neighbours(
    tools: ToolsArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The neighbour file to write (JSON).")],
    n: Annotated[int, typer.Option("--n", min=1, help="Neighbours of each tool.")] = 10,
    embedder: EmbedderOption = "tfidf",
    format: ToolsFormat = AUTO,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Find for each tool those most like it: the hard distractors that augmentation shows beside it."""
    from txagent_train.toolsmith.embedding import make_embedder
    from txagent_train.toolsmith.neighbours import write_neighbours

    check_not_input(out, [tools])
    toolbox = Toolbox.read(tools, format)
    report = write_neighbours(toolbox, make_embedder(embedder, toolbox.tools), out, n=n, overwrite=overwrite)
    if as_json:
        print_json(report | {"out": str(out)})
    else:
        typer.echo(f"{report['neighbours_each']} neighbours for each of {report['tools']:,} tools -> {out}")
