from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from txagent_train.tracking.provenance import REDACTED, git_revision, package_versions, provenance, redact_arguments


@pytest.mark.parametrize(
    ("typed", "recorded"),
    [
        (["teacher.hf_token=abc"], [f"teacher.hf_token={REDACTED}"]),
        (["--api-key=abc"], [f"--api-key={REDACTED}"]),
        (["--api-key", "abc", "next"], ["--api-key", REDACTED, "next"]),
        (["teacher.apiKey=abc", "password="], [f"teacher.apiKey={REDACTED}", f"password={REDACTED}"]),
        (["--token", "--force"], ["--token", "--force"]),
        (["url=https://me:abc@host/x"], [f"url=https://{REDACTED}@host/x"]),
        (["max_new_tokens=8", "model.tokenizer=t", "seed=1"], ["max_new_tokens=8", "model.tokenizer=t", "seed=1"]),
        (["runs/key", "sft"], ["runs/key", "sft"]),
    ],
)
def test_redaction(typed: list[str], recorded: list[str]) -> None:
    assert redact_arguments(typed) == recorded


def test_versions_come_from_metadata() -> None:
    assert package_versions(["pytest", "no-such-package-at-all"]) == {
        "pytest": version("pytest"),
        "no-such-package-at-all": None,
    }


def test_git_revision_says_whether_files_differ(tmp_path: Path) -> None:
    assert git_revision(tmp_path) is None

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("commit", "-m", "first")
    clean = git_revision(tmp_path)
    assert clean is not None and len(clean["revision"]) == 40 and clean["modified"] is False
    (tmp_path / "new").write_text("untracked files do not count")
    assert git_revision(tmp_path) == clean
    (tmp_path / "a").write_text("2")
    assert git_revision(tmp_path) == clean | {"modified": True}


def test_the_environment_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_VARIABLE", "very-secret-value")
    assert "very-secret-value" not in str(provenance())
