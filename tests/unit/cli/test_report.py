from __future__ import annotations

import json
from pathlib import Path

import pytest

from txagent_train.cli.report import report
from txagent_train.core.errors import RunDirError
from txagent_train.tracking.run_dir import RunDir


def test_writes_the_report_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDir.open_for_training(tmp_path / "r", fingerprint={}, manifest={}, recipe_yaml="", resume=False)
    report(run.root)
    assert capsys.readouterr().out == f"{run.report_path}\n"
    report(run.root, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"report": str(run.report_path)}
    assert run.report_path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirError):
        report(tmp_path)
