"""What the tools commands share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.core.errors import UserError
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


def check_not_input(out: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write over what is read, whatever the paths are called; a folder is what is in it.

    Raises:
        UserError: ``out`` is one of the inputs, or a file in one.
    """
    if not out.exists():
        return
    for source in inputs:
        files = [source, *source.iterdir()] if source.is_dir() else [source]
        if any(file.exists() and file.samefile(out) for file in files):
            raise UserError("this is what is read: nothing is written over it", where=str(out), fix="name another file")
