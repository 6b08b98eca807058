"""Attention over rows of tries: which kernel computes it, and what a forward pass must be given for it.

``trie`` is an attention implementation of ours, registered with transformers under that name. What it does, the inputs
of the forward pass decide (attention_inputs):

    a row that is one chain   plain causal attention: nothing to hide
    CPU                       causal pieces and rectangles through the fused kernel, no mask (packing.segments)
    GPU                       FlexAttention with a block mask (packing.flex)
    none of ours              plain causal attention, so that the model still takes a plain batch

``sdpa`` and ``eager`` get a dense mask: U x U numbers, for short rows, and what the fast ways are compared with.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from txagent_train.core.errors import ModelError
from txagent_train.packing.flex import block_mask, flex, pad_row
from txagent_train.packing.segments import Segments, segment_attention, segments_of

Kernel = Literal["sdpa", "flash_attention_2", "eager", "trie"]
TRIE: Kernel = "trie"


def attention_kernel(asked: Literal["auto"] | Kernel, packing: Literal["none", "trie"]) -> Kernel:
    """The attention implementation to load a model with: for ``auto``, the one that fits the packing."""
    if asked != "auto":
        return asked
    return TRIE if packing == "trie" else "sdpa"


def attention_inputs(
    position: Tensor, end: Tensor, *, kernel: str, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """The arguments of a forward pass over tries that say who sees whom.

    Args:
        position, end: [B, U] on the CPU, see packing.trie; for the kernel ``trie``, B is 1.
        kernel: the model's attention implementation.
        dtype: that of the attention scores.

    Returns:
        ``position_ids`` among others. Where the kernel wants rows of whole blocks they are longer than U, and tokens
        must be padded to their length on the right.
    """
    if kernel != TRIE:
        return {"attention_mask": dense_mask(end.to(device), dtype), "position_ids": position.to(device)}
    assert len(end) == 1, "a forward pass is one row of tries"
    segments = segments_of(end[0].numpy())
    if device.type == "cuda" and len(segments.chains) > 1:
        position, end = pad_row(position, end)
        return {"attention_mask": block_mask(end[0], device), "position_ids": position.to(device)}
    # Without a mask of ones the model code would guess packed documents from the positions, and make a mask of them.
    inputs = {"attention_mask": torch.ones_like(position, device=device), "position_ids": position.to(device)}
    return inputs if len(segments.chains) == 1 else inputs | {"segments": segments}


def dense_mask(end: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask that is added to attention scores: [B, 1, U, U], 0 where query q sees key k, else the lowest number.

    A mask of numbers, not of truth values: eager attention adds whatever it is given, and on a CPU the fused kernel
    takes a fifth longer with truth values.

    Args:
        end: [B, U], see packing.trie. Padding behind a trie has end[k] = k + 1: it sees itself, and is seen by nothing.
        dtype: that of the attention scores.
    """
    places = torch.arange(end.shape[1], device=end.device)
    queries, keys = places[:, None], places[None, :]
    seen = (keys <= queries) & (queries < end[:, None, :])
    return torch.zeros(seen.shape, dtype=dtype, device=end.device).masked_fill_(~seen, torch.finfo(dtype).min)[:, None]


def trie_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | BlockMask | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    segments: Segments | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention function that transformers calls in each layer, see the module's docstring.

    Args:
        query: [B, H, U, D]; ``key`` and ``value``: [B, H or a divisor of it, U, D].
        attention_mask, segments: from attention_inputs.

    Returns:
        [B, U, H, D], and no attention weights.
    """
    if segments is None and not isinstance(attention_mask, BlockMask):
        plain: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return plain
    kind = query.device.type
    if torch.is_autocast_enabled(kind):
        # Both ways below call their kernels where autocast does not see to it.
        query, key, value = (tensor.to(torch.get_autocast_dtype(kind)) for tensor in (query, key, value))
    if segments is not None:
        out = segment_attention(query, key, value, segments, scale=scaling, dropout=dropout)
    elif dropout:
        raise ModelError("FlexAttention has no dropout", where="attention_dropout of the model", fix="set it to 0")
    else:
        out = flex(query, key, value, attention_mask, scaling)
    return out.transpose(1, 2).contiguous(), None


# At import, since a model looks its attention up by name when it is made.
AttentionInterface.register(TRIE, trie_attention)
AttentionMaskInterface.register(TRIE, sdpa_mask)


def check_plain_attention(model: PreTrainedModel, longest: int) -> None:
    """Refuse models in which a token sees anything but all tokens before it, or sees them in another way.

    Args:
        longest: tokens of the longest sample. A window that is not shorter hides nothing.

    Raises:
        ModelError: names what the attention here would leave out.
    """
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ["full_attention", *_WINDOWS])
    odd = sorted(layers - {"full_attention", *_WINDOWS})
    problems = [f"layers of the kind {kind}" for kind in odd]
    for kind, name in _WINDOWS.items():
        window = getattr(config, name, None)
        if kind in layers and window is not None and window < longest:
            problems.append(f"{name}={window}, and a sample of {longest} tokens")
    if getattr(config, "attn_logit_softcapping", None) is not None:
        problems.append(f"attn_logit_softcapping={config.attn_logit_softcapping}")
    if any(hasattr(module, "sinks") for module in model.modules()):
        problems.append("attention sinks")
    turning = {getattr(module, "rope_type", None) for module in model.modules()} & _BY_LENGTH
    problems += [f"rotary positions of the type {kind}, which depend on the length of the row" for kind in turning]
    if not model._supports_attention_backend:
        problems.append("attention code of its own")
    if problems:
        raise ModelError(
            f"{type(model).__name__} has {', '.join(problems)}; tries need plain causal attention",
            where="train.packing",
            fix="use packing none",
        )


_BY_LENGTH = {"dynamic", "longrope"}
_WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
