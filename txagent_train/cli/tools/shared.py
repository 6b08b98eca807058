"""What the tools commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from txagent_train.data.toolspecs import AUTO, FORMATS

TOOLS_HELP = "A toolbox, or a file of tools in any format."

ToolsArgument = Annotated[Path, typer.Argument(help=TOOLS_HELP, show_default=False)]
ToolsFormat = Annotated[
    str,
    typer.Option(
        "--format", "-f", help=f"Format of the tools, one of: {', '.join([AUTO, *FORMATS])}; {AUTO} is guessed."
    ),
]
EmbedderOption = Annotated[
    str,
    typer.Option(help="What tells tools apart: tfidf (built in), or a sentence-transformers model or its folder."),
]
