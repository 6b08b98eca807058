"""``txagent-train tools stats``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.shared import AsJson, print_json, table
from txagent_train.cli.tools.shared import ToolsArgument, ToolsFormat
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.toolspecs import AUTO
from txagent_train.data.toolstats import CountTokens, toolbox_stats

_MAPPINGS = ("formats", "argument_types", "name_characters", "spec_characters", "spec_tokens")


def stats(
    tools: ToolsArgument,
    format: ToolsFormat = AUTO,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Count the tokens of each spec too, with this model's tokenizer."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count tools, arguments and their types, and what a spec costs in a prompt."""
    counts = toolbox_stats(Toolbox.read(tools, format), None if model is None else _counter(model))
    if as_json:
        print_json(counts)
        return
    typer.echo(f"hash: {counts.pop('hash')}")
    console = Console()
    numbers = {name.replace("_", " "): value for name, value in counts.items() if name not in _MAPPINGS}
    console.print(table(str(tools), ("what", "number"), numbers))
    for name in _MAPPINGS:
        if counts.get(name):
            console.print(table(name.replace("_", " "), ("", "number"), counts[name]))


def _counter(model: str) -> CountTokens:
    from txagent_train.models.fast_tokenizer import load_fast_tokenizer

    tokenizer = load_fast_tokenizer(model)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))
