"""One supervised fine-tuning run, from recipe to saved model.

check (cheap) -> run directory -> prepare -> load model -> start statement -> train -> save and verify
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
from peft import LoraConfig
from transformers import PreTrainedModel

from txagent_train.config.loading import fingerprint, to_yaml
from txagent_train.config.paths import check_files
from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import EnvironmentFailure, ModelError, RunDirError
from txagent_train.core.records import JsonObject
from txagent_train.models.adapters import ADAPTER_WEIGHTS
from txagent_train.models.loading import check_loadable, load_model, load_tokenizer, resolve_dtype
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import wire_format_for
from txagent_train.sft.adapter import add_adapter, check_same_kind, lora_config
from txagent_train.sft.arguments import training_arguments
from txagent_train.sft.checkpoints import aside_path, newest_checkpoint, publish, step_of
from txagent_train.sft.plan import RunPlan
from txagent_train.sft.prepare import Preparation, hash_sources, renderer_fingerprint
from txagent_train.sft.prepared import PreparedRows, PrepareReport
from txagent_train.sft.start import asked_for_sharding, check_as_asked, start_statement
from txagent_train.sft.trainer import TraceTrainer
from txagent_train.tracking.files import file_sha256
from txagent_train.tracking.logging import Progress, progress, rank
from txagent_train.tracking.metrics import MetricsLog, read_metrics
from txagent_train.tracking.run_dir import RunDir, RunState
from txagent_train.tracking.wandb_run import NullRun, WandbRun, start_wandb

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
        UserError: recipe, data, model or run directory are not as they must be; found before training begins.
        EnvironmentFailure: the machine failed, the loss diverged, or what was saved is not what was trained.
        KeyboardInterrupt: SIGINT or SIGTERM came; the step was finished and a checkpoint saved.
    """
    adapter = _check(recipe)
    checkpoint = _explicit_checkpoint(recipe, resume)
    tokenizer = load_tokenizer(recipe.model.name_or_path, recipe.model.revision)
    wire = wire_format_for(tokenizer, frame=recipe.wire.frame, syntax=recipe.wire.syntax, finish=recipe.wire.finish)
    renderer = Renderer(tokenizer, wire, seed=recipe.seed)
    hashes = hash_sources(recipe.data)
    run = _open_run_dir(recipe, renderer, hashes, resume)
    with _marked(run):
        preparation = Preparation(recipe.data, renderer, hashes, recipe.seed, run.root / "prepared")
        train = recipe.train
        epochs = preparation.epochs(train.epochs, traces_per_step=train.traces_per_step, max_steps=train.max_steps)
        plan = RunPlan.of(
            epochs,
            traces_per_step=train.traces_per_step,
            seed=recipe.seed,
            reduction=train.loss_reduction,
            max_steps=train.max_steps,
        )
        if checkpoint is None and resume == "auto":
            checkpoint = newest_checkpoint(run.checkpoints)
        return _train(recipe, run, renderer, plan, preparation.evaluation(), adapter, checkpoint, on_record)


def _check(recipe: SftRecipe) -> LoraConfig | None:
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


def _explicit_checkpoint(recipe: SftRecipe, resume: Resume) -> Path | None:
    if not isinstance(resume, Path):
        return None
    step_of(resume)
    expected = (recipe.output_dir / "checkpoints").resolve()
    if resume.resolve().parent != expected:
        raise RunDirError(f"not a checkpoint of this run, which has them in {expected}", where=str(resume))
    return resume


def _open_run_dir(recipe: SftRecipe, renderer: Renderer, hashes: dict[str, str], resume: Resume) -> RunDir:
    if rank() != 0:
        return RunDir(recipe.output_dir)
    # Data counts by content, not by where it lies.
    settled = fingerprint(recipe)
    for part in ("sources", "eval"):
        for source in settled["data"][part]:
            source["sha256"] = hashes[source.pop("path")]
    if recipe.adapter.init_from is not None:
        settled["adapter"]["init_from"] = file_sha256(recipe.adapter.init_from / ADAPTER_WEIGHTS)
    settled["renderer"] = renderer_fingerprint(renderer)
    return RunDir.open_for_training(
        recipe.output_dir,
        fingerprint=settled,
        manifest={"name": recipe.name, "data_sha256": hashes},
        recipe_yaml=to_yaml(recipe),
        resume=resume != "never",
    )


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


def _train(
    recipe: SftRecipe,
    run: RunDir,
    renderer: Renderer,
    plan: RunPlan,
    eval_rows: PreparedRows | None,
    adapter: LoraConfig | None,
    checkpoint: Path | None,
    on_record: Callable[[JsonObject], None] | None,
) -> SftResult:
    dtype = resolve_dtype(recipe.model.dtype)
    # The arguments come before the model: ZeRO-3 partitions a model while it is loaded.
    args = training_arguments(recipe, output_dir=run.checkpoints, steps=len(plan.steps), dtype=dtype)
    model: Any = _load(recipe, adapter, dtype, args.device)
    done = 0 if checkpoint is None else step_of(checkpoint)
    with _records(recipe, run, len(plan.steps), done, on_record) as records:
        trainer = TraceTrainer(
            model,
            args,
            tokenizer=renderer.tokenizer,
            plan=plan,
            recipe=recipe,
            checkpoints=run.checkpoints,
            eval_rows=eval_rows,
            note={"wandb_id": records.wandb.id},
            on_record=records.add,
        )
        check_as_asked(trainer, recipe)
        if rank() == 0:
            statement = start_statement(trainer, done)
            _log.info("start: %s", ", ".join(f"{key} {value}" for key, value in statement.items()))
            records.add({"kind": "start", "step": done, **statement})
        with _graceful_stop(trainer):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if trainer.stop_agreed and trainer.state.global_step < len(plan.steps):
            raise KeyboardInterrupt(f"stopped after step {trainer.state.global_step}; its checkpoint is saved")
        _save_final(trainer, renderer, run)
    trainer.accelerator.end_training()
    return SftResult(
        run_dir=run.root,
        model_dir=run.model,
        steps=len(plan.steps),
        loss=records.last_loss.get("train"),
        eval_loss=records.last_loss.get("eval"),
        prepared=plan.epochs[0].report,
    )


@dataclass
class _Records:
    """Where the records of metrics go: the file, W&B, the progress display and the caller."""

    metrics: MetricsLog
    wandb: WandbRun | NullRun
    bar: Progress
    last_loss: dict[str, float]
    on_record: Callable[[JsonObject], None] | None
    shown: int = 0

    def add(self, values: JsonObject) -> None:
        kind, step = values["kind"], values["step"]
        self.metrics.append(values)
        self.wandb.log({f"{kind}/{key}": value for key, value in values.items() if _is_number(value)}, step=step)
        if "loss" in values:
            self.last_loss[kind] = values["loss"]
        note = f"loss {self.last_loss['train']:.4f}" if "train" in self.last_loss else ""
        if step > self.shown:
            self.bar.advance(step - self.shown, note=note)
            self.shown = step
        if self.on_record is not None:
            self.on_record(values)


@contextmanager
def _records(
    recipe: SftRecipe, run: RunDir, steps: int, done: int, on_record: Callable[[JsonObject], None] | None
) -> Iterator[_Records]:
    """Open what records go to; what a resume will write again is taken out of the metrics file first."""
    metrics = MetricsLog(run.metrics_path)
    if rank() == 0:
        metrics.rewind(done)
    wandb = _start_wandb(recipe, run)
    exit_code = 1
    try:
        with progress("training", steps) as bar:
            yield _Records(metrics, wandb, bar, _last_losses(run), on_record)
        exit_code = 0
    finally:
        metrics.close()
        wandb.finish(exit_code=exit_code)


def _last_losses(run: RunDir) -> dict[str, float]:
    """The last loss of each kind of record, of the part of the run that was done before."""
    records = read_metrics(run.metrics_path).records if run.metrics_path.exists() else ()
    return {record["kind"]: record["loss"] for record in records if "loss" in record}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _load(recipe: SftRecipe, adapter: LoraConfig | None, dtype: torch.dtype, device: torch.device) -> Any:
    section = recipe.model
    sharded = asked_for_sharding() is not None
    model: PreTrainedModel = load_model(
        section.name_or_path,
        section.revision,
        # Weights that are trained are kept in fp32, and computed with in the recipe's dtype.
        dtype=torch.float32 if adapter is None else dtype,
        attn_implementation=section.attn_implementation,
        quantization=section.quantization,
        device=device if device.type == "cuda" and not sharded else None,
    )
    if adapter is None:
        return model
    return add_adapter(model, adapter, init_from=recipe.adapter.init_from, seed=recipe.seed, revision=section.revision)


def _start_wandb(recipe: SftRecipe, run: RunDir) -> WandbRun | NullRun:
    if rank() != 0:
        return NullRun()
    tracking = recipe.tracking
    return start_wandb(
        tracking.wandb,
        run_dir=run.root,
        project=tracking.project,
        entity=tracking.entity,
        name=recipe.name,
        tags=tracking.tags,
        config=recipe.model_dump(mode="json"),
    )


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


def _save_final(trainer: TraceTrainer, renderer: Renderer, run: RunDir) -> None:
    """The final model, with all that a server needs to render as trained; whole or not there."""
    aside = aside_path(run.model)
    if rank() == 0:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
    trainer.accelerator.wait_for_everyone()
    try:
        trainer.save_model(str(aside))
        if rank() == 0:
            renderer.save(aside)
            publish(aside, run.model)
    except OSError as error:
        raise EnvironmentFailure(f"{run.model} could not be written: {error.strerror or error}") from error
    trainer.accelerator.wait_for_everyone()
