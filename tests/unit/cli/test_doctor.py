from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.cli.test_app import run
from txagent_train.cli import doctor as doctor_module
from txagent_train.cli.app import app
from txagent_train.config.sft import ModelSection
from txagent_train.launch.doctor import Check


def test_this_machine_without_torch() -> None:
    done = run("doctor", "--json", probe=True)
    assert "imported: []" in done.stderr
    report = json.loads(done.stdout)
    states = [check["state"] for check in report["checks"]]
    assert report["ok"] == ("problem" not in states)
    assert done.returncode == (0 if report["ok"] else 1)


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("warning", 0), ("problem", 1)])
def test_a_problem_is_an_exit_code_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch, state: str, code: int) -> None:
    seen: list[tuple[ModelSection | None, Path]] = []

    def examine(model: ModelSection | None, output: Path) -> list[Check]:
        seen.append((model, output))
        return [Check("GPUs", state, "none [at all]", "look for one")]  # type: ignore[arg-type]

    monkeypatch.setattr(doctor_module, "examine", examine)
    done = CliRunner().invoke(app, ["doctor", "--recipe", "quickstart"])
    assert done.exit_code == code
    assert state in done.stdout
    assert "none [at all]" in done.stdout
    assert "-> look for one" in done.stdout
    ((model, output),) = seen
    assert model is not None
    assert output.name == "run"
