"""Batch scripts: what is filled in, and that bash can read it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from txagent_train.config.shipped import shipped_folder
from txagent_train.core.errors import EnvironmentFailure, UserError
from txagent_train.launch.command import LaunchPlan
from txagent_train.launch.site import Site
from txagent_train.launch.slurm import BatchJob, batch_script, submit
from txagent_train.launch.sweep import SweepRun, runs_of


def batch_job(folder: Path, runs: tuple[SweepRun, ...] | None = None, *, gpus: int = 8, **site: Any) -> BatchJob:
    one = (SweepRun("", 0, ("train.epochs=2", "tracking.tags=[a b]"), folder / "my run"),)
    cluster = Site.model_validate({"time": "2:00:00", "gpus_per_node": 8} | site)
    plan = LaunchPlan("sft", "recipe one.yaml", "fsdp2_multinode", nodes=2, gpus_per_node=gpus)
    return BatchJob("tiny", plan, cluster, runs or one, folder / "logs")


def check_bash(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def directives(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]


def test_the_template_is_ready_to_use() -> None:
    text = (shipped_folder("slurm") / "sft.slurm").read_text(encoding="utf-8")
    check_bash(text)
    assert "--nodes=2" in directives(text)


def test_resources(tmp_path: Path) -> None:
    site = {"account": "a", "partition": "p", "qos": "q", "constraint": "h100&ib", "cpus_per_task": 64, "memory": "0"}
    script = batch_script(batch_job(tmp_path, gpu_type="h100", gpus=4, **site))
    check_bash(script)
    assert directives(script) == [
        "--job-name=tiny",
        "--account=a",
        "--partition=p",
        "--qos=q",
        "--constraint=h100&ib",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gres=gpu:h100:4",
        "--cpus-per-task=64",
        "--mem=0",
        "--time=2:00:00",
        "--signal=B:USR1@600",
        "--requeue",
        "--open-mode=append",
        f"--output={tmp_path}/logs/%x-%j.out",
    ]


def test_the_node_is_evaluated_on_the_node(tmp_path: Path) -> None:
    """Run the part of the script that srun runs, as one node of several, with a recorder in the place of python."""
    script = batch_script(batch_job(tmp_path))
    before = script.index("train() {")
    train = script[before : script.index("\n}\n", before) + 3]
    seen = tmp_path / "seen"
    train = train.replace("exec ", f"printf '%s\\n' > {seen} ", 1)
    environment = {"SLURM_NODEID": "1", "HEAD": "node1", "PORT": "20007", "PATH": "/bin:/usr/bin"}
    subprocess.run(["bash", "-euc", f"{train} train"], env=environment, check=True)
    argv = seen.read_text().splitlines()
    assert argv[argv.index("--machine_rank") + 1] == "1"
    assert argv[argv.index("--main_process_ip") + 1] == "node1"
    assert argv[argv.index("--main_process_port") + 1] == "20007"
    assert argv[-5:] == ["txagent_train", "sft", "recipe one.yaml", "train.epochs=2", "tracking.tags=[a b]"]


def test_environment(tmp_path: Path) -> None:
    site = {
        "modules": ["cuda/12.6"],
        "setup": ["source x/bin/activate"],
        "scratch": "/tmp/$USER",
        "env": {"A": 'b "c"'},
    }
    script = batch_script(batch_job(tmp_path, **site))
    check_bash(script)
    start = script.index("# --- environment\n")
    lines = script[start : script.index("# --- end", start)].splitlines()[1:]
    assert lines == [
        "module load cuda/12.6",
        'export TORCH_ELASTIC_SHUTDOWN_TIMEOUT="600"',
        'export A="b \\"c\\""',
        'export SCRATCH="/tmp/${USER:?}"',
        "source x/bin/activate",
    ]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "apptainer",
            ['CONTAINER=(apptainer exec --nv --bind="$PWD"', '--bind="/data" --pwd="$PWD" "x.sif")', "SRUN=()"],
        ),
        (
            "pyxis",
            ["CONTAINER=()", 'SRUN=(--container-image="x.sif" --container-mounts="$PWD":"$PWD",', '"/data":"/data"'],
        ),
    ],
)
def test_containers(tmp_path: Path, kind: str, words: list[str]) -> None:
    container = {"kind": kind, "image": "x.sif", "binds": ["/data"]}
    script = batch_script(batch_job(tmp_path, container=container))
    check_bash(script)
    assert all(word in script for word in words), script
    assert "exec python -m accelerate.commands.launch" in script


def test_an_array_has_a_run_for_each_task(tmp_path: Path) -> None:
    runs = runs_of(["train.epochs=[1,2]"], range(2), tmp_path / "sweep")
    script = batch_script(batch_job(tmp_path, runs))
    check_bash(script)
    assert "--array=0-3" in directives(script)
    assert f"    3) RUN_DIR={tmp_path}/sweep/epochs=2/seed-1 ;;" in script
    assert script.count("        3) exec ") == 1 and script.count("seed=1") == 2


def test_no_cpu_site_asks_for_gpus(tmp_path: Path) -> None:
    script = batch_script(batch_job(tmp_path, gpus=1, gpus_per_node=0, requeue=False))
    assert not [line for line in directives(script) if "gres" in line]
    assert "--no-requeue" in directives(script) and "REQUEUE=0" in script


def test_more_gpus_than_a_node_has(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="8 GPUs on each node were asked for, but the site's nodes have 4"):
        batch_script(batch_job(tmp_path, gpus_per_node=4))


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFailure, match=r"sbatch does not start: No such file"):
        submit(batch_job(tmp_path))
    assert (tmp_path / "logs" / "tiny.slurm").exists()


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck() -> None:
    path = shipped_folder("slurm") / "sft.slurm"
    done = subprocess.run(["shellcheck", "--severity=warning", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
