"""After which optimizer steps a run evaluates, saves and stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

if TYPE_CHECKING:
    from txagent_train.sft.trainer import TraceTrainer


class Cadence(TrainerCallback):
    """Decides after which steps to evaluate and save, and whether to stop."""

    def __init__(self, trainer: TraceTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """The loss before training, to compare later ones with; a resumed run has it already."""
        trainer = self._trainer
        if state.global_step == 0 and (trainer.eval_rows is not None or trainer.retention is not None):
            trainer.evaluate()
        return control

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """An evaluation that is due comes before the checkpoint, so that a resume never misses one."""
        trainer, train = self._trainer, self._trainer.recipe.train
        done = state.global_step

        def due(every: int | None) -> bool:
            return trainer.plan.ends_epoch(done - 1) if every is None else done % every == 0

        last = done == len(trainer.plan.steps)
        stop = trainer.agree_to_stop()
        control.should_save = last or stop or due(train.save_every)
        control.should_evaluate = trainer.eval_rows is not None and (last or due(train.eval_every))
        control.should_evaluate |= trainer.retention is not None and last
        control.should_training_stop = control.should_training_stop or stop
        return control
