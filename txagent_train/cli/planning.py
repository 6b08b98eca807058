"""What ``plan --on`` adds: memory on each GPU, the time, and which strategy fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from txagent_train.config.sft import SftRecipe
from txagent_train.core.records import JsonObject
from txagent_train.launch.devices import GIB, Device
from txagent_train.launch.duration import Work
from txagent_train.launch.recommend import (
    Hardware,
    Option,
    Recommendation,
    choose,
    options,
    row_tokens_of,
    setup_of,
)
from txagent_train.launch.states import Setup
from txagent_train.models.parameters import model_config

if TYPE_CHECKING:
    from txagent_train.sft.layout import RowLayout
    from txagent_train.sft.plan import RunPlan


@dataclass(frozen=True, slots=True)
class HardwarePlan:
    """A recipe on hardware. ``config``: of its model; ``source``: where the sizes in it are from, in words."""

    device: Device
    hardware: Hardware
    config: JsonObject
    setup: Setup
    source: str
    row_tokens: int
    options: tuple[Option, ...]
    recommendation: Recommendation

    @classmethod
    def of(cls, recipe: SftRecipe, gpus_per_node: int, device: Device, nodes: int) -> HardwarePlan:
        """Count the memory of every strategy. Loads torch only for a model that is not built like Llama.

        Raises:
            ModelError: as launch.recommend.setup_of.
        """
        config, source = model_config(recipe.model.name_or_path, recipe.model.revision)
        setup = setup_of(recipe, config, torch_allowed=True)
        hardware = Hardware(gpus_per_node, nodes, device.memory_bytes)
        found = options(recipe, setup, hardware)
        chosen = choose(found, recipe, device.memory_bytes)
        return cls(device, hardware, config, setup, source, row_tokens_of(recipe), found, chosen)

    @property
    def trainable(self) -> int:
        return sum(item.numel for item in self.setup.parameters if item.trainable)

    @property
    def total(self) -> int:
        return sum(item.numel for item in self.setup.parameters)

    @property
    def per_layer(self) -> int:
        """Parameters of one decoder block, adapters included."""
        return sum(item.numel for item in self.setup.parameters if item.layer == 0)

    def to_json(self) -> JsonObject:
        return {
            "gpus_per_node": self.hardware.gpus_per_node,
            "nodes": self.hardware.nodes,
            "gpu": self.device.name,
            "gpu_memory_bytes": self.device.memory_bytes,
            "gpu_bf16_tflops": self.device.tflops,
            "parameters": {"total": self.total, "trainable": self.trainable, "per_layer": self.per_layer},
            "sizes_from": self.source,
            "row_tokens": self.row_tokens,
            "options": [option.to_json() for option in self.options],
            "recommendation": self.recommendation.to_json(),
        }


def work_of(
    recipe: SftRecipe, planned: HardwarePlan, run: RunPlan, layout: RowLayout, counts: Mapping[str, Any]
) -> Work:
    """The FLOPs of a run as recommended; ``counts`` are sft.token_plan.TokenCounts of the whole run, as JSON."""
    from txagent_train.sft.metrics import FlopModel

    setup = planned.setup
    body = sum(item.numel for item in setup.parameters if item.part not in ("embedding", "head"))
    flops = FlopModel(body, setup.sizes.vocabulary * setup.sizes.hidden, 6 if setup.full else 4)
    return Work.of(
        planned.config,
        model_flops=flops.step_flops(counts["computed"], counts["supervised"]),
        body_parameters=body,
        tokens=counts["computed"],
        pairs=_pairs(run, layout),
        checkpointing=planned.recommendation.option.checkpointing,
    )


def _pairs(run: RunPlan, layout: RowLayout) -> int:
    """Pairs of a token and one that it sees, over all steps."""
    from txagent_train.sft.layout import split_trace, traces_in, trie_size

    total = 0
    for number, step in enumerate(run.steps):
        rows = run.rows_of(number)
        tries: Iterable[range] = (range(row, row + 1) for row in step.rows)
        if layout.packing == "trie":
            traces = traces_in(rows, step.rows)
            tries = (trie for trace in traces for trie in split_trace(rows, trace, layout.row_tokens))
        total += sum(trie_size(rows, trie)[1] for trie in tries)
    return total


def time_json(work: Work, planned: HardwarePlan, utilisation: float) -> JsonObject:
    """The time of a run; ``utilisation`` is the share of the GPUs' peak that is assumed."""
    hours = work.hours(gpus=planned.hardware.gpus, tflops=planned.device.tflops, utilisation=utilisation)
    return {"flops": work.to_json(), "mfu": utilisation, "hours": hours}


def show_memory(name: str, planned: HardwarePlan) -> None:
    """The table of strategies, and what is recommended."""
    hardware, device = planned.hardware, planned.device
    where = f"{hardware.gpus_per_node} x {device.name}" + (f" x {hardware.nodes} nodes" * (hardware.nodes > 1))
    # Narrow enough for 80 columns.
    out = Table(
        title=escape(f"{name}: GiB on a GPU, {where} ({device.memory_gib:g} GiB)"),
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    out.add_column("strategy", no_wrap=True)
    out.add_column("ckpt", no_wrap=True)
    for heading in ("weights", "grads", "optim", "copies", "working", "peak", "host", "max row"):
        out.add_column(heading, justify="right", no_wrap=True)
    for option in planned.options:
        used = option.memory
        working = max(used.activations + used.loss, used.step) + used.allowance
        parts = (used.weights, used.gradients, used.optimizer, used.copies, working, used.peak, used.host)
        out.add_row(
            option.strategy,
            "on" if option.checkpointing else "off",
            *(f"{part / GIB:.1f}" for part in parts),
            f"{option.longest_row:,}",
            style="" if option.fits else "dim",
        )
    console = Console()
    console.print(out)
    for line in _notes(planned):
        console.print(escape(line), soft_wrap=True, highlight=False)


def _notes(planned: HardwarePlan) -> list[str]:
    best = planned.recommendation
    changes = "".join(f" with {change}" for change in best.overrides)
    return [
        f"{planned.total:,} parameters, {planned.trainable:,} of them trained; {planned.per_layer:,} in a layer. "
        f"Sizes of the model: {planned.source}.",
        f"Rows of {planned.row_tokens:,} tokens. Weights, gradients and optimizer are exact; copies and working "
        "(activations and loss or the optimizer's step, context, fragmentation) are estimates. host: for each GPU; "
        "max row: the most tokens of a row that would fit.",
        f"{'recommended' if best.fits else 'does not fit'}: {best.strategy}{changes}: {best.why}.",
    ]


def show_time(time: JsonObject, planned: HardwarePlan) -> None:
    """One line for the hours."""
    flops = time["flops"]
    again = f", {flops['recompute']:.2e} recomputed" if flops["recompute"] else ""
    print(
        f"{flops['model']:.2e} FLOPs of the model, {flops['attention']:.2e} of attention{again}: "
        f"{time['hours']:.2f} hours on {planned.hardware.gpus} GPUs at {time['mfu']:.0%} of "
        f"{planned.device.tflops:g} TFLOP/s (an assumption: --mfu)."
    )
