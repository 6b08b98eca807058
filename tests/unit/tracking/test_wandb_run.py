from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from txagent_train.core.errors import EnvironmentFailure, RunDirError, UserError
from txagent_train.tracking.wandb_run import NullRun, WandbMode, WandbRun, resolve_mode, start_wandb


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*(name for name in os.environ if name.startswith("WANDB_")), "NETRC"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_SILENT", "true")
    # setenv first, so that what start_wandb puts there is taken away again.
    monkeypatch.setenv("WANDB_CACHE_DIR", "")
    monkeypatch.delenv("WANDB_CACHE_DIR")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(
    ("mode", "environment", "resolved"),
    [
        ("auto", None, "offline"),
        ("auto", "online", "online"),
        ("auto", "disabled", "off"),
        ("online", None, "online"),
        ("online", "offline", "offline"),
        ("offline", "online", "offline"),
        ("offline", "disabled", "off"),
        ("off", "online", "off"),
    ],
)
def test_mode(mode: WandbMode, environment: str | None, resolved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if environment is not None:
        monkeypatch.setenv("WANDB_MODE", environment)
    assert resolve_mode(mode) == resolved


def test_auto_is_online_with_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    netrc = tmp_path / "home" / ".netrc"
    netrc.write_text("machine example.org login me password x\n")
    assert resolve_mode("auto") == "offline"
    netrc.write_text("machine api.wandb.ai login user password x\n")
    assert resolve_mode("auto") == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org:8080")
    assert resolve_mode("auto") == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert resolve_mode("auto") == "online"


def test_an_unknown_mode_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "perhaps")
    with pytest.raises(UserError, match="'perhaps' is no W&B mode"):
        resolve_mode("off")


def test_off_writes_nothing_and_does_not_import_wandb(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from txagent_train.tracking.wandb_run import start_wandb\n"
        f"path = pathlib.Path({str(tmp_path / 'run')!r})\n"
        "run = start_wandb('off', run_dir=path, project='p', name='n', config={})\n"
        "run.log({'loss': 1.0}, step=1); run.finish(); assert run.id is None and 'wandb' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not (tmp_path / "run").exists()


def start(run_dir: Path, **changes: Any) -> WandbRun | NullRun:
    arguments: dict[str, Any] = {"mode": "offline", "project": "p", "name": "n", "config": {"seed": 0}}
    return start_wandb(run_dir=run_dir, **(arguments | changes))


def test_two_offline_starts_share_the_id_and_stay_inside_the_run_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["txagent-train", "hf_token=very-secret-value"])
    monkeypatch.chdir(tmp_path / "home")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    ids = []
    for step in (1, 2):
        run = start(run_dir)
        run.log({"loss": 1.0}, step=step)
        run.finish()
        ids.append(run.id)
    assert ids[0] and ids[0] == ids[1] == json.loads((run_dir / "wandb.json").read_text())["id"]
    segments = list(run_dir.glob(f"wandb/offline-run-*-{ids[0]}/run-{ids[0]}.wandb"))
    assert segments
    assert not any(b"very-secret-value" in path.read_bytes() for path in run_dir.rglob("*") if path.is_file())
    assert list((tmp_path / "home").rglob("*")) == []


def test_the_id_of_the_checkpoint_wins(tmp_path: Path) -> None:
    (tmp_path / "wandb.json").write_text('{"id": "old"}')
    run = start(tmp_path, run_id="fromcheckpoint")
    run.finish()
    assert run.id == "fromcheckpoint"
    assert json.loads((tmp_path / "wandb.json").read_text()) == {"id": "fromcheckpoint"}


def test_an_id_file_that_is_torn_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "wandb.json").write_text("{")
    with pytest.raises(RunDirError, match=r"wandb\.json"):
        start(tmp_path)


@pytest.mark.parametrize("key", [None, "a" * 40])
def test_online_without_a_server_is_an_error_with_a_remedy(
    tmp_path: Path, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Port 9 of this machine: nothing listens there, and nothing leaves the machine.
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    if key is not None:
        monkeypatch.setenv("WANDB_API_KEY", key)
    with pytest.raises(EnvironmentFailure, match=r"tracking\.wandb=offline"):
        start(tmp_path, mode="online", init_timeout_s=2.0)
