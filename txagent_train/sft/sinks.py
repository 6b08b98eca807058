"""Where the records of a run go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from txagent_train.config.sft import SftRecipe
from txagent_train.core.records import JsonObject
from txagent_train.tracking.logging import Progress, progress, rank
from txagent_train.tracking.metrics import MetricsLog, read_metrics
from txagent_train.tracking.run_dir import RunDir
from txagent_train.tracking.wandb_run import NullRun, WandbRun, start_wandb


@dataclass
class Records:
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
        numbers = {key: value for key, value in values.items() if _is_number(value)}
        numbers |= {f"loss_by_source/{name}": loss for name, loss in values.get("loss_by_source", {}).items()}
        self.wandb.log({f"{kind}/{key}": value for key, value in numbers.items()}, step=step)
        if "loss" in values:
            self.last_loss[kind] = values["loss"]
        note = f"loss {self.last_loss['train']:.4f}" if "train" in self.last_loss else ""
        if step > self.shown:
            self.bar.advance(step - self.shown, note=note)
            self.shown = step
        if self.on_record is not None:
            self.on_record(values)


@contextmanager
def open_records(
    recipe: SftRecipe, run: RunDir, steps: int, done: int, on_record: Callable[[JsonObject], None] | None
) -> Iterator[Records]:
    """Open what records go to; what will be written again is taken out of the metrics file first."""
    metrics = MetricsLog(run.metrics_path)
    if rank() == 0:
        # From the start, the records of step 0 are written again too.
        metrics.rewind(done if done else -1)
    wandb = _start_wandb(recipe, run)
    exit_code = 1
    try:
        with progress("training", steps) as bar:
            yield Records(metrics, wandb, bar, _last_losses(run), on_record)
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
