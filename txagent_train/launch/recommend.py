"""Which strategy a recipe should be launched with on given hardware, and why. No torch.

The first that fits, in this order:

    1. single, or DDP where there are several GPUs: a replica on each, no traffic of weights
    2. sharded: ZeRO-3 on one node, FSDP2 on several nodes or with nf4
    3. the same with gradient checkpointing, where the recipe has none: a third more computation
    4. ZeRO-3 with weights and optimizer in host memory: slow
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import ModelError
from txagent_train.core.records import JsonObject
from txagent_train.launch.devices import GIB
from txagent_train.launch.memory import Costs, Memory
from txagent_train.launch.states import Engine, Setup
from txagent_train.launch.strategies import Strategy
from txagent_train.models.parameters import Sizes, arithmetic, model_config, on_meta, why_not_arithmetic

CHECKPOINTING = "model.gradient_checkpointing=true"


@dataclass(frozen=True, slots=True)
class Hardware:
    """What a run is launched on."""

    gpus_per_node: int
    nodes: int
    gpu_memory_bytes: int

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run: its memory on each GPU, and the longest row of tokens that would fit."""

    strategy: Strategy
    checkpointing: bool
    memory: Memory
    fits: bool
    longest_row: int

    def to_json(self) -> JsonObject:
        return asdict(self) | {"memory": self.memory.to_json()}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """``overrides``: what must be changed in the recipe for it, as ``key=value``; ``fits`` False: nothing does.

    ``why`` is a sentence for the user.
    """

    strategy: Strategy
    why: str
    fits: bool
    overrides: tuple[str, ...]
    option: Option

    def to_json(self) -> JsonObject:
        return {
            "strategy": self.strategy,
            "why": self.why,
            "fits": self.fits,
            "overrides": list(self.overrides),
            "peak": self.option.memory.peak,
            "longest_row": self.option.longest_row,
        }


def recommend(recipe: SftRecipe, *, gpus_per_node: int, nodes: int, gpu_memory_bytes: int) -> Recommendation:
    """The strategy for a recipe, in milliseconds.

    Raises:
        ModelError: the model's sizes cannot be read, or its parameters cannot be counted without loading torch.
    """
    config, _ = model_config(recipe.model.name_or_path, recipe.model.revision)
    setup = setup_of(recipe, config, torch_allowed=False)
    return choose(options(recipe, setup, Hardware(gpus_per_node, nodes, gpu_memory_bytes)), recipe, gpu_memory_bytes)


def setup_of(recipe: SftRecipe, config: JsonObject, *, torch_allowed: bool) -> Setup:
    """What of a recipe decides its memory.

    Args:
        config: of its model (models.parameters.model_config).
        torch_allowed: build models on the meta device that are not built like Llama; takes seconds.

    Raises:
        ModelError: as ``recommend``.
    """
    full = recipe.adapter.method == "full"
    lora = None if full else recipe.adapter.lora.options()
    reason = why_not_arithmetic(config, lora)
    if reason is not None and not torch_allowed:
        raise ModelError(
            f"no strategy can be recommended quickly: {reason}",
            where=recipe.model.name_or_path,
            fix="name one (--accelerate ddp, zero3, ...); `txagent-train plan RECIPE --on 4xh100` says which fits",
        )
    parameters = arithmetic(config, lora) if reason is None else on_meta(config, lora)
    return Setup(
        parameters=parameters,
        sizes=Sizes.of(config),
        full=full,
        compute_bytes=4 if recipe.model.dtype == "float32" else 2,
        optimizer=recipe.train.optimizer,
        nf4=recipe.model.quantization == "nf4",
    )


def row_tokens_of(recipe: SftRecipe) -> int:
    """The most tokens of one forward pass that a recipe allows."""
    if recipe.train.packing == "trie":
        return recipe.row_tokens
    return recipe.train.rows_per_forward * recipe.data.max_length


def _strategies(hardware: Hardware) -> tuple[Strategy, ...]:
    """Those that make sense on the hardware, the least traffic first."""
    if hardware.gpus == 1:
        return ("single", "zero3_offload")
    if hardware.nodes == 1:
        return ("ddp", "zero3", "fsdp2", "zero3_offload")
    return ("ddp", "fsdp2_multinode", "zero3", "zero3_offload")


def options(recipe: SftRecipe, setup: Setup, hardware: Hardware) -> tuple[Option, ...]:
    """Every strategy of the hardware, without and with gradient checkpointing."""
    return tuple(_options(row_tokens_of(recipe), setup, hardware))


def _options(row_tokens: int, setup: Setup, hardware: Hardware) -> Iterator[Option]:
    limit = hardware.gpu_memory_bytes
    for strategy in _strategies(hardware):
        engine: Engine = "fsdp2" if strategy == "fsdp2_multinode" else strategy
        if setup.nf4 and engine.startswith("zero3"):
            continue  # it takes no weights of 4 bits
        for checkpointing in (False, True):
            costs = Costs.of(setup, engine, ranks=hardware.gpus, checkpointing=checkpointing)
            used = costs.at(row_tokens)
            yield Option(strategy, checkpointing, used, used.peak <= limit, costs.longest_row(limit))


def choose(found: tuple[Option, ...], recipe: SftRecipe, memory_bytes: int) -> Recommendation:
    """The first option that fits, in the order of this module's docstring; else the one that is nearest to it."""
    asked = recipe.model.gradient_checkpointing
    allowed = [option for option in found if option.checkpointing or not asked]
    order = sorted(allowed, key=lambda item: (item.strategy == "zero3_offload", item.checkpointing))
    fitting = [option for option in order if option.fits]
    if not fitting:
        least = min(order, key=lambda option: option.memory.peak)
        return Recommendation(
            least.strategy, _why_not(least, recipe, memory_bytes), False, _changes(least, asked), least
        )
    best = fitting[0]
    return Recommendation(best.strategy, _why(best, order, asked), True, _changes(best, asked), best)


def _changes(option: Option, asked: bool) -> tuple[str, ...]:
    return (CHECKPOINTING,) if option.checkpointing and not asked else ()


_REASONS: dict[Strategy, str] = {
    "single": "there is one GPU, and the run fits on it",
    "ddp": "every GPU has room for all of it, and only gradients travel",
    "zero3": "sharded over the GPUs of the node it fits",
    "fsdp2": "sharded over the GPUs of the node it fits",
    "fsdp2_multinode": "sharded over the GPUs it fits",
    "zero3_offload": "only with weights and optimizer in host memory does it fit, which is slow",
}


def _why(best: Option, order: list[Option], asked: bool) -> str:
    text = f"{_REASONS[best.strategy]} ({_gib(best.memory.peak)} at its peak"
    if best.memory.host:
        text += f", and {_gib(best.memory.host)} of host memory a GPU"
    text += ")"
    replica = next((item for item in order if item.strategy in ("single", "ddp")), None)
    if replica is not None and not replica.fits and best.strategy != replica.strategy:
        text += f"; whole on each GPU it would take {_gib(replica.memory.peak)}"
    if best.checkpointing and not asked:
        text += "; it needs gradient checkpointing"
    return text


def _why_not(least: Option, recipe: SftRecipe, memory_bytes: int) -> str:
    text = f"nothing fits: the least is {_gib(least.memory.peak)} a GPU, of which there are {_gib(memory_bytes)}"
    if least.longest_row:
        key = "train.row_tokens" if recipe.train.packing == "trie" else "data.max_length"
        tokens = least.longest_row // recipe.train.rows_per_forward
        return f"{text}; rows of {tokens:,} tokens would ({key})"
    return f"{text}, whatever the length of rows; take more or larger GPUs, or model.quantization=nf4"


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
