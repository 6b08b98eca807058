"""The renderer of a recipe, without torch: looking at data and preparing it need none."""

from __future__ import annotations

from txagent_train.config.sft import ModelSection, WireSection
from txagent_train.models.fast_tokenizer import load_fast_tokenizer
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import wire_format_for


def renderer_for(model: ModelSection, wire: WireSection, seed: int) -> Renderer:
    """The renderer of these sections of a recipe; whoever uses the trained model renders with the same."""
    tokenizer = load_fast_tokenizer(model.name_or_path, model.revision)
    form = wire_format_for(
        tokenizer, frame=wire.frame, syntax=wire.syntax, finish=wire.finish, tool_delivery=wire.tool_delivery
    )
    return Renderer(tokenizer, form, seed=seed)
