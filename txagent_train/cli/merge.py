"""``txagent-train merge``: an adapter and its base model become one model."""

from __future__ import annotations

import json as json_codec
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.core.errors import UserError
from txagent_train.data.writing import check_place

ADAPTER_CONFIG = "adapter_config.json"


class MergeDtype(StrEnum):
    """Dtype of the merged weights."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def merge(
    adapter: Annotated[
        Path, typer.Argument(help="The adapter's folder (model/ in a run directory).", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option(help="Where to write the merged model; an empty or new folder.", show_default=False)
    ],
    dtype: Annotated[
        MergeDtype, typer.Option(help="Of the merged weights; auto: bfloat16 on a GPU, float32 on a CPU.")
    ] = MergeDtype.AUTO,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Merge an adapter into its base model, and prove that the result answers the same."""
    check_place(out / "x")
    _check_not_a_run(adapter)
    from txagent_train.sft.merge import merge as merge_adapter

    report = merge_adapter(adapter, out, dtype=dtype.value)
    if json:
        print(json_codec.dumps(report.to_json()))
    else:
        print(
            f"{report.out}: {report.base} with {report.adapter}; logits differ by {report.logit_difference:.1e} at most"
        )


def _check_not_a_run(adapter: Path) -> None:
    """Raise UserError where the folder is no adapter, but the run directory of one."""
    if not (adapter / ADAPTER_CONFIG).is_file() and (adapter / "model" / ADAPTER_CONFIG).is_file():
        problem = "this is a run directory, not an adapter"
        raise UserError(problem, where=str(adapter), fix=f"did you mean {adapter / 'model'}?")
