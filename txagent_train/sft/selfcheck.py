"""Before training: a trie gives the loss and the gradients that its samples give one by one.

Tests of this package show it for the kernels they can run; this shows it for the kernel, the model and the device of
the run, in a few forward passes over its own data.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from txagent_train.core.errors import EnvironmentFailure
from txagent_train.core.records import JsonObject
from txagent_train.sft.batches import ForwardBatch, collate
from txagent_train.sft.layout import Packing, split_trace, traces_in
from txagent_train.sft.loss import add_target_loss
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.steps import Forward
from txagent_train.sft.trainer import TraceTrainer

_LAYERS = 2
_VOCABULARY = 4096
_TOLERANCE = {torch.bfloat16: 1e-1, torch.float32: 1e-4}
"""Most that loss and gradients may differ, relative to their size, by the dtype of matrix products. Rounding made 3e-2
and 1e-6 of the gradients of 30 layers; samples that see each other made 2e-1. In bfloat16 a fault of a few pairs of
tokens stays below what rounding does, and on a model that fits its data already rounding is larger than the gradients:
there fp32 decides, and 16 bits only warn."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PackingCheck:
    """What was compared: ``samples`` of a trace, ``tokens`` as a trie and ``naive_tokens`` one by one, on ``model``.

    ``loss`` and ``gradients`` are differences relative to the size of what they are differences of; the second is over
    all trainable parameters as one vector. Neither is over ``tolerance``.
    """

    trace: str
    samples: int
    tokens: int
    naive_tokens: int
    model: str
    loss: float
    gradients: float
    tolerance: float

    def to_json(self) -> JsonObject:
        return asdict(self)


def check_packing(trainer: TraceTrainer) -> tuple[PackingCheck, ...]:
    """Compare a trie of the run with its samples one by one. Call it before the model is wrapped; leaves no trace.

    A run in bfloat16 is compared a second time in fp32, on a stand-in of two random layers. A model that is not whole
    on the device yet (it will be sharded) has such a stand-in the first time too.

    Returns:
        What was compared; nothing, if nothing is packed or no trace has two samples.

    Raises:
        EnvironmentFailure: they differ in fp32; names trace, figure and tolerance.
    """
    if trainer.layout.packing == "none":
        return ()
    found = _short_trie(trainer)
    if found is None:
        _log.info("no trace has two samples: packing changes nothing, and is not checked")
        return ()
    device, model = trainer.args.device, trainer.model
    dtype = next(model.parameters()).dtype
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if _is_whole(model, device):
            checked = [_compared(trainer, model, "the model", *found)]
        else:
            _log.info("the model is not whole on %s before it is sharded: packing is checked on a part", device.type)
            checked = [_compared(trainer, *_stand_in(trainer, dtype), *found)]
        if trainer.args.bf16 or dtype is torch.bfloat16:
            checked.append(_compared(trainer, *_stand_in(trainer, torch.float32), *found, exact=True))
    return tuple(checked)


def _compared(
    trainer: TraceTrainer, model: nn.Module, what: str, rows: PreparedRows, trie: range, *, exact: bool = False
) -> PackingCheck:
    """Compare on one model; ``exact`` computes in the dtype of its weights, without autocast."""
    loss, gradients, tokens = _differences(trainer, model, rows, trie, exact=exact)
    in_16_bits = not exact and (trainer.args.bf16 or next(model.parameters()).dtype is torch.bfloat16)
    result = PackingCheck(
        trace=rows.trace_ids[int(rows.trace[trie.start])],
        samples=len(trie),
        tokens=tokens,
        naive_tokens=int(rows.length[trie.start : trie.stop].sum()),
        model=what,
        loss=loss,
        gradients=gradients,
        tolerance=_TOLERANCE[torch.bfloat16 if in_16_bits else torch.float32],
    )
    for name, value in (("loss", loss), ("gradients", gradients)):
        if not value <= result.tolerance:
            found = (
                f"packing: trace {result.trace} as a trie of {tokens} tokens gives another {name} than its "
                f"{len(trie)} samples one by one: the relative difference is {value:.1e}, and at most "
                f"{result.tolerance:.0e} is usual rounding (checked on {what}, attention {trainer.kernel} on "
                f"{trainer.args.device.type})."
            )
            if not in_16_bits:
                raise EnvironmentFailure(
                    f"{found} Train with train.packing=none, or another model.attn_implementation."
                )
            _log.warning("%s In 16 bits that is no proof: the same is checked in fp32.", found)
    return result


def _short_trie(trainer: TraceTrainer) -> tuple[PreparedRows, range] | None:
    """The rows of a trie of two samples or more: the shortest of the first step that has one with a branch.

    Where no trie of the run has a branch, the first one without: a chain, of which less can be wrong.
    """
    chain = None
    for number, step in enumerate(trainer.plan.steps):
        rows = trainer.plan.rows_of(number)
        tries = [
            trie
            for trace in traces_in(rows, step.rows)
            for trie in split_trace(rows, trace, trainer.layout.row_tokens)
            if len(trie) > 1
        ]
        branched = [trie for trie in tries if _branches(rows, trie)]
        if branched:
            return rows, min(branched, key=lambda trie: int(rows.length[trie.start : trie.stop].sum()))
        if tries and chain is None:
            chain = rows, tries[0]
    return chain


def _branches(rows: PreparedRows, trie: range) -> bool:
    """Whether a sample has a beginning in common with the one before, and both go on behind it."""
    shared, length = rows.shared[trie.start + 1 : trie.stop], rows.length[trie.start : trie.stop]
    return bool(((shared > 0) & (shared < np.minimum(length[:-1], length[1:]))).any())


def _is_whole(model: nn.Module, device: torch.device) -> bool:
    # DeepSpeed's partitioned parameters are empty, and know their shape by another name.
    return all(item.device.type == device.type and not hasattr(item, "ds_id") for item in model.parameters())


def _stand_in(trainer: TraceTrainer, dtype: torch.dtype) -> tuple[PreTrainedModel, str]:
    """Two random layers of the run's model, with few tokens in its vocabulary; and what they are, in words."""
    model: Any = trainer.model
    base: PreTrainedModel = model.get_base_model() if isinstance(model, PeftModel) else model
    config = copy.deepcopy(base.config)
    text = config.get_text_config()
    text.num_hidden_layers = _LAYERS
    text.vocab_size = min(text.vocab_size, _VOCABULARY)
    text.pad_token_id = None
    if getattr(text, "layer_types", None) is not None:
        text.layer_types = text.layer_types[:_LAYERS]
    with torch.device(trainer.args.device):
        stand_in = type(base)(config).to(dtype)
    add_target_loss(stand_in)
    return stand_in, f"{_LAYERS} random layers of {type(base).__name__} in {str(dtype).removeprefix('torch.')}"


def _differences(
    trainer: TraceTrainer, model: nn.Module, rows: PreparedRows, trie: range, *, exact: bool
) -> tuple[float, float, int]:
    """Relative differences of loss and gradients, and the tokens of the trie.

    The trie's gradients are subtracted from what the samples left in ``grad``: no second copy of them is needed.
    """

    def batch(numbers: Sequence[int], packing: Packing) -> ForwardBatch:
        pad = trainer.processing_class.pad_token_id
        return collate(
            rows, Forward(tuple(numbers)), pad_token_id=pad, reduction=trainer.plan.reduction, packing=packing
        )

    def run(item: ForwardBatch, sign: int) -> float:
        inputs = item.model_inputs(trainer.args.device, next(model.parameters()).dtype, trainer.kernel)
        for name in ("input_ids", "targets"):  # a stand-in has fewer tokens: which ones they are does not matter
            inputs[name] = inputs[name] % vocabulary
        with nullcontext() if exact else trainer.accelerator.autocast():
            loss: Tensor = model(**inputs).loss
        (sign * loss).backward()
        return float(loss.detach())

    vocabulary = model.config.get_text_config().vocab_size
    with _checking(model):
        alone = sum(run(batch([number], "none"), 1) for number in trie)
        size = _grad_norm(model)
        together = batch(trie, "trie")
        loss = run(together, -1)
        return abs(loss - alone) / abs(alone), _grad_norm(model) / size, together.tokens


def _grad_norm(model: nn.Module) -> float:
    norms = [item.grad.double().norm() for item in model.parameters() if item.grad is not None]
    return math.sqrt(sum(float(norm) ** 2 for norm in norms))


@contextmanager
def _checking(model: nn.Module) -> Iterator[None]:
    """No dropout anywhere, activations checkpointed as in training; afterwards as before, without gradients."""
    former = {module: module.training for module in model.modules()}
    try:
        for module in former:
            # These layers checkpoint only in training, and have no dropout but in their parts.
            module.training = isinstance(module, GradientCheckpointingLayer)
        yield
    finally:
        for module, training in former.items():
            module.training = training
        model.zero_grad(set_to_none=True)
