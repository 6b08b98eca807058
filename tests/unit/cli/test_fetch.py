"""Fetching from a server that answers as the hub does, in processes of their own, as a user would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hub_server import COMMIT, HubModel, hub_server
from tests.support.tiny_training import recipe_file, save_tiny_model
from txagent_train.core.errors import ModelError
from txagent_train.models.fetch import prove

NAME = "tiny/llama"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with all that a repository also has."""
    path = save_tiny_model(tmp_path_factory.mktemp("fetch") / "model")
    (path / "pytorch_model.bin").write_bytes(b"a pickle")
    (path / "modeling_tiny.py").write_text("raise SystemExit('code of the model')")
    (path / "README.md").write_text("words")
    (path / "original").mkdir()
    (path / "original" / "consolidated.00.pth").write_bytes(b"another pickle")
    (path / "original" / "params.json").write_text("{}")
    return path


@pytest.fixture(scope="module")
def recipe(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipe_file(tmp_path_factory.mktemp("recipe"), model=folder)


def fetch(recipe: Path, *arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {key: value for key, value in os.environ.items() if key not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
    command = [sys.executable, "-m", "txagent_train", "fetch", str(recipe), *arguments]
    env = own | {"HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | environment
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=250)


@pytest.mark.slow
def test_a_model_is_staged_at_its_commit_and_loads_offline(recipe: Path, folder: Path, tmp_path: Path) -> None:
    name = f"model.name_or_path={NAME}"
    with hub_server({NAME: HubModel(folder)}) as hub:
        done = fetch(recipe, name, home=tmp_path, HF_ENDPOINT=hub.url)
        assert done.returncode == 0, done.stderr
        assert sorted(hub.asked) == [
            "chat_template.jinja",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ]
    assert f"{NAME} at {COMMIT}: 6 files" in done.stderr
    assert f"model:\n  name_or_path: {NAME}\n  revision: {COMMIT}" in done.stdout
    assert "parameters (llama), " in done.stdout
    # The server is gone; what the recipe says now needs none.
    offline = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert prove(NAME, COMMIT, environment=offline)["model_type"] == "llama"


@pytest.mark.slow
def test_a_folder_holds_the_files_that_are_read_and_no_others(recipe: Path, folder: Path, tmp_path: Path) -> None:
    to = tmp_path / "staged"
    with hub_server({NAME: HubModel(folder)}) as hub:
        name = f"model.name_or_path={NAME}"
        done = fetch(recipe, name, "--to", str(to), "--json", home=tmp_path / "home", HF_ENDPOINT=hub.url)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["recipe"] == {"name_or_path": str(to), "revision": None}
    assert {path.suffix for path in to.iterdir() if path.is_file()} == {".json", ".jinja", ".safetensors"}
    assert (to / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["model.name_or_path=tiny/gated"], {}, "https://huggingface.co/tiny/gated"),
        (["model.name_or_path=tiny/nothing"], {}, "no such model on the hub"),
        ([f"model.name_or_path={NAME}", "model.revision=v9"], {}, "no such revision"),
        ([f"model.name_or_path={NAME}"], {"HF_HUB_OFFLINE": "1"}, "unset HF_HUB_OFFLINE"),
        ([f"model.name_or_path={NAME}"], {"HF_ENDPOINT": "http://127.0.0.1:9"}, "the hub does not answer"),
        (["model.name_or_path=tiny/pickle"], {}, "no weights in safetensors"),
        (["model.name_or_path=/no/such/folder"], {}, "no such folder"),
    ],
)
def test_what_cannot_be_fetched_is_one_clear_error(
    recipe: Path, folder: Path, tmp_path: Path, arguments: list[str], environment: dict[str, str], words: str
) -> None:
    pickles = tmp_path / "pickles"
    pickles.mkdir()
    for file in ("config.json", "pytorch_model.bin"):
        shutil.copy(folder / file, pickles)
    models = {
        NAME: HubModel(folder),
        "tiny/gated": HubModel(folder, gated=True),
        "tiny/pickle": HubModel(pickles),
    }
    with hub_server(models) as hub:
        done = fetch(recipe, *arguments, home=tmp_path / "home", **{"HF_ENDPOINT": hub.url, **environment})
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_local_folder_is_only_loaded_and_a_torn_one_refused(recipe: Path, folder: Path, tmp_path: Path) -> None:
    whole = fetch(recipe, home=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert "Write into the recipe" not in whole.stdout
    torn = tmp_path / "torn"
    shutil.copytree(folder, torn)
    content = (torn / "model.safetensors").read_bytes()
    (torn / "model.safetensors").write_bytes(content[:-100])
    refused = fetch(recipe, f"model.name_or_path={torn}", home=tmp_path)
    assert refused.returncode == 2
    assert "does not load with the hub switched off" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_a_missing_tensor_is_no_proof(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    lacking = tmp_path / "lacking"
    shutil.copytree(folder, lacking)
    tensors = load_file(lacking / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, lacking / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack model\.layers\.0\.mlp\.up_proj\.weight"):
        prove(str(lacking), None)


@pytest.mark.slow
def test_what_is_tied_counts_once() -> None:
    assert prove("embedded:smollm2-135m-instruct", None)["parameters"] == 134_515_008
