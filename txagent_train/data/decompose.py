"""Step-wise decomposition: one StepExample for each step of a trace that is trained on.

Paper 4.1: the input of a step is the system prompt, the question, the available tools and the prior trace; the
output is the thought and the calls, and for the last step the thought, the answer and Finish.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from txagent_train.core.records import Step, StepExample, StepStatus, ToolSpec, Trace, Turn


def is_trained(step: Step) -> bool:
    """Whether a step is supervised.

    Only outputs that the model should learn to write: an unparsable one, one whose beginning the loop wrote
    (forced) and a rejected one stay in the history of later steps and are never targets.
    """
    return untrained_reason(step) is None


def untrained_reason(step: Step) -> str | None:
    """Why a step is not supervised: its status, ``train_false`` or ``weight_zero``; None where it is."""
    if step.status is not StepStatus.OK:
        return str(step.status)
    if not step.train:
        return "train_false"
    return None if step.weight > 0 else "weight_zero"


def _shuffled(tools: Sequence[ToolSpec], rng: random.Random | None) -> list[ToolSpec]:
    tools = list(tools)
    if rng is not None:
        rng.shuffle(tools)
    return tools


def decompose(trace: Trace, *, seed: int = 0, epoch: int = 0, shuffle_tools: bool = True) -> Iterator[StepExample]:
    """The supervised samples of a trace, in the order of its steps.

    The tools a step sees are the initial ones, shuffled once per trace and epoch, and after them each batch that
    an earlier Tool_RAG call returned, shuffled once and appended; a tool that is there already is not repeated.
    Later steps therefore see the list of earlier ones as a prefix. In the trace of the samples each step's
    ``tools_added`` is its batch, so that the wire format may show it where it came (wire.tool_delivery).
    """
    rng = random.Random(f"tools:{seed}:{epoch}:{trace.id}") if shuffle_tools else None
    tools = _shuffled(trace.initial_tools, rng)
    turns: list[Turn] = []
    seen_by: list[tuple[ToolSpec, ...]] = []
    for turn in trace.turns:
        if isinstance(turn, Step):
            seen_by.append(tuple(tools))
            if turn.tools_added:
                turn = replace(turn, tools_added=_batch(turn, tools, rng))
                tools.extend(turn.tools_added)
        turns.append(turn)
    if any(step.tools_added for step in trace.steps):
        trace = replace(trace, turns=tuple(turns))
    for index, step in enumerate(trace.steps):
        if is_trained(step):
            yield StepExample(trace=trace, step_index=index, tools=seen_by[index], weight=step.weight)


def _batch(step: Step, tools: Sequence[ToolSpec], rng: random.Random | None) -> tuple[ToolSpec, ...]:
    """The tools that a step brings into view, in the order in which they are shown."""
    batch: dict[str, ToolSpec] = {}
    for tool in step.tools_added:  # two calls of the step may have returned the same tool
        batch.setdefault(tool.name, tool)
    seen = {tool.name for tool in tools}
    return tuple(tool for tool in _shuffled(list(batch.values()), rng) if tool.name not in seen)
