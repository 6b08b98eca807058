"""The parameters of a model by name and shape, from its sizes alone: what is there, and what of it is trained.

arithmetic   Llama, Mistral, Qwen2 and Qwen3 with ordinary LoRA: no torch, milliseconds
on_meta      whatever transformers and peft can build, on the meta device: seconds, no weights either

Names are those of the plain model; an adapter's go behind its layer: ``...q_proj.lora_A.weight``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Literal

from txagent_train.core.errors import ModelError
from txagent_train.core.records import JsonObject
from txagent_train.models.embedded import is_embedded
from txagent_train.models.shape import read_shape

Part = Literal["embedding", "head", "matrix", "other", "adapter"]
"""``matrix``: the weight of a linear layer, which nf4 quantizes; the head it leaves alone."""

HEAD = "lm_head"
_EMBEDDING = "model.embed_tokens"
_KNOWN = Path(__file__).with_name("known_shapes.json")
_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_NEEDED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
_COUNTED = frozenset(
    ["r", "target_modules", "exclude_modules", "rank_pattern", "use_dora", "modules_to_save", "layers_to_transform"]
)
# Options that change values or speed, never which parameters there are.
_OF_NO_SIZE = frozenset(["lora_alpha", "lora_dropout", "alpha_pattern", "use_rslora", "init_lora_weights"])


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter tensor; ``layer`` is the number of its decoder block, None outside of them."""

    name: str
    shape: tuple[int, ...]
    trainable: bool
    part: Part

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def layer(self) -> int | None:
        return _layer_of(self.name)


def _layer_of(name: str) -> int | None:
    found = re.search(r"\.layers\.(\d+)\.", f".{name}")
    return int(found.group(1)) if found else None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a decoder like Llama's, under short names; ``heads`` are those of queries."""

    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    tied: bool
    query_norm: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Sizes:
        """From the names of config.json.

        Raises:
            ModelError: a size is missing.
        """
        missing = [name for name in _NEEDED if not config.get(name)]
        if missing:
            raise ModelError(
                f"the model's configuration has no {', '.join(missing)}, by which memory is counted",
                where="model.name_or_path",
            )
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        return cls(
            vocabulary=config["vocab_size"],
            hidden=hidden,
            inner=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            key_heads=config.get("num_key_value_heads") or heads,
            head_size=config.get("head_dim") or hidden // heads,
            tied=bool(config.get("tie_word_embeddings", False)),
            query_norm=config.get("model_type") == "qwen3",
        )


@cache
def known_shapes() -> Mapping[str, JsonObject]:
    """The sizes of the models that shipped recipes name, from their public config.json: no network is needed."""
    found: Mapping[str, JsonObject] = json.loads(_KNOWN.read_text(encoding="utf-8"))
    return found


def model_config(name_or_path: str, revision: str | None = None) -> tuple[JsonObject, str]:
    """The sizes of a model under the names of its config.json, and in words where they are from.

    Raises:
        ModelError: as read_shape.
    """
    if revision is None and name_or_path in known_shapes() and not Path(name_or_path).is_dir():
        return known_shapes()[name_or_path], "the package's table of known models"
    return read_shape(name_or_path, revision), "its GGUF file" if is_embedded(name_or_path) else "its config.json"


def why_not_arithmetic(config: Mapping[str, Any], lora: Mapping[str, Any] | None) -> str | None:
    """Why ``arithmetic`` cannot count this model or adapter, in words; None if it can.

    Args:
        lora: options of peft.LoraConfig, None for full fine-tuning.
    """
    family = config.get("model_type")
    if family not in _FAMILIES:
        return f"models of the type {family} are not built like Llama's"
    odd = sorted(
        name for name, value in (lora or {}).items() if value and name not in _COUNTED | _OF_NO_SIZE and value != "none"
    )
    return f"adapter.lora.{odd[0]} may change which parameters there are" if odd else None


def arithmetic(config: Mapping[str, Any], lora: Mapping[str, Any] | None) -> tuple[Parameter, ...]:
    """All parameters of a Llama-like model, trained fully or with LoRA. No torch.

    Args:
        config: the names of config.json; a model of which ``why_not_arithmetic`` is None.
        lora: options of peft.LoraConfig, None for full fine-tuning.

    Raises:
        ModelError: a size is missing; a target matches no layer, or the head or the embedding.
    """
    base = list(_base(config, Sizes.of(config), trainable=lora is None))
    return tuple(base) if lora is None else (*base, *_lora(base, lora))


def _base(config: Mapping[str, Any], sizes: Sizes, *, trainable: bool) -> Iterator[Parameter]:
    family = config["model_type"]
    hidden = sizes.hidden
    queries, keys = sizes.heads * sizes.head_size, sizes.key_heads * sizes.head_size
    bias = family != "mistral" and bool(config.get("attention_bias"))
    query_bias = family == "qwen2" or bias
    mlp_bias = family == "llama" and bool(config.get("mlp_bias"))
    linear = {
        "self_attn.q_proj": (queries, hidden, query_bias),
        "self_attn.k_proj": (keys, hidden, query_bias),
        "self_attn.v_proj": (keys, hidden, query_bias),
        "self_attn.o_proj": (hidden, queries, bias and family != "qwen2"),
        "mlp.gate_proj": (sizes.inner, hidden, mlp_bias),
        "mlp.up_proj": (sizes.inner, hidden, mlp_bias),
        "mlp.down_proj": (hidden, sizes.inner, mlp_bias),
    }
    yield Parameter(f"{_EMBEDDING}.weight", (sizes.vocabulary, hidden), trainable, "embedding")
    for layer in range(sizes.layers):
        block = f"model.layers.{layer}"
        for name, (out, inputs, has_bias) in linear.items():
            yield Parameter(f"{block}.{name}.weight", (out, inputs), trainable, "matrix")
            if has_bias:
                yield Parameter(f"{block}.{name}.bias", (out,), trainable, "other")
        for name in ("q_norm", "k_norm") if sizes.query_norm else ():
            yield Parameter(f"{block}.self_attn.{name}.weight", (sizes.head_size,), trainable, "other")
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield Parameter(f"{block}.{name}.weight", (hidden,), trainable, "other")
    yield Parameter("model.norm.weight", (hidden,), trainable, "other")
    if not sizes.tied:
        yield Parameter(f"{HEAD}.weight", (sizes.vocabulary, hidden), trainable, "head")


def _lora(base: Sequence[Parameter], options: Mapping[str, Any]) -> Iterator[Parameter]:
    """What peft adds: the two factors of each target, DoRA's magnitudes, and copies of modules to save."""
    linear = {item.name.removesuffix(".weight"): item.shape for item in base if item.part == "matrix"}
    others = {item.name.rpartition(".")[0] for item in base} | {HEAD}
    targets = [name for name in linear if _is_target(name, options)]
    wrong = [] if _all_linear(options) else [name for name in others - set(linear) if _is_target(name, options)]
    if wrong or not targets:
        raise ModelError(
            f"matches {wrong[0]}; only linear layers inside the blocks can be adapted" if wrong else "matches no layer",
            where="adapter.lora.target_modules",
            fix=f"the linear layers are: {', '.join(sorted({name.rpartition('.')[2] for name in linear}))}",
        )
    patterns = options.get("rank_pattern") or {}
    for name in targets:
        out, inputs = linear[name]
        # As peft: the first pattern that matches the end of the name.
        rank = next((patterns[key] for key in patterns if re.match(rf"(.*\.)?({key})$", name)), options.get("r", 8))
        yield Parameter(f"{name}.lora_A.weight", (rank, inputs), True, "adapter")
        yield Parameter(f"{name}.lora_B.weight", (out, rank), True, "adapter")
        if options.get("use_dora"):
            yield Parameter(f"{name}.lora_magnitude_vector.weight", (out,), True, "adapter")
    for item in base:
        copied = _saved_module(item.name, options.get("modules_to_save") or ())
        if copied is not None:
            yield Parameter(f"{copied}.modules_to_save{item.name.removeprefix(copied)}", item.shape, True, "other")


def _all_linear(options: Mapping[str, Any]) -> bool:
    targets = options.get("target_modules")
    return isinstance(targets, str) and targets.lower() == "all-linear"


def _is_target(name: str, options: Mapping[str, Any]) -> bool:
    """Whether peft puts an adapter on this module (peft.tuners.tuners_utils.check_target_module_exists)."""
    if any(re.match(rf"(^|.*\.){saved}($|\..*)", name) for saved in options.get("modules_to_save") or ()):
        return False
    if _named(name, options.get("exclude_modules")):
        return False
    targets = options.get("target_modules")
    if not (_all_linear(options) or _named(name, targets)):
        return False
    chosen = options.get("layers_to_transform")
    if chosen in (None, []) or isinstance(targets, str) or name in (targets or ()):
        return True
    return _layer_of(name) in ([chosen] if isinstance(chosen, int) else chosen)


def _named(name: str, chosen: str | Sequence[str] | None) -> bool:
    """Whether a module is meant by a regular expression, or by one of several names or ends of names."""
    if isinstance(chosen, str):
        return re.fullmatch(chosen, name) is not None
    return any(name == item or name.endswith(f".{item}") for item in chosen or ())


def _saved_module(name: str, saved: Sequence[str]) -> str | None:
    """The module to save that a parameter lies in; peft finds such modules by the end of their names."""
    parts = name.split(".")
    modules = (".".join(parts[:stop]) for stop in range(1, len(parts)))
    return next((module for module in modules if module.endswith(tuple(saved))), None)


def on_meta(config: Mapping[str, Any], lora: Mapping[str, Any] | None) -> tuple[Parameter, ...]:
    """The same of any architecture, by building model and adapter on the meta device. Imports torch.

    Raises:
        ModelError: the model or the adapter cannot be built.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        fields = dict(config)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(fields.pop("model_type"), **fields))
            head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
            linear = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Linear)}
            kinds: dict[int, Part] = dict.fromkeys(linear, "matrix")
            kinds[id(head.weight)] = "head"
            kinds[id(embedding.weight)] = "embedding"  # also where it is the head
            adapted = model if lora is None else get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **lora))
    except Exception as error:  # whatever the libraries make of a configuration
        raise ModelError(f"the model cannot be built from its configuration: {error}", where="model") from error
    return tuple(
        Parameter(
            _plain_name(name),
            tuple(item.shape),
            item.requires_grad,
            "adapter" if ".lora_" in name else kinds.get(id(item), "other"),
        )
        for name, item in adapted.named_parameters()
    )


def _plain_name(name: str) -> str:
    for part in ("base_model.model.", "base_layer.", "original_module.", "default."):
        name = name.replace(part, "", 1)
    return name.removesuffix(".default")
