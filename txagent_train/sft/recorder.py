"""Turns the sums of each step into records of metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import torch
from torch import nn
from transformers import PreTrainedModel

from txagent_train.core.records import JsonObject
from txagent_train.sft.metrics import FlopModel, StepSums, Stopwatch, peak_flops, peak_memory_bytes
from txagent_train.sft.plan import RunPlan


class StepRecorder:
    """Makes a ``train`` record every ``log_every`` steps (and at the last), and an ``eval`` record per evaluation.

    Loss and counts of a record are those of its own step; speeds are since the last record. ``general`` names the
    sources of general data, whose share of the loss's weight is recorded where there are any.
    """

    def __init__(
        self,
        plan: RunPlan,
        *,
        flops: FlopModel,
        device: torch.device,
        world_size: int,
        log_every: int,
        general: Collection[str],
        on_record: Callable[[JsonObject], None] | None,
    ) -> None:
        self._plan = plan
        self._flops = flops
        self._device = device
        self._world_size = world_size
        self._log_every = log_every
        self._general = frozenset(general)
        self._on_record = on_record
        self._stopwatch = Stopwatch()

    def step_done(self, done: int, sums: StepSums, logs: Mapping[str, float]) -> None:
        """Called after optimizer step ``done`` (from 1) with its sums and the parent trainer's values."""
        self._stopwatch.step_done(sums.counted("tokens"), sums.supervised)
        if self._on_record is None or (done % self._log_every and done != len(self._plan.steps)):
            return
        record: JsonObject = {
            "kind": "train",
            "step": done,
            "loss": logs["loss"],
            "grad_norm": logs.get("grad_norm"),
            "learning_rate": logs.get("learning_rate"),
            "epoch": self._plan.epoch_after(done - 1),
            "tokens": sums.counted("tokens"),
            "naive_tokens": sums.counted("naive_tokens"),
            "sharing_ratio": sums.counted("naive_tokens") / sums.counted("tokens"),
            "supervised_tokens": sums.supervised,
            "padding_tokens": sums.counted("padding"),
            "peak_memory_bytes": peak_memory_bytes(self._device),
            "supervised_tokens_by_step": sums.supervised_by_step(),
            **self._by_source(sums),
        }
        if self._general:
            record["general_share"] = sums.weight_share(self._general)
        lap = self._stopwatch.lap()
        self._on_record(record if lap is None else record | self._speed(*lap))

    def evaluated(self, done: int, sums: StepSums, loss: float) -> None:
        """Called after an evaluation."""
        if self._on_record is not None:
            record = {"kind": "eval", "step": done, "loss": loss, "supervised_tokens": sums.supervised}
            self._on_record(record | self._by_source(sums))
        self._stopwatch.resume()

    def retention_checked(self, done: int, values: JsonObject) -> None:
        """Called after a check of the retention (sft.retention) with what it measured."""
        if self._on_record is not None:
            self._on_record({"kind": "retention", "step": done, **values})
        self._stopwatch.resume()

    @staticmethod
    def _by_source(sums: StepSums) -> JsonObject:
        return {
            "loss_by_source": sums.loss_by_source(),
            "supervised_tokens_by_source": sums.supervised_by_source(),
        }

    def pause_over(self) -> None:
        """Training goes on after something whose time does not count."""
        self._stopwatch.resume()

    def _speed(self, seconds: float, tokens: int, supervised: int) -> JsonObject:
        peak = peak_flops(self._device)
        flops = self._flops.step_flops(tokens, supervised) / seconds
        return {
            "tokens_per_second": tokens / seconds,
            "supervised_tokens_per_second": supervised / seconds,
            "mfu": None if peak is None else flops / (peak * self._world_size),
            "mfu_convention": self._flops.convention,
        }


def flop_model(model: PreTrainedModel, *, full: bool) -> FlopModel:
    """Count the parameters of a base model, with or without adapters in it, whatever shards or packs them."""
    head = model.get_output_embeddings().weight
    table = model.get_input_embeddings().weight
    apart = {id(parameter): parameter_count(parameter) for parameter in (head, table)}
    body = sum(parameter_count(parameter) for parameter in model.parameters()) - sum(apart.values())
    return FlopModel(body_parameters=body, head_parameters=parameter_count(head), flops_per_parameter=6 if full else 4)


def parameter_count(parameter: nn.Parameter) -> int:
    """Elements of a parameter: ZeRO-3 leaves an empty tensor behind, bitsandbytes packs two weights into a byte."""
    if hasattr(parameter, "ds_numel"):
        return int(parameter.ds_numel)
    packed = getattr(parameter, "quant_state", None)
    return int(math.prod(packed.shape)) if packed is not None else parameter.numel()
