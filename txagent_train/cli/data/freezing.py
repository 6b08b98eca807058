"""``txagent-train data freeze``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from txagent_train.cli.data.shared import FORMATS, AsJson, Overwrite, print_json
from txagent_train.data.frozen import QUESTIONS, freeze
from txagent_train.data.importers import AUTO


def freeze_command(
    source: Annotated[Path, typer.Argument(help="An evaluation set: traces, or questions.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write, for data.frozen in a recipe.")],
    format: Annotated[
        str,
        typer.Option("--format", "-f", help=f"Format of the file: {QUESTIONS} (one question a record), or {FORMATS}."),
    ] = AUTO,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write hashes of an evaluation set that was made elsewhere, so that training on any of it is refused.

    What `data split` holds out is frozen already: it writes heldout.frozen.json.
    """
    frozen = freeze(source, out, format=format, overwrite=overwrite)
    counts = {kind: len(hashes) for kind, hashes in frozen.keys.items()}
    if as_json:
        print_json({"out": frozen.path, "created_from": frozen.created_from, "keys": counts})
        return
    listed = ", ".join(f"{count:,} of kind {kind}" for kind, count in counts.items() if count)
    typer.echo(f"froze {frozen.created_from['traces']:,} records -> {frozen.path} (keys: {listed})")
