"""What a recipe makes of each trace before it is cut into samples: ablations and augmentation.

Which traces are left out is decided with the guards (data.mixing); what the others become depends on the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from txagent_train.config.sft import DataSection
from txagent_train.core.records import DataKind, JsonObject, Trace
from txagent_train.data.ablation import TOO_MANY_STEPS, check_steps, without_thoughts
from txagent_train.data.augment import HELD_OUT, NOT_IN_TOOLBOX, OUTSIDE_FRACTION, Augmented, Augmenter
from txagent_train.data.checks import kind_of

LEFT_OUT = (TOO_MANY_STEPS, HELD_OUT, OUTSIDE_FRACTION)
"""Reasons for which a trace is left out of training, as the recipe wants it, and counted."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The ablations and the augmentation of a recipe. Can be sent to other processes."""

    data: DataSection
    augmenter: Augmenter | None
    seed: int

    @classmethod
    def of(cls, data: DataSection, seed: int) -> Self:
        """Read the files that augmentation needs.

        Raises:
            DataError: one cannot be read, or is of another toolbox.
        """
        fraction = data.ablation.tool_fraction
        augmenter = None
        if data.augment is not None:
            augmenter = Augmenter.of(data.augment, tool_fraction=fraction, seed=seed)
        return cls(data, augmenter, seed)

    @property
    def fingerprint(self) -> JsonObject | None:
        """What the files of the augmentation hold, and its settings; None without it."""
        return None if self.augmenter is None else self.augmenter.fingerprint

    def drops(self, reason: str) -> bool:
        """Whether a trace with such a fault (see ``check``) is left out and counted; if not, it is an error."""
        return reason in LEFT_OUT or (reason == NOT_IN_TOOLBOX and self.data.invalid_calls == "drop")

    def check(self, trace: Trace) -> None:
        """Raise DataError where a trace is not trained on."""
        if kind_of(trace) is not DataKind.CHAT:
            check_steps(trace, self.data.ablation.max_steps)
        if self.augmenter is None:
            return
        if self.data.invalid_calls != "keep":
            self.augmenter.check_known(trace)
        self.augmenter.check_shown(trace)

    def apply(self, trace: Trace, *, epoch: int, training: bool) -> Augmented:
        """What the trace becomes. Held-out data is not augmented, but has no thoughts where training has none."""
        out = Augmented(trace)
        if training and self.augmenter is not None:
            out = self.augmenter.augment(trace, seed=self.seed, epoch=epoch)
        if not self.data.ablation.thoughts and kind_of(trace) is not DataKind.CHAT:
            out = replace(out, trace=without_thoughts(out.trace))
        return out
