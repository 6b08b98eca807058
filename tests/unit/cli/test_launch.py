"""Real processes: what is printed, what is run, and what refuses to."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.tiny_training import recipe_file, save_tiny_model
from tests.unit.cli.test_app import run
from txagent_train.config.shipped import shipped_recipes
from txagent_train.launch.command import LaunchPlan, node_argv
from txagent_train.tracking.metrics import read_metrics

SITE = """\
partition: gpu
time: 4:00:00
gpus_per_node: 4
gpu_type: a100-80
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launch")
    return recipe_file(folder, model=save_tiny_model(folder / "model"))


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_shipped_recipe_is_printed_at_once_and_without_torch(name: str) -> None:
    start = time.perf_counter()
    done = run("launch", name, "--on", "8xh100", "--print", probe=True)
    print(f"{name}: {time.perf_counter() - start:.2f} s")
    assert done.returncode == 0, done.stderr
    assert "imported: []" in done.stderr
    assert "(recommended: " in done.stderr
    assert f" sft {name}" in done.stdout


def test_what_is_printed_is_the_command() -> None:
    done = run("launch", "txagent-llama3.1-8b-lora", "seed=7", "--on", "2xh100", "--accelerate", "fsdp2", "--print")
    plan = LaunchPlan("sft", "txagent-llama3.1-8b-lora", "fsdp2", 1, 2, ("seed=7",))
    setting, *argv = shlex.split(done.stdout)
    assert setting == "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600"
    assert argv == list(node_argv(plan))
    assert "fsdp2 (as asked)" in done.stderr


def test_several_machines_get_a_command_each() -> None:
    arguments = ["txagent-llama3.1-8b-lora", "--on", "8xh100", "--accelerate", "fsdp2_multinode", "--nodes", "2"]
    done = run("launch", *arguments, "--print")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("#")] == ["# on machine 0", "# on machine 1"]
    assert "--machine_rank 1 --main_process_ip FIRST_NODE --main_process_port 29500" in lines[3]
    assert "FIRST_NODE is the name or address of machine 0" in done.stderr
    one = run("launch", *arguments, "--print", "--node-rank", "1", "--main-address", "n7", "--main-port", "4000")
    assert "--machine_rank 1 --main_process_ip n7 --main_process_port 4000" in one.stdout
    assert "FIRST_NODE" not in one.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train.epoch=2"], "train.epochs"),
        (["--accelerate", "zero-3"], "did you mean zero3"),
        (["--accelerate", "ddp"], "no GPU is here"),
        (["--gpus", "4"], "this machine shows 0"),
        (["--on", "4xh100", "--accelerate", "ddp"], "add --print"),
        (["--on", "4xh200x"], "did you mean h200"),
        (["--nodes", "2", "--on", "4xh100", "--accelerate", "ddp"], "--on"),
        (["--node-rank", "1"], "there is one machine only"),
        (["--nodes", "2", "--on", "4xh100", "--accelerate", "ddp", "--print", "--node-rank", "2"], "0 to 1"),
        (["--slurm", "--site", "nowhere.yaml"], "there is no such file"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(recipe: Path, arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "txagent_train", "launch", str(recipe), *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_missing_data_file_stops_a_launch_but_not_a_look(tmp_path: Path, recipe: Path) -> None:
    missing = "data.sources.0.path=/nowhere/train.jsonl"
    refused = run("launch", str(recipe), missing, "--accelerate", "single")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no such file: /nowhere/train.jsonl" in refused.stderr
    shown = run("launch", str(recipe), missing, "--accelerate", "single", "--print")
    assert shown.returncode == 0
    assert "on this machine: " in shown.stderr
    assert missing in shown.stdout


def test_a_batch_script_is_printed_for_the_site(recipe: Path, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(SITE)
    done = run("launch", str(recipe), "--slurm", "--site", str(site), "--nodes", "2", "--print")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --gres=gpu:a100-80:4" in done.stdout
    assert "--num_machines 2 --num_processes 8" in done.stdout
    assert "recommended" in done.stderr
    assert subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False).returncode == 0


@pytest.mark.slow
def test_a_launch_trains_and_passes_the_exit_code_on(recipe: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run("launch", str(recipe), f"output_dir={out}", "--accelerate", "single")
    assert done.returncode == 0, done.stderr
    assert read_metrics(out / "metrics.jsonl").records[0]["world_size"] == 1
    again = run("launch", str(recipe), f"output_dir={out}", "--accelerate", "single", "--resume", "never")
    assert again.returncode == 2
    assert "Traceback" not in again.stderr
