from __future__ import annotations

import logging
import math
from pathlib import Path

import pytest

from txagent_train.core.errors import DataError
from txagent_train.tracking.metrics import MetricsLog, read_metrics


def train(step: int, loss: float = 1.0) -> dict[str, object]:
    return {"step": step, "kind": "train", "loss": loss}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "metrics.jsonl"


def test_a_record_is_readable_as_soon_as_it_is_appended(path: Path) -> None:
    log = MetricsLog(path)
    for step in (1, 2):
        log.append(train(step))
        assert read_metrics(path).records[-1] == train(step)


def test_a_loss_that_is_not_finite_is_on_record(path: Path) -> None:
    log = MetricsLog(path)
    log.append(train(1, float("nan")))
    log.append(train(2, float("inf")))
    first, second = read_metrics(path).records
    assert math.isnan(first["loss"]) and second["loss"] == math.inf
    assert '"loss": "NaN"' in path.read_text()


def test_rewind_leaves_no_step_twice(path: Path) -> None:
    log = MetricsLog(path)
    for step in range(1, 6):
        log.append(train(step, float("nan") if step == 2 else 1.0))
        log.append({"step": step, "kind": "eval", "loss": 2.0})
    whole = path.read_bytes()
    assert log.rewind(3) == 4
    for step in (4, 5):
        log.append(train(step))
        log.append({"step": step, "kind": "eval", "loss": 2.0})
    assert path.read_bytes() == whole
    assert log.rewind(5) == 0 and path.read_bytes() == whole


def test_rewind_without_a_file_is_nothing(path: Path) -> None:
    assert MetricsLog(path).rewind(0) == 0
    assert not path.exists()


@pytest.mark.parametrize("torn", ['{"step": 3, "ki', '{"step": 3, "kind": "train", "loss": 1.0}', '{"a": "\u00e9'])
def test_a_torn_last_line_is_dropped_and_said(path: Path, torn: str, caplog: pytest.LogCaptureFixture) -> None:
    log = MetricsLog(path)
    log.append(train(1))
    log.append(train(2))
    log.close()
    whole = path.read_bytes()
    cut = torn.encode()[:-1] if not torn.isascii() else torn.encode()
    path.write_bytes(whole + cut)
    with caplog.at_level(logging.WARNING):
        metrics = read_metrics(path)
    assert [record["step"] for record in metrics.records] == [1, 2] and metrics.torn
    assert "the last line is unfinished" in caplog.text
    MetricsLog(path).append(train(3))
    again = read_metrics(path)
    assert [record["step"] for record in again.records] == [1, 2, 3] and not again.torn
    path.write_bytes(whole + cut)
    assert MetricsLog(path).rewind(2) == 0
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"step": 1}', '{"step": "1", "kind": "train"}', '{"step": true, "kind": "x"}']
)
def test_a_bad_line_inside_names_its_place(path: Path, line: str) -> None:
    MetricsLog(path).append(train(1))
    with open(path, "a") as file:
        file.write(line + "\n")
    with pytest.raises(DataError, match=r"metrics\.jsonl:2"):
        read_metrics(path)


def test_a_record_without_step_is_not_written(path: Path) -> None:
    with pytest.raises(DataError):
        MetricsLog(path).append({"kind": "train"})
    assert not path.exists()
