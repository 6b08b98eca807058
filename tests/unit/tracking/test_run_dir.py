from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from txagent_train.core.errors import RunDirError, UserError
from txagent_train.core.records import JsonObject
from txagent_train.tracking.run_dir import RunDir, RunState, fingerprint_differences

FINGERPRINT: JsonObject = {
    "data": {"train.jsonl": "ab12"},
    "train": {"learning_rate": 2e-4, "betas": (0.9, 0.999)},
    "seed": 0,
}


def start(root: Path, **changes: Any) -> RunDir:
    arguments: dict[str, Any] = {
        "fingerprint": FINGERPRINT,
        "manifest": {"name": "demo"},
        "recipe_yaml": "seed: 0\n",
        "resume": False,
    }
    return RunDir.open_for_training(root, **(arguments | changes))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_creates_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["txagent-train", "sft", "hf_token=abc"])
    run = start(tmp_path / "runs" / "one")
    manifest = run.read_manifest()
    assert manifest["state"] == "running" and manifest["name"] == "demo" and manifest["resumes"] == []
    assert manifest["packages"]["torch"] and manifest["python"] and manifest["created"]
    assert manifest["command_line"] == ["txagent-train", "sft", "hf_token=[redacted]"]
    assert manifest["fingerprint"]["train"] == {"learning_rate": 2e-4, "betas": [0.9, 0.999]}
    assert run.recipe_path.read_text() == "seed: 0\n" and run.checkpoints.is_dir()
    assert set(contents(run.root)) == {"manifest.json", "recipe.yaml"}


def test_the_caller_cannot_overwrite_the_state(tmp_path: Path) -> None:
    assert start(tmp_path / "r", manifest={"state": "mine"}).read_manifest()["state"] == "running"


def test_refuses_a_folder_that_holds_a_run(tmp_path: Path) -> None:
    run = start(tmp_path / "r")
    (run.checkpoints / "step-10").mkdir()
    run.mark(RunState.INTERRUPTED)
    before = contents(run.root)
    with pytest.raises(RunDirError) as caught:
        start(run.root)
    message = str(caught.value)
    assert str(run.root) in message and "'demo' (interrupted, created" in message and "1 checkpoint)" in message
    assert "--resume auto" in message
    assert contents(run.root) == before


def test_resume_goes_on_with_the_run(tmp_path: Path) -> None:
    run = start(tmp_path / "r")
    run.mark(RunState.FAILED, error="disk full")
    assert run.read_manifest()["error"] == "disk full"
    start(run.root, resume=True)
    manifest = run.read_manifest()
    assert manifest["state"] == "running" and "error" not in manifest
    assert len(manifest["resumes"]) == 1 and manifest["resumes"][0]["packages"] == manifest["packages"]


def test_resume_in_a_fresh_folder_creates(tmp_path: Path) -> None:
    assert start(tmp_path / "r", resume=True).read_manifest()["resumes"] == []


def test_resume_keeps_a_recipe_that_changed(tmp_path: Path) -> None:
    run = start(tmp_path / "r")
    start(run.root, resume=True)
    assert not (run.root / "recipe.1.yaml").exists()
    start(run.root, resume=True, recipe_yaml="seed: 0 # log_every changed\n")
    assert (run.root / "recipe.2.yaml").read_text() == "seed: 0\n"
    assert run.recipe_path.read_text() == "seed: 0 # log_every changed\n"


def test_resume_with_another_fingerprint_shows_the_difference(tmp_path: Path) -> None:
    run = start(tmp_path / "r")
    (run.checkpoints / "step-10").mkdir()
    before = contents(run.root)
    other = {
        "data": {"train.jsonl": "cd34"},
        "train": {"learning_rate": 1e-4, "betas": [0.9, 0.999]},
        "seed": 0,
        "x": 1,
    }
    with pytest.raises(RunDirError) as caught:
        start(run.root, resume=True, fingerprint=other)
    message = str(caught.value)
    assert 'data.train.jsonl: "ab12" -> "cd34"' in message
    assert "train.learning_rate: 0.0002 -> 0.0001" in message
    assert "x: (absent) -> 1" in message
    assert "betas" not in message and "seed" not in message
    assert contents(run.root) == before


def test_differences_of_empty_and_null_settings_show() -> None:
    lines = list(fingerprint_differences({"a": {}, "c": 1}, {"a": {"b": None}, "c": 1}))
    assert lines == ["a.b: (absent) -> null"]
    assert list(fingerprint_differences({"a": {}}, {})) == ["a: {} -> (absent)"]


def _sources(*names: str) -> dict[str, Any]:
    return {"data": {"sources": [{"kind": "trace", "weight": 1.0, "sha256": name * 64} for name in names]}}


def test_data_that_changed_is_named(tmp_path: Path) -> None:
    run = start(tmp_path / "r", fingerprint=_sources("a"), manifest={"data_sha256": {"/d/train.jsonl": "a" * 64}})
    (run.checkpoints / "step-10").mkdir()
    with pytest.raises(RunDirError) as caught:
        changed = {"data_sha256": {"/d/train.jsonl": "b" * 64}}
        start(run.root, resume=True, fingerprint=_sources("b"), manifest=changed)
    assert "\n    data.sources.0 (train.jsonl): its content changed\n" in str(caught.value)
    assert "aaaa" not in str(caught.value) and "bbbb" not in str(caught.value)


def test_lists_are_compared_item_by_item() -> None:
    names = {"a" * 64: "a.jsonl", "b" * 64: "b.jsonl"}
    old, new = _sources("a"), _sources("a", "b")
    assert list(fingerprint_differences(old, new, names)) == ["data.sources.1: (absent) -> b.jsonl"]
    new["data"]["sources"][0]["weight"] = 2.0
    new["data"]["sources"].pop()
    assert list(fingerprint_differences(old, new, names)) == ["data.sources.0.weight: 1.0 -> 2.0"]
    assert list(fingerprint_differences({"x": ["a" * 64]}, {"x": ["c" * 64]})) == ["x.0: its content changed"]


def test_refuses_a_folder_with_other_things(tmp_path: Path) -> None:
    for name in "abcdefg":
        (tmp_path / name).touch()
    with pytest.raises(RunDirError, match="it holds a, b, c, d, e and 2 more"):
        start(tmp_path)
    with pytest.raises(RunDirError, match="a file, not a folder"):
        start(tmp_path / "a")
    assert sorted(contents(tmp_path)) == list("abcdefg")


def test_allowed_names_and_leftovers_of_a_killed_start_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text("{}\n")
    (tmp_path / ".manifest.json.77.tmp").write_text("{")
    with pytest.raises(RunDirError, match="it holds data"):
        start(tmp_path)
    start(tmp_path, allowed=frozenset({"data"}))
    assert (tmp_path / "data" / "train.jsonl").read_text() == "{}\n"


def test_a_start_killed_after_the_manifest_resumes(tmp_path: Path) -> None:
    run = start(tmp_path / "r")
    run.recipe_path.unlink()
    run.checkpoints.rmdir()
    start(run.root, resume=True)
    assert run.recipe_path.read_text() == "seed: 0\n" and run.checkpoints.is_dir()


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"name": "an extension"})])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    for resume in (False, True):
        with pytest.raises(RunDirError, match=r"manifest\.json"):
            start(tmp_path, resume=resume)
    assert (tmp_path / "manifest.json").read_text() == content


def claim(root: Path, **changes: Any) -> AbstractContextManager[RunDir]:
    arguments: dict[str, Any] = {"fingerprint": FINGERPRINT, "manifest": {}, "recipe_yaml": "", "resume": True}
    return RunDir.claim(root, **(arguments | changes))


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_without_progress_is_started_anew(tmp_path: Path, resume: bool) -> None:
    run = start(tmp_path / "r")
    run.metrics_path.write_text("{}\n")
    run.mark(RunState.FAILED, error="no GPU")
    start(run.root, resume=resume, fingerprint={"seed": 1})
    manifest = run.read_manifest()
    assert manifest["state"] == "running" and manifest["fingerprint"] == {"seed": 1} and "error" not in manifest
    assert not run.metrics_path.exists()


def test_a_mistake_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    for root in (tmp_path / "new" / "r", tmp_path / "empty"):
        if root.name == "empty":
            root.mkdir()
        with pytest.raises(UserError), claim(root) as run:
            (run.root / "prepared").mkdir()
            raise UserError("wrong data")
        assert root.exists() == (root.name == "empty") and not contents(root)
    with claim(tmp_path / "r") as run:
        (run.checkpoints / "step-1").mkdir()
        run.mark(RunState.INTERRUPTED)
    with pytest.raises(UserError), claim(run.root):
        raise UserError("no such checkpoint")
    assert run.read_manifest()["state"] == "interrupted" and (run.checkpoints / "step-1").is_dir()


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with claim(tmp_path / "r") as run:
        before = contents(run.root)
        with pytest.raises(RunDirError, match="another process"), claim(run.root):
            pass
        assert contents(run.root) == before
    with claim(tmp_path / "r"):
        pass


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunDirError), claim(root):
            pass


def test_load(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="not a run directory"):
        RunDir.load(tmp_path)
    assert RunDir.load(start(tmp_path / "r").root).root == tmp_path / "r"
