"""Which rows make up which optimizer step, and which rank computes which row.

    traces --permutation per epoch--> sets of traces_per_step --> StepPlan (all rows of the set)
    StepPlan --deal--> per rank: the same number of Forward passes

The set of rows of a step is fixed by (seed, epoch, traces_per_step) alone. Ranks and rows per forward only decide
who computes which row, so that the loss curve does not change with them. Standard library only.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One optimizer step: the numbers of its traces and of their rows, both within ``epoch``."""

    epoch: int
    traces: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Forward:
    """One forward pass of one rank. A filler repeats a row with weight 0, so that ranks stay in step."""

    rows: tuple[int, ...]
    filler: bool = False


def steps_for(traces: int, traces_per_step: int) -> int:
    """How many optimizer steps an epoch of so many traces has."""
    return -(-traces // traces_per_step)


def plan_epoch(trace_of_row: Sequence[int], *, traces_per_step: int, seed: int, epoch: int) -> list[StepPlan]:
    """Cut an epoch into optimizer steps.

    Traces are permuted once per epoch; the last, incomplete set is a smaller step of its own: its rows are
    neither dropped nor mixed with those of another epoch.

    Args:
        trace_of_row: [rows], the trace number of each row; traces without rows do not occur.
    """
    rows_of_trace: dict[int, list[int]] = defaultdict(list)
    for row, trace in enumerate(trace_of_row):
        rows_of_trace[int(trace)].append(row)
    order = sorted(rows_of_trace)
    random.Random(f"steps:{seed}:{epoch}").shuffle(order)
    plans = []
    for start in range(0, len(order), traces_per_step):
        traces = tuple(order[start : start + traces_per_step])
        rows = tuple(row for trace in traces for row in rows_of_trace[trace])
        plans.append(StepPlan(epoch=epoch, traces=traces, rows=rows))
    return plans


def deal(
    rows: Sequence[int], lengths: Sequence[int], *, world_size: int, rows_per_forward: int
) -> tuple[tuple[Forward, ...], ...]:
    """Deal the rows of a step (or of an evaluation set) to ranks: ``result[rank][forward]``.

    Rows are sorted by length, longest first, and dealt in rounds; in each round every rank gets up to
    ``rows_per_forward`` neighbours. So padding is small, what ranks compute at the same time is about equally
    long (they wait for each other at each forward pass when the model is sharded), and the step that needs most
    memory comes first. The order of ranks alternates from round to round to balance the sums. Every rank gets the
    same number of forward passes; one without a row left repeats the step's shortest row with weight 0.

    Args:
        lengths: [len(rows)], tokens of each row, aligned with ``rows``.
    """
    if not rows:
        return tuple(() for _ in range(world_size))
    order = [row for _, row in sorted(zip(lengths, rows, strict=True), key=lambda pair: (-pair[0], pair[1]))]
    filler = Forward((order[-1],), filler=True)
    ranks: list[list[Forward]] = [[] for _ in range(world_size)]
    per_round = world_size * rows_per_forward
    for number, start in enumerate(range(0, len(order), per_round)):
        chunk = order[start : start + per_round]
        share, longer = divmod(len(chunk), world_size)
        position = 0
        for place in range(world_size):
            size = share + (place < longer)
            rank = place if number % 2 == 0 else world_size - 1 - place
            ranks[rank].append(Forward(tuple(chunk[position : position + size])) if size else filler)
            position += size
    return tuple(tuple(forwards) for forwards in ranks)
