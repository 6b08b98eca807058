"""One supervised fine-tuning run, from recipe to saved model.

check (cheap) -> run directory -> prepare -> load model -> check packing -> start statement -> train -> save and verify

The user's mistakes that show up to the start of training leave the run directory as it was.
"""

from __future__ import annotations

import logging
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeAlias

import torch
from accelerate import PartialState
from peft import LoraConfig
from safetensors import SafetensorError
from transformers import PreTrainedModel

from txagent_train.config.loading import fingerprint, to_yaml
from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import EnvironmentFailure, ModelError, RunDirError
from txagent_train.core.records import JsonObject
from txagent_train.models.adapters import ADAPTER_WEIGHTS, saved_tensors
from txagent_train.models.fast_tokenizer import pipeline_of
from txagent_train.models.identity import base_identity, write_base
from txagent_train.models.loading import load_model, load_tokenizer, resolve_dtype
from txagent_train.models.shape import read_shape
from txagent_train.packing.attention import attention_kernel, check_plain_attention
from txagent_train.rendering.renderer import Renderer
from txagent_train.sft.adapter import add_adapter
from txagent_train.sft.arguments import training_arguments
from txagent_train.sft.checkpoints import (
    aside_path,
    discard,
    drop_later,
    newest_checkpoint,
    problem_of,
    publish,
    step_of,
)
from txagent_train.sft.checks import check_recipe, check_rows
from txagent_train.sft.layout import RowLayout
from txagent_train.sft.plan import RunPlan, plan_run
from txagent_train.sft.prepare import Preparation, renderer_fingerprint, report_table
from txagent_train.sft.prepared import PreparedRows, PrepareReport
from txagent_train.sft.rendering import renderer_for
from txagent_train.sft.retention import Retention, retention_table
from txagent_train.sft.selfcheck import check_packing
from txagent_train.sft.sinks import open_records
from txagent_train.sft.start import asked_for_sharding, check_as_asked, start_statement
from txagent_train.sft.trainer import TraceTrainer
from txagent_train.tracking.files import file_sha256
from txagent_train.tracking.logging import rank
from txagent_train.tracking.metrics import read_metrics
from txagent_train.tracking.report import save_section
from txagent_train.tracking.run_dir import RunDir, RunState

Resume: TypeAlias = Literal["auto", "never"] | Path
"""auto: go on from the newest whole checkpoint if there is a run; never: an existing run is an error; a path: that
checkpoint."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SftResult:
    """What a finished run came to. Losses are of the last step and the last evaluation."""

    run_dir: Path
    model_dir: Path
    steps: int
    loss: float | None
    eval_loss: float | None
    prepared: PrepareReport

    def to_json(self) -> JsonObject:
        return {
            "run_dir": str(self.run_dir),
            "model_dir": str(self.model_dir),
            "steps": self.steps,
            "loss": self.loss,
            "eval_loss": self.eval_loss,
            "prepared": self.prepared.to_json(),
        }


def run_sft(
    recipe: SftRecipe, *, resume: Resume = "auto", on_record: Callable[[JsonObject], None] | None = None
) -> SftResult:
    """Run the whole job of a recipe. Called on every rank of a launch.

    Args:
        on_record: receives every record of metrics, on rank 0 (beside metrics.jsonl and W&B).

    Raises:
        UserError: recipe, data, model or run directory are not as they must be; found before training begins. A
            run directory that this call made is gone again.
        EnvironmentFailure: the machine failed, the loss diverged, or what was saved is not what was trained.
        KeyboardInterrupt: SIGINT or SIGTERM came; the step was finished and a checkpoint saved.
    """
    adapter = check_recipe(recipe)
    _check_resume(recipe, resume)
    preparation = Preparation.of(recipe, renderer_for(recipe.model, recipe.wire, recipe.seed))
    base = base_identity(recipe.model.name_or_path, recipe.model.revision)
    with _run_dir(recipe, preparation, base, resume) as run, _marked(run):
        eval_rows = preparation.evaluation()
        plan = plan_run(recipe, preparation)
        if rank() == 0:
            save_section(run.root, "05-preparation", report_table(plan.epochs[0].report))
        retention = Retention.of(preparation, _metrics(run)) if recipe.train.check_retention else None
        renderer = _renderer_to_save(recipe, preparation.renderer)
        job = _Job(recipe, run, renderer, plan, eval_rows, retention, adapter, base)
        # Before the model is loaded: what is too long for a row would otherwise be found minutes later.
        RowLayout.of(recipe, read_shape(recipe.model.name_or_path, recipe.model.revision)).check(job.prepared)
        return _train(job, resume, on_record)


def _renderer_to_save(recipe: SftRecipe, prepared_with: Renderer) -> Renderer:
    """The renderer with the tokenizer of transformers, which is saved with the model.

    Raises:
        ModelError: it reads text otherwise than the one that the rows were made with, so that a server would see other
            ids than were trained on.
    """
    tokenizer = load_tokenizer(recipe.model.name_or_path, recipe.model.revision)
    saved, used = pipeline_of(tokenizer), pipeline_of(prepared_with.tokenizer)
    different = [part for part in saved if saved[part] != used[part]]
    if different:
        raise ModelError(
            f"transformers reads the tokenizer otherwise than its tokenizer.json says ({', '.join(different)})",
            where=recipe.model.name_or_path,
            fix="load it with AutoTokenizer, save it to a folder, and name that folder as the model",
        )
    return Renderer(tokenizer, prepared_with.wire, seed=recipe.seed)


@dataclass(frozen=True, slots=True)
class _Job:
    """A run that is prepared. ``base`` is the identity of the base model's weights."""

    recipe: SftRecipe
    run: RunDir
    renderer: Renderer
    plan: RunPlan
    eval_rows: PreparedRows | None
    retention: Retention | None
    adapter: LoraConfig | None
    base: str

    @property
    def prepared(self) -> list[PreparedRows]:
        """All rows that go through the model: trained, held out, and those of the retention."""
        measured = (self.eval_rows, None if self.retention is None else self.retention.rows)
        return [*self.plan.epochs, *(rows for rows in measured if rows is not None)]


def _check_resume(recipe: SftRecipe, resume: Resume) -> None:
    if not isinstance(resume, Path):
        return
    step_of(resume)
    expected = (recipe.output_dir / "checkpoints").resolve()
    if resume.resolve().parent != expected:
        raise RunDirError(f"not a checkpoint of this run, which has them in {expected}", where=str(resume))


@contextmanager
def _run_dir(recipe: SftRecipe, preparation: Preparation, base: str, resume: Resume) -> Iterator[RunDir]:
    """The run directory, which rank 0 claims."""
    if rank() != 0:
        yield RunDir(recipe.output_dir)
        return
    # Data counts by content, not by where it lies.
    settled = fingerprint(recipe)
    for part in ("sources", "eval"):
        for source in settled["data"][part]:
            source["sha256"] = preparation.hashes[source.pop("path")]
    settled["data"] |= preparation.guards.fingerprint
    if recipe.adapter.init_from is not None:
        settled["adapter"]["init_from"] = file_sha256(recipe.adapter.init_from / ADAPTER_WEIGHTS)
    settled["renderer"] = renderer_fingerprint(preparation.renderer)
    settled["base_weights"] = base
    with RunDir.claim(
        recipe.output_dir,
        fingerprint=settled,
        manifest={"name": recipe.name, "data_sha256": dict(preparation.hashes)},
        recipe_yaml=to_yaml(recipe),
        resume=resume != "never",
    ) as run:
        yield run


@contextmanager
def _marked(run: RunDir) -> Iterator[None]:
    """Leave in the manifest what became of the run."""
    state, error = RunState.FAILED, ""
    try:
        yield
        state = RunState.FINISHED
    except KeyboardInterrupt:
        state = RunState.INTERRUPTED
        raise
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
        raise
    finally:
        if rank() == 0:
            run.mark(state, error=error)


def _train(job: _Job, resume: Resume, on_record: Callable[[JsonObject], None] | None) -> SftResult:
    recipe, run, plan = job.recipe, job.run, job.plan
    steps = len(plan.steps)
    dtype = resolve_dtype(recipe.model.dtype)
    # The arguments come before the model: ZeRO-3 partitions a model while it is loaded.
    args = training_arguments(recipe, output_dir=run.checkpoints, steps=steps, dtype=dtype)
    model: Any = _load(recipe, job.adapter, dtype, args.device)
    check_rows(model, job.prepared, pad_token_id=job.renderer.pad_token_id)
    if recipe.train.packing == "trie":
        check_plain_attention(model, max(int(rows.length.max()) for rows in job.prepared))
    checkpoint = _checkpoint(run, resume, steps, model)
    done = 0 if checkpoint is None else step_of(checkpoint)
    _forget_after(run, done, steps)
    with open_records(recipe, run, steps, done, on_record) as records:
        trainer = TraceTrainer(
            model,
            args,
            tokenizer=job.renderer.tokenizer,
            plan=plan,
            recipe=recipe,
            checkpoints=run.checkpoints,
            eval_rows=job.eval_rows,
            retention=job.retention,
            note={"wandb_id": records.wandb.id},
            on_record=records.add,
        )
        check_as_asked(trainer, recipe)
        checked = check_packing(trainer)
        if rank() == 0:
            statement = start_statement(trainer, done)
            statement["packing_check"] = [item.to_json() for item in checked]
            _log.info("start: %s", ", ".join(f"{key} {value}" for key, value in statement.items()))
            records.add({"kind": "start", "step": done, **statement})
        with _graceful_stop(trainer):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if trainer.stop_agreed and trainer.state.global_step < steps:
            raise KeyboardInterrupt(f"stopped after step {trainer.state.global_step}; its checkpoint is saved")
        _save_final(trainer, job)
    if job.retention is not None and rank() == 0:
        start = "base model" if recipe.adapter.init_from is None else f"adapter {recipe.adapter.init_from}"
        save_section(run.root, "06-retention", retention_table(_metrics(run), start=start))
    trainer.accelerator.end_training()
    return SftResult(
        run_dir=run.root,
        model_dir=run.model,
        steps=steps,
        loss=records.last_loss.get("train"),
        eval_loss=records.last_loss.get("eval"),
        prepared=plan.epochs[0].report,
    )


def _metrics(run: RunDir) -> tuple[JsonObject, ...]:
    return read_metrics(run.metrics_path).records if run.metrics_path.exists() else ()


def _checkpoint(run: RunDir, resume: Resume, steps: int, model: Any) -> Path | None:
    """The checkpoint to go on from, checked as far as it can be without loading it."""
    if resume == "never":
        return None
    shapes = None
    if asked_for_sharding() is None:
        shapes = {name: tuple(tensor.shape) for name, tensor in saved_tensors(model).items()}
    if resume == "auto":
        return newest_checkpoint(run.checkpoints, steps=steps, shapes=shapes)
    problem = problem_of(resume, steps=steps, shapes=shapes)
    if problem is not None:
        raise RunDirError(f"cannot be resumed from: {problem}", where=str(resume), fix="take another, or --resume auto")
    return resume


def _forget_after(run: RunDir, done: int, steps: int) -> None:
    """Delete what a run that goes on from step ``done`` will make anew; else a later resume would mix two pasts."""
    PartialState().wait_for_everyone()  # all ranks have chosen their checkpoint
    if rank() == 0:
        drop_later(run.checkpoints, done)
        if done < steps and run.model.exists():
            discard(run.model)


def _load(recipe: SftRecipe, adapter: LoraConfig | None, dtype: torch.dtype, device: torch.device) -> Any:
    section = recipe.model
    sharded = asked_for_sharding() is not None
    model: PreTrainedModel = load_model(
        section.name_or_path,
        section.revision,
        # Weights that are trained are kept in fp32, and computed with in the recipe's dtype.
        dtype=torch.float32 if adapter is None else dtype,
        attn_implementation=attention_kernel(section.attn_implementation, recipe.train.packing),
        quantization=section.quantization,
        device=device if device.type == "cuda" and not sharded else None,
    )
    if adapter is None:
        return model
    return add_adapter(model, adapter, init_from=recipe.adapter.init_from, seed=recipe.seed, revision=section.revision)


@contextmanager
def _graceful_stop(trainer: TraceTrainer) -> Iterator[None]:
    """SIGINT and SIGTERM let the step finish and a checkpoint be saved; a second one acts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: FrameType | None) -> None:
        trainer.stop_requested = True
        for known, handler in former.items():
            signal.signal(known, handler)
        name = signal.Signals(number).name
        _log.warning("%s: finishing the step and saving a checkpoint; once more stops at once", name)

    for number in former:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _save_final(trainer: TraceTrainer, job: _Job) -> None:
    """The final model, with all that a server needs to render as trained; whole or not there."""
    final = job.run.model
    aside = aside_path(final)
    try:
        if rank() == 0:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
        trainer.accelerator.wait_for_everyone()
        trainer.save_model(str(aside))
        if rank() == 0:
            job.renderer.save(aside)
            if job.adapter is not None:
                write_base(aside, job.recipe.model.name_or_path, job.base)
            publish(aside, final)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EnvironmentFailure(f"{final} could not be written: {reason}") from error
    trainer.accelerator.wait_for_everyone()
