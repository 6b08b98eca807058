"""Mixed data and the check of retention, on a tiny model with the real renderer and tokenizer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.support.tiny_training import run_recipe, save_tiny_model, small_traces, write_traces
from txagent_train.config.sft import SftRecipe
from txagent_train.core.records import JsonObject
from txagent_train.data.reading import read_records
from txagent_train.models.adapters import load_with_adapter
from txagent_train.sft.prepare import Preparation
from txagent_train.sft.rendering import renderer_for
from txagent_train.sft.retention import INSTRUCTIONS, Retention, retention_table, retention_words
from txagent_train.sft.run import run_sft
from txagent_train.tracking.metric_sections import metric_sections
from txagent_train.tracking.metrics import read_metrics
from txagent_train.tracking.report import load_sections
from txagent_train.tracking.sections import Curves, Table

WEIGHTS = {"train.jsonl": 1.0, "general.jsonl": 0.5}


def _recipe(folder: Path, model: Path, **train: object) -> SftRecipe:
    """Traces and general data mixed in each step, evaluated on both, retention checked."""
    general, held = folder / "general.jsonl", folder / "held.jsonl"
    for path, word in ((general, "colour"), (held, "shape")):
        rows = [{"question": f"Which {word} has thing {n}?", "answer": f"It is {word} {n}."} for n in range(6)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    traces = write_traces(folder / "traces.jsonl", [*small_traces(9)[6:]])
    recipe = run_recipe(folder, model=model, train={"traces_per_step": 4, "check_retention": True, **train})
    sources = [
        {"path": str(folder / "train.jsonl"), "weight": WEIGHTS["train.jsonl"]},
        {"path": str(general), "format": "auto", "kind": "qa", "weight": WEIGHTS["general.jsonl"]},
    ]
    held_out = [{"path": str(traces)}, {"path": str(held), "format": "auto", "kind": "qa"}]
    return SftRecipe.model_validate(recipe.model_dump(mode="json") | {"data": {"sources": sources, "eval": held_out}})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, model: Path) -> SftRecipe:
    """The recipe of a run that is finished."""
    recipe = _recipe(tmp_path_factory.mktemp("finished"), model)
    assert run_sft(recipe).steps == 3
    return recipe


def _records(recipe: SftRecipe, kind: str) -> list[JsonObject]:
    return [record for record in read_metrics(recipe.output_dir / "metrics.jsonl").records if record["kind"] == kind]


def test_the_losses_of_the_sources_make_the_loss(recipe: SftRecipe) -> None:
    records = _records(recipe, "train")
    assert {name for record in records for name in record["loss_by_source"]} == set(WEIGHTS)
    for record in records:
        counts = record["supervised_tokens_by_source"]
        assert sum(counts.values()) == record["supervised_tokens"]
        weights = {name: WEIGHTS[name] * count for name, count in counts.items()}
        total = sum(weights[name] * loss for name, loss in record["loss_by_source"].items())
        assert total / sum(weights.values()) == pytest.approx(record["loss"], rel=1e-12)
        assert record["general_share"] == weights.get("general.jsonl", 0) / sum(weights.values())
    assert any(0 < record["general_share"] < 1 for record in records)


def test_held_out_sources_have_losses_of_their_own(recipe: SftRecipe) -> None:
    for record in _records(recipe, "eval"):
        losses, counts = record["loss_by_source"], record["supervised_tokens_by_source"]
        assert set(losses) == {"traces.jsonl", "held.jsonl"}
        total = sum(losses[name] * counts[name] for name in losses)
        assert total / record["supervised_tokens"] == pytest.approx(record["loss"], rel=1e-12)


def test_both_are_drawn(recipe: SftRecipe) -> None:
    sections = metric_sections(read_metrics(recipe.output_dir / "metrics.jsonl").records)
    (chart,) = [section for section in sections if section.heading == "Loss by source"]
    assert isinstance(chart, Curves)
    assert set(chart.series) == {*(f"train: {name}" for name in WEIGHTS), "eval: traces.jsonl", "eval: held.jsonl"}


def test_retention_is_measured_before_and_after(recipe: SftRecipe) -> None:
    before, after = _records(recipe, "retention")
    assert (before["step"], after["step"]) == (0, 3)
    ratio = after["retention_perplexity_ratio"]
    assert ratio == pytest.approx(math.exp(after["retention_after"] - before["retention_before"]))
    assert ratio != 1
    (table,) = [item for item in load_sections(recipe.output_dir) if item.heading.startswith("Retention")]
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == [before["retention_before"], after["retention_after"]]
    assert table.rows[0][0] == "before: base model" and f"{ratio:.3f}" in table.note
    losses = (before["retention_before"], after["retention_after"])
    assert retention_words([before, after]) == "retention loss {:.4f} -> {:.4f}".format(*losses)
    assert retention_words([before]) == ""


def test_it_is_the_plain_mean_over_the_tokens_of_the_answers(recipe: SftRecipe) -> None:
    """Against the loss of transformers, row by row, on the base model and on the saved adapter."""
    rows = Retention.of(Preparation.of(recipe, renderer_for(recipe.model, recipe.wire, recipe.seed)), ()).rows
    base = AutoModelForCausalLM.from_pretrained(recipe.model.name_or_path)
    before, after = _records(recipe, "retention")
    for model, measured in (
        (base, before["retention_before"]),
        (load_with_adapter(recipe.output_dir / "model"), after["retention_after"]),
    ):
        total = count = 0.0
        for number in range(len(rows)):
            ids, mask = (torch.from_numpy(array.copy())[None].long() for array in rows.row(number))
            with torch.no_grad():
                loss = model(ids, labels=ids.masked_fill(mask == 0, -100)).loss
            total, count = total + float(loss) * float(mask.sum()), count + float(mask.sum())
        assert measured == pytest.approx(total / count, rel=1e-4)


def test_a_resumed_run_compares_with_the_first_start(model: Path, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(record: JsonObject) -> None:
        if record["kind"] == "train" and record["step"] == 2:
            raise Stop

    recipe = _recipe(tmp_path, model, save_every=1)
    with pytest.raises(Stop):
        run_sft(recipe, on_record=stop)
    run_sft(recipe)
    before, after = _records(recipe, "retention")
    ratio = math.exp(after["retention_after"] - before["retention_before"])
    assert after["retention_perplexity_ratio"] == pytest.approx(ratio)
    # Asked for again, a finished run measures nothing anew, and keeps its section.
    run_sft(recipe)
    assert _records(recipe, "retention") == [before, after]


def test_the_instructions_are_short_different_and_plain() -> None:
    rows = [row for _, row in read_records(INSTRUCTIONS)]
    assert len(rows) >= 40
    for key in ("id", "question", "answer"):
        assert len({row[key] for row in rows}) == len(rows)
    assert all(len(row["question"]) + len(row["answer"]) < 500 for row in rows)


def test_a_start_from_an_adapter_is_named() -> None:
    table = retention_table([{"kind": "retention", "step": 0, "retention_before": 1.0}], start="adapter x")
    assert table.rows == (("before: adapter x", 1.0, pytest.approx(math.e)), ("after training", None, None))
