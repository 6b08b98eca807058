"""The files of the quickstart: traces, the tools, and rewrites of them of which some are held out of training."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from txagent_train.core.codec import trace_to_json
from txagent_train.core.records import Step, Trace, Turn
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.unseen import SETS, UnseenSplit
from txagent_train.data.writing import jsonl_writer
from txagent_train.demo.formulary import split_drugs
from txagent_train.demo.teacher import TRAINING_SCHEDULE, demo_traces
from txagent_train.demo.tools import FIELD_TOOLS, RAG_SPEC, TOOL_SPECS
from txagent_train.toolsmith.embedding import make_embedder
from txagent_train.toolsmith.rewriting import RewritePlan, rewrite_toolbox
from txagent_train.toolsmith.rules import RuleWriter

_HELD_OUT_TOOLS = 3  # of the twelve that give one field each
_VERSIONS, _HELD_OUT_VERSIONS = 20, 4
_SPARE = 2  # drafts for each trace that is wanted: those with a held-out tool go


@dataclass(frozen=True, slots=True)
class DemoSize:
    """How many traces."""

    train_traces: int = 270
    answers_every: int = 2
    """Only each so-many-th training trace trains its answer."""
    heldout_traces: int = 100
    loss_traces: int = 10
    """Of the held-out ones that use seen tools: those whose loss is followed."""


@dataclass(frozen=True, slots=True)
class DemoData:
    """What was written, as far as it is evaluated on. All of it is about drugs that occur nowhere in training.

    ``seen`` uses the tools that training uses, ``unseen_rewrites`` are the same traces under versions of the tools that
    it never shows, and ``unseen_tools`` use tools that it never shows (data.unseen).
    """

    seen: tuple[Trace, ...]
    unseen_rewrites: tuple[Trace, ...]
    unseen_tools: tuple[Trace, ...]


def write_demo_data(folder: Path, size: DemoSize, *, seed: int) -> DemoData:
    """Write ``train.jsonl``, ``loss.jsonl``, the held-out sets, ``toolbox.json`` and ``rewrites.jsonl``.

    A seed always gives the same files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    split = _write_tools(folder, seed)
    train_drugs, heldout_drugs = split_drugs(seed)
    drafts = demo_traces(
        train_drugs, n=_SPARE * size.train_traces, seed=seed, id_prefix="train", schedule=TRAINING_SCHEDULE
    )
    usable = islice((trace for trace in drafts if not split.uses_held_out(trace)), size.train_traces)
    train = [_for_training(trace, with_answer=place % size.answers_every == 0) for place, trace in enumerate(usable)]
    heldout = demo_traces(heldout_drugs, n=size.heldout_traces, seed=seed, id_prefix="heldout")
    sets: dict[str, list[Trace]] = {name: [] for name in SETS}
    for trace in heldout:
        for name, shown in split.sets_of(trace).items():
            sets[name].append(shown)
    _write(folder / "train.jsonl", train)
    _write(folder / "loss.jsonl", sets["seen"][: size.loss_traces])
    for name, traces in sets.items():
        _write(folder / f"{name}.jsonl", traces)
    return DemoData(**{name: tuple(traces) for name, traces in sets.items()})


def _write_tools(folder: Path, seed: int) -> UnseenSplit:
    toolbox = Toolbox((RAG_SPEC, *TOOL_SPECS))
    held_out = random.Random(f"held-out tools:{seed}").sample([tool.name for tool in FIELD_TOOLS], _HELD_OUT_TOOLS)
    plan = RewritePlan(_VERSIONS, hold_out_versions=_HELD_OUT_VERSIONS, hold_out=tuple(sorted(held_out)), seed=seed)
    embedder = make_embedder("tfidf", toolbox.tools)
    rewrites = rewrite_toolbox(toolbox, RuleWriter(toolbox, seed=seed), embedder, plan).rewrites
    toolbox.write(folder / "toolbox.json", overwrite=True)
    rewrites.write(folder / "rewrites.jsonl", overwrite=True)
    return UnseenSplit(toolbox, rewrites, seed)


def _write(path: Path, traces: Iterable[Trace]) -> None:
    with jsonl_writer(path, overwrite=True) as writer:
        for trace in traces:
            writer.write(trace_to_json(trace))


def _for_training(trace: Trace, *, with_answer: bool) -> Trace:
    """The trace with weights on what is hard to learn.

    Parallel and later calls count more, since a token or two decide them: to call twice, to go on and not to answer.
    An answer is easy and long: it is left out of training unless asked for, or unless it is all there is.
    """
    turns: list[Turn] = []
    for turn in trace.turns:
        is_later = turn is not trace.steps[0]
        if isinstance(turn, Step) and (len(turn.calls) > 1 or (turn.calls and is_later)):
            turn = replace(turn, weight=2.0)
        elif isinstance(turn, Step) and not turn.calls and len(trace.steps) > 1:
            turn = replace(turn, train=with_answer)
        turns.append(turn)
    return replace(trace, turns=tuple(turns))
