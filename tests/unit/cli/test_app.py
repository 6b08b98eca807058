from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from txagent_train import __version__
from txagent_train.cli import app as app_module
from txagent_train.core.errors import EnvironmentFailure, UserError

HEAVY = {"torch", "transformers", "datasets", "peft", "trl", "accelerate", "wandb"}
# Runs the command in a fresh interpreter and reports which heavy modules it imported.
PROBE = f"""
import sys
from txagent_train.cli.app import main
sys.argv[0] = "txagent-train"
try:
    main()
finally:
    print("imported:", sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)
"""


def run(*arguments: str, probe: bool = False) -> subprocess.CompletedProcess[str]:
    start = ["-c", PROBE] if probe else ["-m", "txagent_train"]
    return subprocess.run([sys.executable, *start, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), (["validate", "--help"], 0), (["validate", "quickstart", "seed=x"], 2)]
)
def test_quick_commands_import_nothing_heavy(arguments: list[str], code: int) -> None:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        done = run(*arguments, probe=True)
        seconds.append(time.perf_counter() - start)
        assert done.returncode == code
        assert "imported: []" in done.stderr
    # The promise is one second; a shared machine is no place to assert it.
    print(f"{' '.join(arguments)}: {min(seconds):.2f} s, the best of 3")


def test_usage_errors_and_version() -> None:
    assert run("nosuch").returncode == 2
    assert run("validate").returncode == 2
    done = run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, __version__)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("is wrong", where="here", fix="mend it"), 2, "error: here: is wrong\n  -> mend it\n"),
        (EnvironmentFailure("the disk is full"), 1, "error: the disk is full\n"),
        (KeyboardInterrupt(), 130, ""),
        (KeyboardInterrupt("stopped after step 3"), 130, "interrupted: stopped after step 3\n"),
    ],
)
def test_errors_become_exit_codes_and_one_message(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def fail() -> None:
        raise error

    registered = list(app_module.app.registered_commands)
    app_module.app.command("fail")(fail)
    monkeypatch.setattr(sys, "argv", ["txagent-train", "fail"])
    try:
        with pytest.raises(SystemExit) as caught:
            app_module.main()
    finally:
        app_module.app.registered_commands = registered
    assert caught.value.code == code
    assert capsys.readouterr().err == message


def test_sigterm_is_an_interruption(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    closed = []

    def terminate() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            closed.append(True)

    former = signal.getsignal(signal.SIGTERM)
    registered = list(app_module.app.registered_commands)
    app_module.app.command("terminate")(terminate)
    monkeypatch.setattr(sys, "argv", ["txagent-train", "terminate"])
    try:
        with pytest.raises(SystemExit) as caught:
            app_module.main()
    finally:
        app_module.app.registered_commands = registered
    assert (caught.value.code, capsys.readouterr().err) == (130, "interrupted: stopped by SIGTERM\n")
    assert closed and signal.getsignal(signal.SIGTERM) == former


def test_paths_that_cannot_be_are_one_message_and_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "out")
    run_dir = tmp_path / "run"
    (run_dir / "model").mkdir(parents=True)
    (run_dir / "model" / "adapter_config.json").touch()
    data = tmp_path / "data.jsonl"
    data.write_text("{}")
    held = tmp_path / "held.jsonl"
    held.write_text("{}")
    sources = [f"data.sources.0.path={data}", f"data.eval.0.path={held}", "data.augment=null"]
    for arguments, message in {
        ("sft", "quickstart", *sources, f"output_dir={below}"): "is a file, so nothing can be written below it",
        ("quickstart", "--out", below): "is a file, so nothing can be written below it",
        ("merge", str(run_dir), "--out", below): "is a file, so nothing can be written below it",
        ("merge", str(run_dir), "--out", str(tmp_path / "new")): f"did you mean {run_dir / 'model'}?",
        ("data", "import", str(data), "--out", below): "is a file, so nothing can be written below it",
    }.items():
        done = run(*arguments, probe=True)
        assert done.returncode == 2, (arguments, done.stderr)
        assert message in done.stderr and "Traceback" not in done.stderr and "imported: []" in done.stderr


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    registered = list(app_module.app.registered_commands)
    app_module.app.command("fail")(fail)
    monkeypatch.setattr(sys, "argv", ["txagent-train", "fail"])
    try:
        with pytest.raises(ZeroDivisionError):
            app_module.main()
    finally:
        app_module.app.registered_commands = registered
