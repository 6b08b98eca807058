from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from txagent_train.tracking.logging import progress, set_up_logging


@pytest.fixture(autouse=True)
def restored_logger() -> Iterator[None]:
    logger = logging.getLogger("txagent_train")
    before = logger.handlers, logger.level, logger.propagate
    yield
    logger.handlers, logger.level, logger.propagate = before


def speak() -> None:
    set_up_logging()
    logging.getLogger("txagent_train.some.room").info("hello")
    logging.getLogger("txagent_train.some.room").warning("careful")
    with progress("training", 2) as bar:
        bar.advance()
        bar.advance(note="loss 0.5")


def test_rank_0_speaks_in_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    speak()
    out, err = capsys.readouterr()
    assert out == ""
    hello, careful, done = err.splitlines()
    assert hello.endswith("INFO hello") and careful.endswith("WARNING careful")
    assert "training: 2/2" in done and done.endswith("loss 0.5")


def test_other_ranks_only_warn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    speak()
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith("rank 3 WARNING careful")


def test_tracking_imports_nothing_heavy() -> None:
    code = (
        "import sys, txagent_train.tracking.logging, txagent_train.tracking.report, txagent_train.tracking.wandb_run\n"
        "heavy = {'torch', 'transformers', 'datasets', 'wandb', 'rich', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
