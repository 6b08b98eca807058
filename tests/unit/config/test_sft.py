from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.unit.config.conftest import Load, Problems
from txagent_train.config.sft import ALL_LINEAR


def test_defaults(load: Load) -> None:
    recipe = load()
    assert recipe.seed == 0
    assert recipe.model.dtype == "auto"
    assert recipe.model.attn_implementation == "auto"
    assert recipe.adapter.lora.options() == {
        "r": 16,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "target_modules": list(ALL_LINEAR),
    }
    assert (recipe.wire.frame, recipe.wire.syntax, recipe.wire.finish) == ("auto", "txagent", "call")
    assert recipe.wire.tool_delivery == "prompt"
    assert recipe.data.max_length == 32768
    assert recipe.data.sources[0].weight == 1.0
    assert recipe.train.learning_rate == 2e-4
    assert recipe.tracking.wandb == "auto"


def test_a_recipe_is_frozen(load: Load) -> None:
    with pytest.raises(ValidationError):
        load().train.epochs = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("seed: true", "seed: must be a whole number, not true (line 7)"),
        ("seed: -1", "seed: must be at least 0, not -1 (line 7)"),
        ("seed: 4294967296", "seed: must be less than 4.29497e+09, not 4294967296 (line 7)"),
        ("train: {epochs: 1.5}", "train.epochs: must be a whole number, not 1.5 (line 7)"),
        ("train: {learning_rate: abc}", "train.learning_rate: must be a number, not the text 'abc' (line 7)"),
        ("train: {learning_rate: true}", "train.learning_rate: must be a number, not true (line 7)"),
        ("train: {learning_rate: 0}", "train.learning_rate: must be greater than 0, not 0 (line 7)"),
        ("train: {learning_rate: 'nan'}", "train.learning_rate: must be a finite number, not nan (line 7)"),
        ("train: {warmup_ratio: 1.5}", "train.warmup_ratio: must be at most 1, not 1.5 (line 7)"),
        ("train: {rows_per_forward: 0}", "train.rows_per_forward: must be at least 1, not 0 (line 7)"),
        ("train: {eval_every: 0}", "train.eval_every: must be at least 1, not 0 (line 7)"),
        ("train: 3", "train: must be a section, not 3 (line 7)"),
        ("train: {optimizer: sgd}", None),
        ("adapter: {lora: {lora_dropout: 1}}", "adapter.lora.lora_dropout: must be less than 1, not 1 (line 7)"),
        ("tracking: {wandb: true}", "tracking.wandb: must be auto | online | offline | off, not true (line 7)"),
        ("tracking: {tags: a}", "tracking.tags: must be a list, not the text 'a' (line 7)"),
        ("tracking: {tags: [a, 1]}", "tracking.tags.1: must be a text, not 1 (line 7)"),
        ("tracking: {project: ''}", "tracking.project: must not be empty (line 7)"),
        ("adapter: {init_from: ''}", "adapter.init_from: must be a path, not an empty text (line 7)"),
        ("adapter: {init_from: [a]}", "adapter.init_from: must be a path, not a list (line 7)"),
    ],
)
def test_each_wrong_value_has_a_line_of_its_own(problems: Problems, more: str, problem: str | None) -> None:
    found = problems(more)
    assert len(found) == 1
    assert problem is None or found == [problem]


@pytest.mark.parametrize("value", ["2e-4", "0.0002", "'2e-4'", "2.0e-4"])
def test_numbers_however_written(load: Load, value: str) -> None:
    assert load(f"train: {{learning_rate: {value}}}").train.learning_rate == 2e-4


@pytest.mark.parametrize(
    ("value", "read"),
    [("all-linear", "all-linear"), ("[q_proj]", ("q_proj",)), ("'.*_proj'", ".*_proj")],
)
def test_target_modules_are_a_list_or_one_text(load: Load, value: str, read: object) -> None:
    assert load(f"adapter: {{lora: {{target_modules: {value}}}}}").adapter.lora.target_modules == read


@pytest.mark.parametrize("value", ["[]", "[1]", "3", "''"])
def test_other_target_modules_are_refused(problems: Problems, value: str) -> None:
    (problem,) = problems(f"adapter: {{lora: {{target_modules: {value}}}}}")
    assert problem.startswith("adapter.lora.target_modules: must be a list of layer names")


def test_other_options_of_lora_pass_through(load: Load) -> None:
    lora = load("adapter: {lora: {use_dora: true, rank_pattern: {q_proj: 4}}}").adapter.lora
    assert lora.options()["use_dora"] is True
    assert lora.options()["rank_pattern"] == {"q_proj": 4}


def test_an_option_that_lora_lacks_is_refused(problems: Problems) -> None:
    assert problems("adapter: {lora: {use_dorra: true}}") == [
        "adapter.lora.use_dorra: peft.LoraConfig has no such option; did you mean adapter.lora.use_dora? (line 7)"
    ]


def test_keys_that_conflict(problems: Problems) -> None:
    assert problems("train: {eval_every: 5}") == [
        "train.eval_every: there is nothing to evaluate on; name held-out files in data.eval (line 7)"
    ]
    assert problems("adapter: {method: full, init_from: x}") == [
        "adapter.init_from: an adapter cannot start a full fine-tune; merge it into the model first (line 7)"
    ]
    (problem,) = problems("adapter: {method: full}", overrides=["model.quantization=nf4"])
    assert problem.startswith("model.quantization: quantized weights cannot be trained")
    flash = ["model.attn_implementation=flash_attention_2", "train.packing=none"]
    (problem,) = problems(overrides=[*flash, "model.dtype=float32"])
    assert problem.startswith("model.dtype: flash_attention_2 has no float32")
    (problem,) = problems(overrides=flash[:1])
    assert problem.startswith("train.packing: flash_attention_2 takes no mask of a trie; use auto")
    (problem,) = problems(overrides=["data.eval=[{path: train.jsonl}]"])
    assert problem.startswith("data.eval.0.path: this file is trained on too")
    (problem,) = problems(overrides=["name=a/b"])
    assert problem == "name: names the run, so it must not be a path (override)"
    (problem,) = problems(overrides=["data.augment={toolbox: t.json, n_hard: 2}"])
    assert problem == "data.augment.n_hard: the nearest tools are read from a file; name it in neighbours (override)"
    (problem,) = problems(overrides=["data.ablation.tool_fraction=0.1"])
    assert problem.startswith("data.ablation.tool_fraction: a share of which toolbox?")


def test_rows_are_filled_with_tries_unless_packing_is_none(load: Load, problems: Problems) -> None:
    assert (load().train.packing, load().train.row_tokens) == ("trie", None)
    assert problems("train: {rows_per_forward: 2}") == [
        "train.rows_per_forward: with packing trie a forward pass is one row: set row_tokens to what fits into it, or "
        "packing to none (line 7)"
    ]
    assert load("train: {packing: none, rows_per_forward: 2}").train.rows_per_forward == 2
    assert load("train: {row_tokens: 9}").train.row_tokens == 9
    (problem,) = problems("train: {packing: none, row_tokens: 9}")
    assert problem.startswith("train.row_tokens: belongs to packing trie")


def test_augmentation_and_ablations_are_off_unless_asked_for(load: Load, problems: Problems) -> None:
    data = load().data
    assert data.augment is None
    assert (data.ablation.max_steps, data.ablation.thoughts, data.ablation.tool_fraction) == (None, True, 1.0)
    augment = load(overrides=["data.augment.toolbox=t.json"]).data.augment
    assert augment is not None and (augment.share, augment.n_random, augment.virtual_share) == (1.0, 0, 0.0)
    (problem,) = problems(overrides=["data.ablation.max_steps=2"])
    assert problem == "data.ablation.max_steps: must be 1 | 3 | 5, not 2 (override)"
    (problem,) = problems(overrides=["data.augment.share=0.5"])
    assert problem.startswith("data.augment.toolbox: ")
