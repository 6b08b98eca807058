from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.config.conftest import SMALLEST, Load, Problems
from txagent_train.config.loading import FREE_ON_RESUME, fingerprint, load_recipe, to_yaml
from txagent_train.config.paths import check_files
from txagent_train.config.shipped import find_recipe, shipped_recipe
from txagent_train.core.errors import RecipeError, UserError


def test_every_problem_is_reported_at_once(problems: Problems) -> None:
    found = problems(
        """\
adapter:
  method: full
  init_from: start
  lora: {use_dorra: true, r: 0}
train:
  learning_rat: 1
  epochs: x
  eval_every: 5
model: {name_or_path: twice}
""",
        overrides=["data.sources.0.format=opnai", "nonsense"],
    )
    assert found == [
        "model: stands twice, first in line 4 (line 15)",
        "nonsense: an override is written key=value, as in train.epochs=2",
        "data.sources.0.format: must be auto | native | openai | txagent | athena | sharegpt | toolbench, "
        "not the text 'opnai' (override); did you mean openai?",
        "adapter.init_from: an adapter cannot start a full fine-tune; merge it into the model first (line 9)",
        "adapter.lora.r: must be at least 1, not 0 (line 10)",
        "adapter.lora.use_dorra: peft.LoraConfig has no such option; did you mean adapter.lora.use_dora? (line 10)",
        "train.learning_rat: unknown key (line 12); did you mean train.learning_rate?",
        "train.epochs: must be a whole number, not the text 'x' (line 13)",
        "train.eval_every: there is nothing to evaluate on; name held-out files in data.eval (line 14)",
    ]


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ("train: {learning_rat: 1}", "; did you mean train.learning_rate?"),
        ("learning_rate: 1", "; did you mean train.learning_rate?"),
        ("train: {max_length: 5}", "; did you mean data.max_length?"),
        ("format: native", "; did you mean data.sources.0.format?"),
        ("wire: {zzz: 1}", "; known: frame, syntax, finish, tool_delivery"),
    ],
)
def test_an_unknown_key_comes_with_the_nearest_right_one(problems: Problems, more: str, hint: str) -> None:
    (problem,) = problems(more)
    assert problem.endswith(f"unknown key (line 7){hint}")


def test_missing_keys_are_named_with_their_section(problems: Problems) -> None:
    assert problems(whole="kind: sft\nname: x\nmodel:\n  dtype: auto\ndata: {sources: []}") == [
        "output_dir: missing (line 1)",
        "model.name_or_path: missing (line 3)",
        "data.sources: must have at least 1 item (line 5)",
    ]


@pytest.mark.parametrize(
    ("whole", "problem"),
    [
        ("", "the recipe is empty"),
        ("- a", "the recipe must be a mapping of keys to values"),
        ("name: x", "kind: missing; known: sft"),
        ("kind: stf", "kind: 'stf' is not a kind of recipe (line 1); known: sft"),
        ("kind: [sft]", "kind: ['sft'] is not a kind of recipe (line 1); known: sft"),
        ("kind: sft\nname: [x", "not YAML: expected ',' or ']', but got '<stream end>' (line 2)"),
        ("kind: sft\nextends: [a]", "extends: must be the path of one recipe, or the name of a shipped one (line 2)"),
    ],
)
def test_recipes_that_cannot_be_validated_at_all(problems: Problems, whole: str, problem: str) -> None:
    assert problem in problems(whole=whole)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such file"):
        load_recipe(tmp_path / "none.yaml")
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(tmp_path)
    (tmp_path / "utf16.yaml").write_text(SMALLEST, encoding="utf-16")
    with pytest.raises(RecipeError, match="not a UTF-8 text"):
        load_recipe(tmp_path / "utf16.yaml")


def test_extends_merges_a_chain(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base/one.yaml").write_text(SMALLEST + "train: {epochs: 2, weight_decay: 0.1}\n")
    (tmp_path / "base/two.yaml").write_text("extends: one.yaml\ntrain: {epochs: 3, learning_rat: 1}\n")
    top = tmp_path / "top.yaml"
    top.write_text("extends: base/two.yaml\nname: top\ntrain: {traces_per_step: 4, epochs: x}\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(top)
    assert sorted(caught.value.problems) == [
        "train.epochs: must be a whole number, not the text 'x' (line 3)",
        f"train.learning_rat: unknown key (line 2 of {tmp_path}/base/two.yaml); did you mean train.learning_rate?",
    ]
    (tmp_path / "base/two.yaml").write_text("extends: one.yaml\ntrain: {epochs: 3}\n")
    recipe = load_recipe(top, ["train.epochs=5"])
    assert recipe.name == "top"
    train = recipe.train
    assert (train.epochs, train.weight_decay, train.traces_per_step, train.warmup_ratio) == (5, 0.1, 4, 0.1)


def test_extends_finds_cycles_and_missing_bases(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(RecipeError, match=r"extends: a cycle, a.yaml -> b.yaml -> a.yaml"):
        load_recipe(tmp_path / "a.yaml")
    (tmp_path / "c.yaml").write_text("kind: sft\nextends: none.yaml\n")
    with pytest.raises(
        RecipeError, match=r"extends: no such file: .*none.yaml, nor a shipped recipe of that name \(line 2\); "
    ):
        load_recipe(tmp_path / "c.yaml")


def test_extends_takes_the_name_of_a_shipped_recipe(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    for name in ("txagent-llama3.1-8b-lora", "txagent-llama3.1-8b-lora.yaml"):
        mine.write_text(f"extends: {name}\nname: mine\ntrain: {{epochs: 7}}\n")
        recipe, base = load_recipe(mine), load_recipe(shipped_recipe("txagent-llama3.1-8b-lora"))
        assert (recipe.name, recipe.train.epochs, recipe.model) == ("mine", 7, base.model)
    mine.write_text("extends: txagent-llama3.1-8b-lor\n")
    with pytest.raises(RecipeError, match=r"did you mean txagent-llama3\.1-8b-lora\?"):
        load_recipe(mine)
    (tmp_path / "quickstart.yaml").write_text(SMALLEST)
    mine.write_text("extends: quickstart.yaml\n")  # a file comes first
    assert load_recipe(mine).name == "small"


def test_what_is_nested_too_deeply_or_named_too_long_is_a_user_error(tmp_path: Path) -> None:
    recipe = tmp_path / "deep.yaml"
    for depth in (60, 5000):
        recipe.write_text(f"kind: sft\nname: {'[' * depth}{']' * depth}\n")
        with pytest.raises(RecipeError, match="nested more than 50 deep"):
            load_recipe(recipe)
    recipe.write_text(SMALLEST)
    with pytest.raises(RecipeError, match="nested more than 50 deep"):
        load_recipe(recipe, ["name=" + "[" * 5000])
    with pytest.raises(RecipeError, match="nested more than 50 deep"):
        load_recipe(recipe, ["a." * 5000 + "a=1"])
    long = "x" * 5000
    with pytest.raises(UserError, match="neither a recipe file"):
        find_recipe(long)
    with pytest.raises(RecipeError, match="cannot be read"):
        load_recipe(tmp_path / long)
    with pytest.raises(RecipeError, match=r"data\.sources\.0\.path: no such file"):
        check_files(load_recipe(recipe, [f"data.sources.0.path={long}", f"model.name_or_path=./{long}"]))
    recipe.write_text(f"extends: {long}\n")
    with pytest.raises(RecipeError, match="extends: no such file"):
        load_recipe(recipe)


def test_a_folder_as_data_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(SMALLEST)
    with pytest.raises(RecipeError, match="this is a folder"):
        check_files(load_recipe(tmp_path / "r.yaml", [f"data.sources.0.path={tmp_path}"]))


def test_the_resolved_recipe_is_read_back_unchanged(load: Load, tmp_path: Path) -> None:
    recipe = load(
        "seed: 3\nadapter: {lora: {use_dora: true, target_modules: all-linear}}\n"
        "tracking: {wandb: off, tags: ['2e-4', 'null']}\ntrain: {learning_rate: 1e-5}"
    )
    written = tmp_path / "elsewhere" / "resolved.yaml"
    written.parent.mkdir()
    written.write_text(to_yaml(recipe))
    assert load_recipe(written) == recipe


def test_the_fingerprint_changes_with_what_is_learned_only(load: Load) -> None:
    first = fingerprint(load())
    assert first == fingerprint(load())
    keys = sorted(FREE_ON_RESUME["train"] - {"packing", "row_tokens"})
    same = [*(f"train.{key}=7" for key in keys), "train.packing=none", "data.workers=3", "data.prepared_dir=shared"]
    same += ["model.gradient_checkpointing=true", "name=other", "output_dir=elsewhere", "tracking.wandb=off"]
    same += ["data.eval=[{path: held.jsonl}]"]
    without_eval = {**first["data"], "eval": None}
    again = fingerprint(load(overrides=same))
    assert {**again, "data": {**again["data"], "eval": None}} == {**first, "data": without_eval}
    assert fingerprint(load(overrides=["train.row_tokens=7"])) == first
    for change in (
        "seed=1",
        "model.dtype=float32",
        "adapter.lora.r=4",
        "wire.finish=text",
        "data.shuffle_tools=false",
        "data.sources.0.weight=2",
        "train.epochs=2",
        "train.traces_per_step=2",
        "train.learning_rate=1",
    ):
        assert fingerprint(load(overrides=[change])) != first, change


def test_reading_recipes_imports_no_torch() -> None:
    code = (
        "import sys; from txagent_train.config.loading import load_recipe\n"
        "from txagent_train.config.shipped import shipped_recipe\n"
        "load_recipe(shipped_recipe('quickstart'), ['adapter.lora.use_dora=true'])\n"
        "print(sorted({'torch', 'transformers', 'datasets', 'peft', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
