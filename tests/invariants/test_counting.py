"""No supervised token is lost or added between a file of traces and the plan of a run, for every set of real traces.

Counted a second way: the text of each output, tokenised on its own, and the stop token. Each trained step of the file
is a row with as many supervised tokens, or is named with a reason; there is no other row.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tiny_training import write_traces
from tests.support.tokenizers import TOKENIZERS
from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import DataError
from txagent_train.core.records import Trace
from txagent_train.data.decompose import decompose
from txagent_train.data.general import uses_tools
from txagent_train.data.importing import import_traces
from txagent_train.data.loading import load_traces
from txagent_train.rendering.controls import Neutraliser, tokenizer_controls
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.syntax import Cleaner, target_text
from txagent_train.rendering.wire import SYNTAX_MARKERS, FinishStyle, SyntaxName, wire_format_for
from txagent_train.sft.plan import RunPlan
from txagent_train.sft.prepare import Preparation

SETS = {
    "genegpt": "traces.jsonl.gz",
    "openai_messages": "tau_airline.jsonl.gz",
    "toolbench": "train_messages.jsonl",
    "sharegpt": "glaive_toolcall_en.json",
    "biotool": "sharegpt_train.json",
}
LIMITS = {"openai_messages": 8000}
LIMIT = 3000
"""Tokens; some samples of the sets are longer, and must be counted as dropped or summarised."""


def _expected(traces: list[Trace], renderer: Renderer) -> dict[tuple[str, int], int]:
    """Supervised tokens by trace and step."""
    tokenizer = renderer.tokenizer
    controls = tokenizer_controls(tokenizer)
    counts = {}
    for trace in traces:
        for example in decompose(trace):
            cleaner = Cleaner(Neutraliser.of([*controls, *SYNTAX_MARKERS]), Neutraliser.of(controls))
            try:
                text = target_text(example, renderer.wire, cleaner)
            except DataError:
                counts[trace.id, example.step_index] = 0
                continue
            counts[trace.id, example.step_index] = len(tokenizer.encode(text, add_special_tokens=False)) + 1
    return counts


@pytest.mark.parametrize(("syntax", "finish"), [("txagent", "call"), ("hermes", "text")])
@pytest.mark.parametrize("overlong", ["drop", "summarize"])
@pytest.mark.parametrize("name", SETS)
def test_every_supervised_token_of_a_set(
    shared_data: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    syntax: SyntaxName,
    finish: FinishStyle,
    overlong: str,
) -> None:
    source = shared_data(f"{name}/{SETS[name]}")
    path = tmp_path / "traces.jsonl"
    report = import_traces(source, path, format="auto", incomplete="steps", invalid_calls="keep")
    assert report.read == report.accepted
    traces = list(load_traces(path, invalid_calls="keep"))
    if name == "genegpt":
        traces = traces[::10]
    sources = []
    for kind in ("trace", "chat"):
        own = [trace for trace in traces if uses_tools(trace) == (kind == "trace")]
        if own:
            sources.append({"path": str(write_traces(tmp_path / f"{kind}.jsonl", own)), "kind": kind})
    data = {"sources": sources, "max_length": LIMITS.get(name, LIMIT), "overlong": overlong, "invalid_calls": "keep"}
    recipe = SftRecipe.model_validate(
        {
            "kind": "sft",
            "name": "count",
            "output_dir": str(tmp_path / "run"),
            "model": {"name_or_path": "x"},
            "data": data,
        }
    )
    tokenizer = TOKENIZERS["smollm2"]()
    renderer = Renderer(tokenizer, wire_format_for(tokenizer, syntax=syntax, finish=finish))
    epochs = Preparation.of(recipe, renderer).epochs(1, traces_per_step=7, max_steps=None)
    plan = RunPlan.of(epochs, traces_per_step=7, seed=0, reduction="token")
    (rows,) = epochs

    planned = [row for step in range(len(plan.steps)) for row in plan.steps[step].rows]
    assert sorted(planned) == list(range(len(rows))), "each row is in one optimizer step"
    found = {(rows.trace_ids[rows.trace[row]], int(rows.step[row])): int(rows.row(row)[1].sum()) for row in planned}
    assert len(found) == len(planned)
    dropped = [json.loads(line) for line in (rows.directory / "dropped.jsonl").read_text().splitlines()]
    named = {(entry["id"], entry["step"]): entry["reason"] for entry in dropped}
    expected = _expected(traces, renderer)
    assert found.keys() | named.keys() == expected.keys() and not found.keys() & named.keys()
    assert found == {key: expected[key] for key in found}
    assert rows.report.supervised_tokens == sum(found.values())
    assert sum(plan.weight(step) for step in range(len(plan.steps))) == sum(found.values())
    assert set(named.values()) <= {"overlong", "step_without_call"}
    assert sum(rows.report.dropped.values()) == len(named)
