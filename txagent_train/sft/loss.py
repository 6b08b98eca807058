"""The loss over (predictor, target, weight) triples, with logits at predictor positions only.

A triple says: the hidden state at flat position ``predictor`` of the [B, T] batch predicts token ``target``, and
this counts with ``weight``. In a plain row the predictor of token t is t - 1; in a token trie one position may
predict several targets. The [B, T, V] logits never exist: only the predictor rows meet the head, in chunks.

The loss goes through the forward of the (wrapped) model, so that DDP, FSDP and ZeRO see it: ``add_target_loss``
patches the forward of the innermost causal LM.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.utils import ModelOutput
from trl.trainer.utils import maybe_gather_lm_head_ctx

from txagent_train.core.errors import ModelError

_CHUNK_LOGITS = 1 << 26
"""Most logits in memory at once; 256 MiB in fp32, of which about four copies live in a chunk's computation."""

_LOGIT_CHANGES = {
    "final_logit_softcapping": None,
    "logit_scale": 1.0,
    "output_multiplier": 1.0,
    "lm_head_multiplier": 1.0,
    "logits_scaling": 1.0,
}


@dataclass
class TargetLossOutput(ModelOutput):
    """``loss``: the weighted sum of -log p over all triples, a scalar with gradient. ``nll``: [N], -log p of each."""

    loss: Tensor | None = None
    nll: Tensor | None = None


class _ChunkedTargetLoss(torch.autograd.Function):
    """sum_i w_i * -log softmax(h_i W^T)[t_i]; the gradient is made in the forward, chunk by chunk.

    The weights are known before the forward, so a chunk's logits are made once, used for loss and gradient, and
    freed: d loss / d logits_i = w_i (softmax_i - onehot_i).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # [N, H]
        head: Tensor,  # [V, H]
        bias: Tensor | None,  # [V]
        targets: Tensor,  # [N]
        weights: Tensor,  # [N]
        chunk_logits: int,
    ) -> tuple[Tensor, Tensor]:
        kind = hidden.device.type
        compute = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        exact = torch.promote_types(compute, torch.float32)
        wants_hidden, wants_head, wants_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        grad_head = torch.zeros(head.shape, dtype=exact, device=head.device) if wants_head else None
        grad_bias = torch.zeros(head.shape[0], dtype=exact, device=head.device) if wants_bias else None
        nll = torch.empty(len(targets), dtype=exact, device=hidden.device)
        with torch.autocast(kind, enabled=False):
            matrix = head.to(compute)
            rows = max(1, chunk_logits // head.shape[0])
            for start in range(0, len(targets), rows):
                part = slice(start, start + rows)
                states = hidden[part].to(compute)
                logits = (states @ matrix.T).to(exact)  # [n, V]
                if bias is not None:
                    logits += bias.to(exact)
                log_z = logits.logsumexp(-1, keepdim=True)
                target = targets[part, None]
                nll[part] = (log_z - logits.gather(-1, target)).squeeze(-1)
                if not (wants_hidden or wants_head or wants_bias):
                    continue
                scale = weights[part, None].to(exact)
                grad = logits.sub_(log_z).exp_().mul_(scale)
                grad.scatter_add_(-1, target, -scale)
                rounded = grad.to(compute)
                if grad_hidden is not None:
                    grad_hidden[part] = (rounded @ matrix).to(hidden.dtype)
                if grad_head is not None:
                    grad_head += (rounded.T @ states).to(exact)
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
        ctx.save_for_backward(grad_hidden, grad_head, grad_bias)
        ctx.dtypes = (head.dtype, None if bias is None else bias.dtype)
        ctx.mark_non_differentiable(nll)
        return (nll * weights.to(exact)).sum(), nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _grad_nll: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_head, grad_bias = ctx.saved_tensors
        head_dtype, bias_dtype = ctx.dtypes
        return (
            None if grad_hidden is None else grad_hidden * grad_loss.to(grad_hidden.dtype),
            None if grad_head is None else (grad_head * grad_loss).to(head_dtype),
            None if grad_bias is None else (grad_bias * grad_loss).to(bias_dtype),
            None,
            None,
            None,
        )


def target_loss(
    hidden: Tensor,
    head: Tensor,
    bias: Tensor | None,
    predictors: Tensor,
    targets: Tensor,
    weights: Tensor,
    *,
    chunk_logits: int = _CHUNK_LOGITS,
) -> tuple[Tensor, Tensor]:
    """The weighted sum of -log p over triples, and each triple's -log p.

    Args:
        hidden: [B, T, H], the last hidden states.
        head: [V, H], the language-model head; ``bias``: [V] or None.
        predictors, targets, weights: [N]; predictors index the flattened [B * T].
        chunk_logits: most logits to hold at once.

    Returns:
        the loss (scalar, differentiable in hidden, head and bias) and the nll ([N], no gradient). Softmax in
        fp32, or fp64 for an fp64 model.
    """
    rows = hidden.reshape(-1, hidden.shape[-1]).index_select(0, predictors)  # [N, H]
    loss, nll = _ChunkedTargetLoss.apply(rows, head, bias, targets, weights, chunk_logits)
    return loss, nll


def check_head(model: PreTrainedModel) -> None:
    """Refuse models whose logits are more than ``hidden @ head.T + bias``, or whose loss has more parts.

    Raises:
        ModelError: names what the loss here would leave out.
    """
    config = model.config.get_text_config()
    for name, neutral in _LOGIT_CHANGES.items():
        value = getattr(config, name, None)
        if value is not None and value != neutral:
            raise ModelError(
                f"{type(model).__name__} changes its logits ({name}={value}), which the loss does not support",
                fix="use a Llama or Qwen3 model",
            )
    if hasattr(config, "output_router_logits") or getattr(config, "num_experts", None):
        raise ModelError(
            f"{type(model).__name__} is a mixture of experts; its balancing loss is not supported",
            fix="use a dense model",
        )


def add_target_loss(model: PreTrainedModel) -> None:
    """Make ``model(..., predictors=, targets=, weights=)`` return a TargetLossOutput; other calls are unchanged.

    Call it on the innermost causal LM (inside a PEFT model), before the model is wrapped for distribution.
    """
    check_head(model)
    original = model.forward

    def forward(
        self: PreTrainedModel,
        *args: Any,
        predictors: Tensor | None = None,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        if predictors is None:
            return original(*args, **kwargs)
        assert targets is not None and weights is not None
        # PEFT hands on the arguments of its own signature, set or not; the backbone does not know labels.
        kwargs = {key: value for key, value in kwargs.items() if value is not None and key != "return_dict"}
        # The backbone and the head are looked up at each call: wrapping replaces them after this patch.
        hidden = self.base_model(*args, **kwargs, use_cache=False).last_hidden_state
        head = self.get_output_embeddings()
        matrix, bias = head.weight, head.bias
        if isinstance(matrix, DTensor):
            matrix = matrix.full_tensor()
            bias = bias.full_tensor() if isinstance(bias, DTensor) else bias
        with maybe_gather_lm_head_ctx(matrix, bias):
            loss, nll = target_loss(hidden, matrix, bias, predictors, targets, weights)
        return TargetLossOutput(loss=loss, nll=nll)

    model.forward = types.MethodType(forward, model)
