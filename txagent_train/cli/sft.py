"""``txagent-train sft``: one supervised fine-tuning run."""

from __future__ import annotations

import json as json_codec
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.config.loading import load_recipe
from txagent_train.config.paths import check_files
from txagent_train.config.shipped import find_recipe
from txagent_train.data.writing import check_place


def sft(
    recipe: Annotated[
        str, typer.Argument(help="The recipe (kind: sft): a file, or the name of a shipped one.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe.", show_default=False)
    ] = None,
    resume: Annotated[
        str,
        typer.Option(
            help="auto: go on with the run in output_dir if there is one; never: refuse it; or a checkpoint's path."
        ),
    ] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Fine-tune a model on tool-use traces.

    SIGINT (Ctrl-C) and SIGTERM finish the step, save a checkpoint and exit with 130; --resume auto goes on from it.
    """
    path = find_recipe(recipe)
    loaded = load_recipe(path, overrides or ())
    check_files(loaded, where=str(path))  # before torch is imported, which takes seconds
    check_place(loaded.output_dir / "x")
    from txagent_train.sft.retention import retention_words
    from txagent_train.sft.run import Resume, run_sft
    from txagent_train.tracking.logging import rank
    from txagent_train.tracking.metrics import read_metrics

    named: dict[str, Resume] = {"auto": "auto", "never": "never"}
    result = run_sft(loaded, resume=named.get(resume, Path(resume)))
    if rank() != 0:
        return
    if json:
        print(json_codec.dumps(result.to_json()))
        return
    loss = "" if result.loss is None else f", loss {result.loss:.4f}"
    held_out = "" if result.eval_loss is None else f", held-out loss {result.eval_loss:.4f}"
    words = retention_words(read_metrics(result.run_dir / "metrics.jsonl").records)
    kept = f", {words}" if words else ""
    print(f"{result.steps} optimizer steps done{loss}{held_out}{kept}; the model is in {result.model_dir}")
