"""Preparation gives the same bytes, however many processes make it, and whatever stops it on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_training import write_traces
from txagent_train.core.codec import trace_to_json
from txagent_train.core.records import Trace
from txagent_train.data.writing import jsonl_writer
from txagent_train.demo.formulary import split_drugs
from txagent_train.demo.teacher import demo_traces
from txagent_train.sft import workers

COUNT = 450
RECIPE = """
kind: sft
name: prepare
output_dir: {out}
model: {{name_or_path: embedded:smollm2-135m-instruct}}
data:
  sources: [{{path: {first}}}, {{path: {second}, weight: 0.5}}]
  workers: {workers}
"""


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return demo_traces(split_drugs(0)[0], n=COUNT, seed=3)


@pytest.fixture
def sources(tmp_path: Path, traces: list[Trace]) -> tuple[Path, Path]:
    """Two files of more than one part each."""
    return write_traces(tmp_path / "a.jsonl", traces), write_traces(tmp_path / "b.jsonl", traces[:300])


def command(sources: tuple[Path, Path], out: Path, *, processes: int) -> list[str]:
    recipe = out.with_name(f"{out.name}.yaml")
    recipe.write_text(RECIPE.format(out=out, first=sources[0], second=sources[1], workers=processes))
    return [sys.executable, "-m", "txagent_train", "data", "prepare", str(recipe), "--json"]


def prepare(sources: tuple[Path, Path], out: Path, *, processes: int) -> dict[str, Any]:
    done = subprocess.run(command(sources, out, processes=processes), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (prepared,) = json.loads(done.stdout)["prepared"]
    assert isinstance(prepared, dict)
    return prepared


def content(out: Path) -> dict[str, bytes]:
    (folder,) = (out / "prepared").glob("epoch-000-*")
    assert [path.name for path in (out / "prepared").glob(".*.parts")] == [], "parts are left behind"
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def expected(sources: tuple[Path, Path], tmp_path: Path) -> dict[str, bytes]:
    report = prepare(sources, tmp_path / "alone", processes=1)
    assert report["traces"] == COUNT + 300
    return content(tmp_path / "alone")


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(
    sources: tuple[Path, Path], tmp_path: Path, expected: dict[str, bytes]
) -> None:
    prepare(sources, tmp_path / "three", processes=3)
    assert content(tmp_path / "three") == expected


@pytest.mark.slow
def test_a_preparation_that_was_killed_goes_on_where_it_was(
    sources: tuple[Path, Path], tmp_path: Path, expected: dict[str, bytes]
) -> None:
    out = tmp_path / "killed"
    process = subprocess.Popen(command(sources, out, processes=2), stdout=subprocess.DEVNULL)
    first: list[Path] = []
    while not first:
        assert process.poll() is None, "it was over before it could be killed"
        first = list((out / "prepared").glob(".*.parts/s*.npz"))
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(2)  # its worker processes notice, and end
    kept = {path: path.stat().st_mtime_ns for path in (out / "prepared").glob(".*.parts/s*.npz")}
    assert kept and not list((out / "prepared").glob("epoch-000-*"))

    before = time.time_ns()
    done = subprocess.run(command(sources, out, processes=1), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert all(stamp < before for stamp in kept.values())
    assert content(out) == expected


@pytest.mark.slow
def test_two_jobs_that_need_the_same_rows_do_not_disturb_each_other(
    sources: tuple[Path, Path], tmp_path: Path, expected: dict[str, bytes]
) -> None:
    out = tmp_path / "shared"
    jobs = [
        subprocess.Popen(command(sources, out, processes=1), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [job.communicate(timeout=300) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert sum("prepared epoch-000" in log for _, log in outputs) == 1, "one makes the rows, the other takes them"
    assert content(out) == expected


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_the_first_fault_in_the_order_of_the_data_is_told(tmp_path: Path, traces: list[Trace], processes: int) -> None:
    """The later fault is met first by the process whose stretch it is in."""
    calling = [line for line, trace in enumerate(traces, 1) if trace.steps[0].calls]
    first, second = (next(line for line in calling if line > start) for start in (200, workers.STRETCH))
    path = tmp_path / "a.jsonl"
    with jsonl_writer(path) as writer:
        for line, trace in enumerate(traces, 1):
            record = trace_to_json(trace)
            if line in (first, second):
                record["turns"][1]["step"]["calls"][0]["name"] = "no_such_tool"
            writer.write(record)
    out = tmp_path / "out"
    done = subprocess.run(
        command((path, write_traces(tmp_path / "b.jsonl", traces[:3])), out, processes=processes),
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "400"},
    )
    assert done.returncode == 2
    assert f"a.jsonl:{first}, trace {traces[first - 1].id}, step 0: the call names no_such_tool" in done.stderr
    assert not list((out / "prepared").glob("*epoch*"))
