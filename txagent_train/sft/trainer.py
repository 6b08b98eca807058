"""The trainer: TRL's SFTTrainer with the optimizer step taken into our own hands.

One item of the dataloader is this rank's whole share of one optimizer step: a list of forward passes, all ranks
having equally many. ``training_step`` runs them, so that

    loss = sum over all triples, forward passes and ranks of  w * -log p  /  W

with W, the step's total weight, known from the plan. Gradients meet once, at the last forward pass. Everything
around it (sharding, precision, optimizer, clipping, state) is the parent classes' work.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import DistributedType
from datasets import Dataset
from peft import PeftModel
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, SequentialSampler
from torch.utils.data import Dataset as TorchDataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerControl,
)
from trl import SFTConfig, SFTTrainer

from txagent_train.config.sft import DataSection, SftRecipe
from txagent_train.core.errors import EnvironmentFailure
from txagent_train.core.records import JsonObject
from txagent_train.data.mixing import source_labels
from txagent_train.models.adapters import saved_tensors
from txagent_train.models.quiet import quiet_renames
from txagent_train.models.verify import verify_saved
from txagent_train.sft.batches import ForwardBatch, collate
from txagent_train.sft.cadence import Cadence
from txagent_train.sft.checkpoints import aside_path, checkpoint_path, prune, publish, reading_checkpoint
from txagent_train.sft.layout import RowLayout, deal_rows
from txagent_train.sft.loss import add_target_loss
from txagent_train.sft.metrics import StepSums
from txagent_train.sft.plan import LossReduction, RunPlan, total_weight
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.recorder import StepRecorder, flop_model
from txagent_train.sft.retention import Retention
from txagent_train.sft.schedule import schedule
from txagent_train.sft.steps import Forward

STOP_FILE = "TXAGENT_TRAIN_STOP_FILE"
"""An environment variable: once the file that it names exists, a run stops as it does at SIGTERM (slurm/sft.slurm)."""


@dataclass(frozen=True, slots=True)
class StepShare:
    """What one rank computes in one optimizer step (numbered from 0)."""

    step: int
    forwards: tuple[ForwardBatch, ...]


class _StepDataset(TorchDataset[StepShare]):
    """One item for each optimizer step of the run."""

    def __init__(self, plan: RunPlan, make_share: Callable[[int], StepShare]) -> None:
        self._plan = plan
        self._make_share = make_share

    def __len__(self) -> int:
        return len(self._plan.steps)

    def __getitem__(self, step: int) -> StepShare:
        return self._make_share(step)


def _only_item(items: Sequence[StepShare]) -> dict[str, StepShare]:
    # A dict, because the parent class asks whether "labels" is in a batch.
    return {"share": items[0]}


def _general_labels(data: DataSection) -> list[str]:
    labels = source_labels([str(source.path) for source in data.sources])
    return [label for label, source in zip(labels, data.sources, strict=True) if source.kind != "trace"]


class TraceTrainer(SFTTrainer):
    """Trains on prepared rows by a plan.

    Args:
        model: the base model, or a PEFT model; its forward is patched to compute the loss.
        args: from arguments.training_arguments.
        plan: all steps of the run.
        eval_rows: held-out rows, or None.
        retention: what is measured before and after training, or None.
        checkpoints: folder of the checkpoints.
        note: goes into every checkpoint as note.json.
        on_record: receives every record of metrics, on rank 0 only.

    Raises:
        UserError: a sample is longer than a row.
    """

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        args: SFTConfig,
        *,
        tokenizer: PreTrainedTokenizerBase,
        plan: RunPlan,
        recipe: SftRecipe,
        checkpoints: Path,
        eval_rows: PreparedRows | None = None,
        retention: Retention | None = None,
        note: JsonObject | None = None,
        on_record: Callable[[JsonObject], None] | None = None,
    ) -> None:
        self.plan = plan
        self.recipe = recipe
        self.eval_rows = eval_rows
        self.retention = retention
        self.checkpoints = checkpoints
        self.note = dict(note or {})
        self.stop_requested = False
        """Set from a signal handler: finish the step, save, stop."""
        self.stop_agreed = False
        """Some rank was asked to stop; the same on all ranks."""
        self._sums: StepSums | None = None
        self.lr_scheduler: torch.optim.lr_scheduler.LRScheduler | None
        self.control: TrainerControl
        self._loss = math.nan
        with quiet_renames():
            super().__init__(
                model=model,
                args=args,
                # The parent wants a dataset of this type; what it trains on comes from get_train_dataloader.
                train_dataset=Dataset.from_dict({"step": list(range(len(plan.steps)))}),
                data_collator=_only_item,
                processing_class=tokenizer,
                callbacks=[Cadence(self)],
            )
        self.remove_callback(PrinterCallback)
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        sizes = base.config.get_text_config().to_dict()
        self.layout = RowLayout.of(recipe, sizes, cpu=self.args.device.type == "cpu")
        held_out = (eval_rows, None if retention is None else retention.rows)
        self.layout.check([*plan.epochs, *(rows for rows in held_out if rows is not None)])
        add_target_loss(base)
        self._model_dtype = base.dtype
        self.kernel: str = base.config._attn_implementation
        self.recorder = StepRecorder(
            plan,
            flops=flop_model(base, full=not isinstance(model, PeftModel)),
            device=self.args.device,
            world_size=self.args.world_size,
            log_every=recipe.tracking.log_every,
            general=_general_labels(recipe.data),
            on_record=on_record if self.accelerator.is_main_process else None,
        )

    def _send_telemetry(self) -> None:
        """Nothing is sent anywhere; the parent would report the model's type and the GPU."""

    def agree_to_stop(self) -> bool:
        """Whether any rank was asked to stop, by a signal or by STOP_FILE: the same answer on all of them."""
        if self.accelerator.is_main_process and os.path.exists(os.environ.get(STOP_FILE, "")):
            self.stop_requested = True
        asked = torch.tensor(float(self.stop_requested), device=self.args.device)
        self.stop_agreed = bool(self.accelerator.reduce(asked, reduction="sum") > 0)
        return self.stop_agreed

    # ---- batches ----

    def get_train_dataloader(self) -> DataLoader[StepShare]:
        """Every rank builds its own share; the loader is not given to accelerate, which would shard it again."""
        dataset = _StepDataset(self.plan, self._share)
        return DataLoader(dataset, batch_size=1, sampler=SequentialSampler(dataset), collate_fn=_only_item)

    def _share(self, step: int) -> StepShare:
        rows = self.plan.rows_of(step)
        forwards = self.plan.forwards(step, self.layout, world_size=self.args.world_size)[self.args.process_index]
        return StepShare(step, tuple(self._collate(rows, forward, self.plan.reduction) for forward in forwards))

    def _collate(self, rows: PreparedRows, forward: Forward, reduction: LossReduction) -> ForwardBatch:
        return collate(
            rows,
            forward,
            pad_token_id=self.processing_class.pad_token_id,
            reduction=reduction,
            packing=self.layout.packing,
        )

    def floating_point_ops(self, inputs: object) -> int:
        """Counted by metrics.FlopModel instead, which knows what is frozen."""
        return 0

    # ---- the optimizer step ----

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Forward and backward of this rank's share of one optimizer step; returns the exact global loss."""
        share: StepShare = inputs["share"]
        model.train()
        rows = self.plan.rows_of(share.step)
        total = self.plan.weight(share.step)
        # Gradients are averaged over ranks, and the loss is a sum over ranks.
        scale = self.args.world_size / total
        sums = self._new_sums(rows)
        for number, batch in enumerate(share.forwards):
            last = number == len(share.forwards) - 1
            self.accelerator.gradient_state._set_sync_gradients(last)
            with self._sync_context(model, last):
                outputs = model(**batch.model_inputs(self.args.device, self._model_dtype, self.kernel))
                self._backward(outputs.loss * scale)
            self._add_sums(sums, rows, batch, outputs.nll)
        sums.vector = self.accelerator.reduce(sums.vector, reduction="sum")
        self._sums = sums
        self._loss = sums.weighted_nll / total
        if not math.isfinite(self._loss):
            raise self._diverged("loss", self._loss, share.step)
        return torch.tensor(self._loss, device=self.args.device)

    def _sync_context(self, model: nn.Module, last: bool) -> contextlib.AbstractContextManager[Any]:
        # DeepSpeed learns from accelerate's gradient state, set before each pass, when to reduce.
        if last or self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            return contextlib.nullcontext()
        return self.accelerator.no_sync(model=model)

    def _backward(self, loss: Tensor) -> None:
        if self.accelerator.distributed_type == DistributedType.DEEPSPEED:
            # The loss is normalised over the whole step already.
            self.accelerator.backward(loss, scale_wrt_gas=False)
        else:
            self.accelerator.backward(loss)

    def _new_sums(self, rows: PreparedRows) -> StepSums:
        return StepSums(source_labels(rows.source_names), int(rows.step.max()) + 1, self.args.device)

    def _add_sums(self, sums: StepSums, rows: PreparedRows, batch: ForwardBatch, nll: Tensor) -> None:
        numbers = list(batch.rows)
        source = torch.from_numpy(rows.source[numbers].astype("int64"))[batch.row_of_triple]
        step = torch.from_numpy(rows.step[numbers].astype("int64"))[batch.row_of_triple]
        device = self.args.device
        sums.add(nll=nll, weights=batch.weights.to(device), source=source.to(device), step=step.to(device))
        sums.count("tokens", batch.tokens)
        sums.count("naive_tokens", 0 if batch.filler else int(rows.length[numbers].sum()))
        sums.count("padding", batch.input_ids.numel() - batch.tokens)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """Called by the parent just before the optimizer's step, which a broken gradient must not reach."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if norm is not None and not math.isfinite(float(norm)):
            raise self._diverged("gradient norm", float(norm), self.state.global_step)
        return norm

    def _diverged(self, what: str, value: float, step: int) -> EnvironmentFailure:
        traces = self.plan.trace_ids(step)
        shown = ", ".join(traces[:16]) + (f" and {len(traces) - 16} more" if len(traces) > 16 else "")
        return EnvironmentFailure(
            f"the {what} is {value} in optimizer step {step + 1}; training stops before its update. Traces: {shown}. "
            "Lower train.learning_rate, or look at these traces."
        )

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """The learning rate of sft.schedule."""
        if self.lr_scheduler is None:
            train = self.recipe.train
            factor = schedule(train.lr_scheduler, total_steps=num_training_steps, warmup_ratio=train.warmup_ratio)
            self.lr_scheduler = LambdaLR(optimizer if optimizer is not None else self.optimizer, factor)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    # ---- evaluation ----

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """The loss over all held-out rows: weighted sum of -log p / sum of weights, whatever the batch size.

        Before the first step and after the last one, the retention is measured too.
        """
        metrics: dict[str, float] = {}
        rows, done, reduction = self.eval_rows, self.state.global_step, self.plan.reduction
        if rows is not None:
            sums = self.evaluation_sums(rows, reduction)
            loss = sums.weighted_nll / total_weight(rows, range(len(rows)), reduction)
            metrics[f"{metric_key_prefix}_loss"] = loss
            self.recorder.evaluated(done, sums, loss)
        if self.retention is not None and done in (0, len(self.plan.steps)):
            sums = self.evaluation_sums(self.retention.rows, "token")
            self.recorder.retention_checked(done, self.retention.measured(done, sums.weighted_nll / sums.supervised))
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def evaluation_sums(self, rows: PreparedRows, reduction: LossReduction) -> StepSums:
        """Sums of -log p over all rows and ranks, without gradient."""
        model = self.model_wrapped
        was_training = model.training
        model.eval()
        sums = self._new_sums(rows)
        dealt = deal_rows(rows, range(len(rows)), self.layout, world_size=self.args.world_size)
        with torch.no_grad():
            for forward in dealt[self.args.process_index]:
                batch = self._collate(rows, forward, reduction)
                outputs = model(**batch.model_inputs(self.args.device, self._model_dtype, self.kernel))
                self._add_sums(sums, rows, batch, outputs.nll)
        model.train(was_training)
        sums.vector = self.accelerator.reduce(sums.vector, reduction="sum")
        return sums

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """What the parent logs after each step goes on record, with the exact loss."""
        if "loss" in logs and self._sums is not None:
            logs["loss"] = self._loss
            self.recorder.step_done(self.state.global_step, self._sums, logs)
        super().log(logs, start_time)

    # ---- checkpoints ----

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write, verify and publish ``step-N``, then delete older ones."""
        final = checkpoint_path(self.checkpoints, self.state.global_step)
        aside = aside_path(final)
        try:
            if self.args.should_save:
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir(parents=True)
            self.accelerator.wait_for_everyone()
            self.save_model(str(aside), _internal_call=True)
            self._save_optimizer_and_scheduler(str(aside))
            self._save_scaler(str(aside))
            self._save_rng_state(str(aside))
            if self.args.should_save:
                self.state.save_to_json(str(aside / "trainer_state.json"))
                (aside / "note.json").write_text(json.dumps(self.note), encoding="utf-8")
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                publish(aside, final)
                prune(self.checkpoints, self.recipe.train.keep_last)
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise EnvironmentFailure(f"{final} could not be written: {reason}") from error
        self.accelerator.wait_for_everyone()
        self.recorder.pause_over()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Load as the parent does, which only warns of missing tensors, and compare with the file."""
        with reading_checkpoint(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            if not self.is_fsdp_enabled and not self.is_deepspeed_enabled:
                loaded = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
                verify_saved(Path(resume_from_checkpoint), saved_tensors(loaded), trained=False)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with reading_checkpoint(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with reading_checkpoint(checkpoint):
            super()._load_rng_state(checkpoint)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save adapter or model to a folder, and verify it. Called on all ranks; a sharded model is gathered."""
        if self.is_fsdp_enabled:
            # The parent writes nothing here under FSDP2's default state dict type.
            self._save(output_dir, state_dict=self.accelerator.get_state_dict(self.model))
        else:
            super().save_model(output_dir, _internal_call=True)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        if not self.args.should_save:
            return
        assert output_dir is not None
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        trained = self.state.global_step > 0
        directory = Path(output_dir)
        if isinstance(model, PeftModel):
            model.save_pretrained(directory, state_dict=state_dict, save_embedding_layers=False)
            # peft's model card is an empty form.
            (directory / "README.md").unlink(missing_ok=True)
        else:
            model.save_pretrained(directory, state_dict=state_dict)
        verify_saved(directory, saved_tensors(model, state_dict), trained=trained)
