"""What can be found wrong with a run before it trains."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from peft import LoraConfig
from transformers import PreTrainedModel

from txagent_train.config.paths import check_files
from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import ModelError
from txagent_train.models.loading import check_loadable
from txagent_train.sft.adapter import check_same_kind, lora_config
from txagent_train.sft.prepared import PreparedRows


def check_recipe(recipe: SftRecipe) -> LoraConfig | None:
    """Everything that can be found wrong in a second or two, before anything is written."""
    check_files(recipe)
    model = recipe.model
    check_loadable(model.name_or_path, attn_implementation=model.attn_implementation, quantization=model.quantization)
    if recipe.train.optimizer.endswith("8bit") and not torch.cuda.is_available():
        raise ModelError(f"{recipe.train.optimizer} needs a GPU", where="train.optimizer", fix="use adamw_torch")
    if recipe.adapter.method == "full":
        return None
    config = lora_config(recipe.adapter.lora.options(), recipe=recipe.name)
    if recipe.adapter.init_from is not None:
        check_same_kind(recipe.adapter.init_from, config)
    return config


def check_rows(model: PreTrainedModel, prepared: Sequence[PreparedRows], *, pad_token_id: int) -> None:
    """Check that every prepared row fits the model: its length and its token ids.

    Raises:
        ModelError: names the longest sample, or the token id, that does not fit.
    """
    config = model.config.get_text_config()
    limit = _most_positions(config)
    vocabulary = int(config.vocab_size)
    for rows in prepared:
        lengths = rows.length
        number = int(lengths.argmax())
        if limit is not None and lengths[number] > limit:
            trace = rows.trace_ids[int(rows.trace[number])]
            raise ModelError(
                f"the longest sample (trace {trace}, step {rows.step[number]}) has {lengths[number]} tokens, but the "
                f"model takes {limit} (max_position_embeddings)",
                where="data.max_length",
                fix=f"set data.max_length={limit} and data.overlong=drop, or take another model",
            )
        largest = max(int(rows.pool.max()), pad_token_id)
        if largest >= vocabulary:
            raise ModelError(
                f"the tokenizer gives the token id {largest}, but the model has only {vocabulary} tokens",
                where="model.name_or_path",
                fix="use the tokenizer that belongs to the model",
            )


def _most_positions(config: object) -> int | None:
    """The longest row a model takes; where its positions are scaled, more than it was first trained with."""
    limit: int | None = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    factor = rope.get("factor")
    if limit is None or not factor:
        return limit
    return max(limit, int(factor * (rope.get("original_max_position_embeddings") or limit)))
