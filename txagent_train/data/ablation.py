"""What the paper takes away from training to see what it is worth: long traces, thoughts, tools.

- Trained on traces of at most 1, 3 or 5 steps. What counts are the steps of reasoning, so not the one that gives the
  answer; a longer trace is left out whole, for its beginning alone would teach to stop in the middle.
- Trained without thoughts: outputs are calls alone. What the model says to the user is no thought and stays.
- Trained with a share of the tools, as if there were no others (data.withheld).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import replace

from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, Trace
from txagent_train.data.mentions import SPECIAL_TOOLS

TOO_MANY_STEPS = "over_max_steps"
"""The reason of check_steps."""


def reasoning_steps(trace: Trace) -> int:
    """The steps of a trace before the one that gives its answer."""
    return len(trace.steps) - (trace.answer is not None)


def check_steps(trace: Trace, most: int | None) -> None:
    """Raise DataError (reason ``over_max_steps``) where a trace has more steps of reasoning than ``most``."""
    steps = reasoning_steps(trace)
    if most is not None and steps > most:
        problem = f"the trace has {steps} steps before its answer, over data.ablation.max_steps ({most})"
        raise DataError(problem, reason=TOO_MANY_STEPS, trace_id=trace.id)


def without_thoughts(trace: Trace) -> Trace:
    """The trace without what the model thinks beside its calls and before its answer, and without hidden reasoning.

    Text of a step that neither calls nor answers is said to the user. An output that could not be parsed is kept as it
    was; it is never trained on.
    """
    last = trace.turns[-1]

    def silent(step: Step) -> Step:
        thinks = bool(step.calls) or (step is last and trace.answer is not None)
        return replace(step, thought="" if thinks else step.thought, reasoning="")

    return replace(trace, turns=tuple(silent(turn) if isinstance(turn, Step) else turn for turn in trace.turns))


def tools_left_out(names: Iterable[str], fraction: float, seed: int) -> frozenset[str]:
    """The tools that are not among a share of a toolbox. At least one is; a smaller share is part of a larger one."""
    ordinary = [name for name in names if name not in SPECIAL_TOOLS]
    ranked = sorted(ordinary, key=lambda name: hashlib.sha256(f"fraction:{seed}:{name}".encode()).digest())
    return frozenset(ranked[max(1, math.ceil(fraction * len(ranked) - 1e-9)) :])
