"""The whole job once, on a laptop, offline: demo traces -> LoRA adapter -> base and trained model compared.

The comparison is on drugs that occur nowhere in training, not even in a tool's result. Both models get the same
prompts; the base model was never shown the format of calls, which is why its spellings are read tolerantly.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from txagent_train.agent.backends import LocalBackend
from txagent_train.agent.loop import AgentSettings
from txagent_train.config.loading import load_recipe
from txagent_train.config.sft import SftRecipe
from txagent_train.config.shipped import shipped_recipe
from txagent_train.core.records import JsonObject, StepExample, Trace
from txagent_train.data.decompose import decompose
from txagent_train.demo.data import DemoData, DemoSize, write_demo_data
from txagent_train.demo.formulary import split_drugs
from txagent_train.demo.tools import DemoTools
from txagent_train.evaluation.comparison import ComparisonRow, compare
from txagent_train.evaluation.next_call import NextCallResult, evaluate_next_calls
from txagent_train.evaluation.questions import QuestionResult, evaluate_questions, gold_question
from txagent_train.models.adapters import load_with_adapter
from txagent_train.scoring.intervals import Rate
from txagent_train.sft.rendering import renderer_for
from txagent_train.sft.run import SftResult, run_sft
from txagent_train.tracking.files import atomic_write_json
from txagent_train.tracking.report import build_run_report, save_section
from txagent_train.tracking.sections import Table, Traces

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuickstartSize:
    """How much of everything. The defaults fit into a quarter of an hour on two cores."""

    data: DemoSize = field(default_factory=DemoSize)
    next_calls: int = 48
    """With tools that training uses."""
    unseen_calls: int = 24
    """With rewrites that it never shows, and so many with tools that it never shows."""
    questions: int = 8
    max_new_tokens: int = 100
    """Longer than any recorded output; a base model that rambles costs this much for each item."""
    max_agent_steps: int = 6
    max_unparsable: int = 2


@dataclass(frozen=True, slots=True)
class QuickstartResult:
    """What quickstart found; ``seconds`` is by stage."""

    training: SftResult
    rows: tuple[ComparisonRow, ...]
    report: Path
    seconds: dict[str, float]

    def to_json(self) -> JsonObject:
        return {
            "training": self.training.to_json(),
            "comparison": [row.to_json() for row in self.rows],
            "report": str(self.report),
            "seconds": {stage: round(seconds, 1) for stage, seconds in self.seconds.items()},
        }


def run_quickstart(out: Path, *, size: QuickstartSize | None = None, overrides: Sequence[str] = ()) -> QuickstartResult:
    """Run it into ``out``: ``data/``, ``run/`` (a run directory with the report) and ``quickstart.json``.

    Called again, it finds the trained model and only compares.

    Args:
        overrides: ``key=value`` changes to the shipped recipe.
    """
    size = size or QuickstartSize()
    recipe = load_recipe(shipped_recipe("quickstart"), [*overrides_for(out), *overrides])
    data = write_demo_data(out / "data", size.data, seed=recipe.seed)
    seconds: dict[str, float] = {}
    with _timed(seconds, "training"):
        training = run_sft(recipe, resume="auto")
    rows, sections = _compare_models(recipe, training.model_dir, data, size, seconds)
    for name, section in sections:
        save_section(training.run_dir, name, section)
    result = QuickstartResult(training, tuple(rows), build_run_report(training.run_dir), seconds)
    atomic_write_json(out / "quickstart.json", result.to_json())
    return result


def overrides_for(out: Path) -> list[str]:
    """What the shipped recipe needs to run in ``out`` on this machine."""
    data = {
        "sources.0.path": "train.jsonl",
        "eval.0.path": "loss.jsonl",
        "augment.toolbox": "toolbox.json",
        "augment.rewrites": "rewrites.jsonl",
    }
    paths = {"output_dir": out / "run"} | {f"data.{key}": out / "data" / name for key, name in data.items()}
    return [
        *(f"{key}={json.dumps(str(path))}" for key, path in paths.items()),
        *(["model.dtype=bfloat16"] if _has_fast_bfloat16() else []),
    ]


def _has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16, which halves the time; elsewhere it would be slower than float32."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    seconds[stage] = time.monotonic() - start


def next_call_examples(traces: Iterable[Trace], count: int) -> list[StepExample]:
    """The first ``count`` steps with calls, trace by trace; tools in the recorded order."""
    steps = chain.from_iterable(decompose(trace, shuffle_tools=False) for trace in traces)
    return [example for example in steps if example.target.calls][:count]


def _compare_models(
    recipe: SftRecipe, model_dir: Path, data: DemoData, size: QuickstartSize, seconds: dict[str, float]
) -> tuple[list[ComparisonRow], list[tuple[str, Table | Traces]]]:
    renderer = renderer_for(recipe.model, recipe.wire, recipe.seed)
    model: Any = load_with_adapter(model_dir, dtype=recipe.model.dtype)
    backend = LocalBackend(
        model, stop_token_ids=[renderer.stop_token_id], pad_token_id=renderer.pad_token_id, batch_size=16
    )
    sets = {
        "": next_call_examples(data.seen, size.next_calls),
        ", unseen rewrites": next_call_examples(data.unseen_rewrites, size.unseen_calls),
        ", unseen tools": next_call_examples(data.unseen_tools, size.unseen_calls),
    }
    asked = [trace for trace in data.seen if any(step.calls for step in trace.steps)]
    questions = [gold_question(trace) for trace in asked[: size.questions]]
    tools = DemoTools(split_drugs(recipe.seed)[1])
    settings = AgentSettings(
        max_steps=size.max_agent_steps,
        max_unparsable=size.max_unparsable,
        max_new_tokens=size.max_new_tokens,
        seed=recipe.seed,
    )
    calls: dict[str, dict[str, NextCallResult]] = {}
    answers: dict[str, QuestionResult] = {}
    for name in ("base", "trained"):
        without_adapter = model.disable_adapter() if name == "base" else nullcontext()
        with _timed(seconds, f"{name} model"), without_adapter:
            items = sum(map(len, sets.values()))
            _log.info("%s model: %d next calls, %d questions", name, items, len(questions))
            calls[name] = {
                what: evaluate_next_calls(
                    examples, renderer=renderer, backend=backend, max_new_tokens=size.max_new_tokens
                )
                for what, examples in sets.items()
            }
            answers[name] = evaluate_questions(
                questions, backend=backend, renderer=renderer, executor=tools, settings=settings, model_name=name
            )
    rows = [
        replace(row, metric=f"{row.metric}{what}")
        for what in sets
        for row in compare(calls["base"][what], calls["trained"][what])
    ]
    rows += compare(answers["base"], answers["trained"])
    return rows, [
        ("10-comparison", comparison_table(rows)),
        ("20-next-calls", _calls_table(calls)),
        *((f"3{place}-traces-{name}", _trace_section(name, answers[name])) for place, name in enumerate(calls)),
    ]


def percent(rate: Rate) -> str:
    """A rate with its 95% interval, as people read it."""
    if rate.value is None:
        return "no items"
    return f"{rate.value:.0%} ({rate.low:.0%} to {rate.high:.0%})"


def _points(row: ComparisonRow) -> str:
    if row.base.value is None or row.trained.value is None:
        return ""
    return f"{100 * (row.trained.value - row.base.value):+.0f}"


def comparison_table(rows: Sequence[ComparisonRow]) -> Table:
    """Base and trained model side by side."""
    return Table(
        "Base and trained model on held-out drugs",
        (
            "metric",
            "items",
            "base (95% interval)",
            "trained (95% interval)",
            "difference in points",
            "p (McNemar, exact)",
        ),
        tuple(
            (
                row.metric,
                row.base.total,
                percent(row.base),
                percent(row.trained),
                _points(row),
                f"{row.test.p_value:.2g}",
            )
            for row in rows
        ),
        note="The drugs, their brands included, occur nowhere in the training traces.",
    )


def _calls_table(results: dict[str, dict[str, NextCallResult]]) -> Table:
    rows = [
        (
            f"{item.id}{what}",
            json.dumps([{call.name: call.arguments} for call in item.expected]),
            base.text or json.dumps([{call.name: call.arguments} for call in base.predicted]),
            item.text or json.dumps([{call.name: call.arguments} for call in item.predicted]),
            "yes" if item.score.exact else "no",
        )
        for what in results["base"]
        for base, item in zip(results["base"][what].items, results["trained"][what].items, strict=True)
    ]
    return Table("Next calls, item by item", ("step", "recorded", "base", "trained", "trained is exact"), tuple(rows))


def _trace_section(name: str, result: QuestionResult) -> Traces:
    labels = tuple("correct" if item.correct else "wrong" for item in result.items)
    return Traces(f"Answers of the {name} model", result.traces, labels)
