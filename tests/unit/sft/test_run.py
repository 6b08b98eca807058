"""The whole job on a tiny model with the real renderer and tokenizer."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support.tiny_training import (
    prepare_rows,
    random_traces,
    run_recipe,
    save_tiny_model,
    small_traces,
    tiny_model,
    write_traces,
)
from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import EnvironmentFailure, ModelError, RecipeError, RunDirError, UserError
from txagent_train.core.records import JsonObject
from txagent_train.models.adapters import load_with_adapter
from txagent_train.sft.checks import check_rows
from txagent_train.sft.merge import merge
from txagent_train.sft.run import run_sft
from txagent_train.tracking.run_dir import RunDir


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """The run directory of a LoRA run with held-out data."""
    folder = tmp_path_factory.mktemp("finished")
    held_out = write_traces(folder / "held_out.jsonl", small_traces(3)[1:])
    result = run_sft(run_recipe(folder, model=model, data={"eval": [{"path": str(held_out)}]}))
    assert result.steps == 3 and result.loss is not None and result.eval_loss is not None
    assert json.loads(json.dumps(result.to_json()))["prepared"]["rows"] == 12
    return result.run_dir


def test_a_run_leaves_all_that_is_needed(finished: Path) -> None:
    model_files = {path.name for path in (finished / "model").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "chat_template.jinja"} <= model_files
    assert "generation_config.json" in model_files and "training_args.bin" not in model_files
    manifest = RunDir.load(finished).read_manifest()
    assert manifest["state"] == "finished"
    tokenizer = AutoTokenizer.from_pretrained(finished / "model")
    assert tokenizer.pad_token != tokenizer.eos_token
    generation = json.loads((finished / "model" / "generation_config.json").read_text())
    assert generation["eos_token_id"] in (tokenizer.eos_token_id, [tokenizer.eos_token_id])
    records = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [item["kind"] for item in records] == ["start", "eval", "train", "train", "train", "eval"]
    assert "tokens_per_second" not in records[2] and records[3]["tokens_per_second"] > 0
    assert records[1]["step"] == 0 and records[1]["loss"] > records[-1]["loss"]


def test_a_finished_run_can_be_asked_for_again(finished: Path, model: Path) -> None:
    held_out = finished.parent / "held_out.jsonl"
    recipe = run_recipe(finished.parent, model=model, data={"eval": [{"path": str(held_out)}]})
    before = (finished / "model" / "adapter_model.safetensors").read_bytes()
    result = run_sft(recipe)
    assert result.loss is not None and result.eval_loss is not None
    assert (finished / "model" / "adapter_model.safetensors").read_bytes() == before


def test_merging_gives_the_same_answers(finished: Path, tmp_path: Path) -> None:
    report = merge(finished / "model", tmp_path / "merged")
    assert report.logit_difference <= report.tolerance
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", use_safetensors=True)
    adapted = load_with_adapter(finished / "model")
    ids = torch.arange(20)[None]
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, adapted(ids).logits, rtol=1e-4, atol=1e-4)
        bare = adapted.unload()
        assert not torch.allclose(merged(ids).logits, bare(ids).logits, atol=1e-4)
    names = {path.name for path in (tmp_path / "merged").iterdir()}
    assert {"model.safetensors", "tokenizer.json", "chat_template.jinja", "generation_config.json"} <= names
    generation = "generation_config.json"
    assert (tmp_path / "merged" / generation).read_bytes() == (finished / "model" / generation).read_bytes()
    assert not any(name.startswith("adapter_") for name in names)
    with pytest.raises(RunDirError, match="not empty"):
        merge(finished / "model", tmp_path / "merged")
    with pytest.raises(ModelError, match="not an adapter"):
        merge(tmp_path / "merged", tmp_path / "again")


def test_full_fine_tuning_saves_a_model(tmp_path: Path, model: Path) -> None:
    result = run_sft(run_recipe(tmp_path, model=model, adapter={"method": "full"}))
    trained = AutoModelForCausalLM.from_pretrained(result.model_dir, use_safetensors=True)
    base = AutoModelForCausalLM.from_pretrained(model)
    assert not torch.equal(trained.model.embed_tokens.weight, base.model.embed_tokens.weight)
    assert result.loss is not None and result.loss < 12
    # Done already: the model is loaded from its checkpoint and saved again.
    before = (result.model_dir / "model.safetensors").read_bytes()
    run_sft(run_recipe(tmp_path, model=model, adapter={"method": "full"}))
    assert (result.model_dir / "model.safetensors").read_bytes() == before


def test_a_bfloat16_that_is_asked_for_is_what_runs_on_a_cpu_too(tmp_path: Path, model: Path, finished: Path) -> None:
    records: list[JsonObject] = []
    recipe = run_recipe(tmp_path, model=model)
    run_sft(
        recipe.model_copy(update={"model": recipe.model.model_copy(update={"dtype": "bfloat16"})}),
        on_record=records.append,
    )
    assert records[0]["dtype"] == "bfloat16"
    exact = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    for got, wanted in zip(records[1:], exact[2:5], strict=True):
        assert got["loss"] == pytest.approx(wanted["loss"], rel=2e-2) and got["loss"] != wanted["loss"]


def test_starting_from_an_adapter(finished: Path, tmp_path: Path, model: Path) -> None:
    start = {"init_from": str(finished / "model"), "lora": {"r": 4}}
    records: list[JsonObject] = []
    run_sft(run_recipe(tmp_path, model=model, adapter=start), on_record=records.append)
    fresh: list[JsonObject] = []
    (tmp_path / "fresh").mkdir()
    run_sft(run_recipe(tmp_path / "fresh", model=model), on_record=fresh.append)
    assert records[1]["loss"] < fresh[1]["loss"]


def test_a_signal_lets_the_step_finish_and_a_checkpoint_be_saved(tmp_path: Path, model: Path) -> None:
    former = signal.getsignal(signal.SIGTERM)

    def stop(record: JsonObject) -> None:
        if record["kind"] == "train" and record["step"] == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    recipe = run_recipe(tmp_path, model=model, train={"save_every": None})
    with pytest.raises(KeyboardInterrupt, match="after step 2"):
        run_sft(recipe, on_record=stop)
    assert [path.name for path in (recipe.output_dir / "checkpoints").iterdir()] == ["step-2"]
    assert RunDir.load(recipe.output_dir).read_manifest()["state"] == "interrupted"
    assert signal.getsignal(signal.SIGTERM) == former
    assert run_sft(recipe).steps == 3


def test_mistakes_are_found_before_anything_is_written(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipes = [
        run_recipe(tmp_path, model=model, data={"sources": [{"path": str(tmp_path / "absent.jsonl")}]}),
        run_recipe(tmp_path, model=tmp_path / "absent"),
        run_recipe(tmp_path, model=model, adapter={"lora": {"target_modules": ["lm_head"]}}),
        run_recipe(tmp_path, model=model, adapter={"init_from": str(tmp_path / "absent"), "lora": {"r": 4}}),
        run_recipe(tmp_path, model=model, train={"optimizer": "adamw_8bit"}),
    ]
    for recipe in recipes:
        with pytest.raises((RecipeError, ModelError)):
            run_sft(recipe)
        assert not recipe.output_dir.exists()


def test_a_mistake_found_late_does_not_take_the_folder(tmp_path: Path, model: Path) -> None:
    def tried(**sections: Any) -> SftRecipe:
        return run_recipe(tmp_path, model=model, **sections)

    bad = tmp_path / "bad.jsonl"
    bad.write_text("{")
    lora = {"r": 4}
    mistakes = [
        (tried(data={"sources": [{"path": str(bad)}]}), "bad.jsonl"),
        (tried(data={"max_length": 10}), "data.max_length"),
        (tried(adapter={"lora": lora | {"target_modules": ["w_pack"]}}), "no layer w_pack"),
        (tried(adapter={"lora": lora | {"target_modules": ".*(lm_head|embed_tokens|q_proj)"}}), "cannot be adapted"),
        (tried(adapter={"lora": lora | {"modules_to_save": ["embed_tokens"]}}), "tied to the head"),
    ]
    for recipe, match in mistakes:
        with pytest.raises(UserError, match=match):
            run_sft(recipe)
        assert not recipe.output_dir.exists()
    (tmp_path / "run").mkdir()
    with pytest.raises(UserError):
        run_sft(mistakes[1][0], resume="never")
    assert run_sft(tried(), resume="never").steps == 3


def test_a_machine_that_failed_before_the_first_checkpoint_lets_another_recipe_start(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(EnvironmentFailure):
        patch.setenv("ACCELERATE_USE_FSDP", "true")
        run_sft(run_recipe(tmp_path, model=model))
    assert run_sft(run_recipe(tmp_path, model=model, train={"learning_rate": 2e-2}), resume="never").steps == 3


def test_a_file_that_counts_twice_or_is_held_out_too_is_refused(tmp_path: Path, model: Path) -> None:
    recipe = run_recipe(tmp_path, model=model)
    train = tmp_path / "train.jsonl"
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(train.read_bytes())
    for section in (
        {"sources": [{"path": str(train)}, {"path": str(copy)}]},
        {"eval": [{"path": str(copy)}]},
        {"sources": [{"path": str(train)}, {"path": str(train)}]},
    ):
        with pytest.raises(RecipeError, match=r"same content as data\.sources\.0\.path"):
            run_sft(run_recipe(tmp_path, model=model, data=section))
    assert not recipe.output_dir.exists()


def test_other_base_weights_are_refused_on_resume_and_at_merge(tmp_path: Path) -> None:
    base = save_tiny_model(tmp_path / "base")
    recipe = run_recipe(tmp_path, model=base)
    run_sft(recipe)
    tensors = load_file(base / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(RunDirError, match="base_weights"):
        run_sft(recipe)
    with pytest.raises(ModelError, match="other weights"):
        merge(recipe.output_dir / "model", tmp_path / "merged")


def test_rows_must_fit_the_model(tmp_path: Path) -> None:
    rows = prepare_rows(tmp_path / "rows", random_traces(4))
    model = tiny_model()
    check_rows(model, [rows], pad_token_id=0)
    with pytest.raises(ModelError, match="model has only 61 tokens"):
        check_rows(model, [rows], pad_token_id=61)
    model.config.max_position_embeddings = 9
    with pytest.raises(ModelError, match=rf"longest sample \(trace t\d, step \d\) has {max(rows.length)} tokens"):
        check_rows(model, [rows], pad_token_id=0)


def test_steps_beyond_the_epochs_are_told(tmp_path: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert run_sft(run_recipe(tmp_path, model=model, train={"max_steps": 50})).steps == 3
    assert "max_steps is 50, but train.epochs=1 ends after 3 steps" in caplog.text


def test_processes_that_would_train_alone_are_refused(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(EnvironmentFailure, match="FSDP was asked for, but NO would run"):
        run_sft(run_recipe(tmp_path, model=model))
    assert RunDir.load(tmp_path / "run").read_manifest()["state"] == "failed"
