"""Batch scripts on a real SLURM: two nodes, the signal before the time limit, arrays and chains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.slurm.conftest import Cluster
from tests.support.tiny_training import run_recipe, save_tiny_model
from txagent_train.config.loading import to_yaml
from txagent_train.launch.command import LaunchPlan
from txagent_train.launch.site import Site
from txagent_train.launch.slurm import BatchJob, submit
from txagent_train.launch.sweep import SweepRun, outcome_of, runs_of, table_of
from txagent_train.tracking.metrics import read_metrics
from txagent_train.tracking.run_dir import RunDir

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

CPU_ENVIRONMENT = {"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def cpu_site(*, time: str, signal_seconds: int) -> Site:
    values = {"time": time, "gpus_per_node": 0, "cpus_per_task": 1, "signal_seconds": signal_seconds}
    return Site.model_validate(values | {"env": CPU_ENVIRONMENT})


def write_recipe(folder: Path, *, traces: int = 20, epochs: int = 1) -> Path:
    folder.mkdir(exist_ok=True)
    model = save_tiny_model(folder / "model")
    # Only the signal and the end save.
    train = {"epochs": epochs, "save_every": None if epochs == 1 else 10_000}
    recipe = run_recipe(folder, model=model, traces=traces, train=train).model_copy(update={"name": "tiny"})
    tracking = recipe.tracking.model_copy(update={"wandb": "offline"})
    path = folder / "recipe.yaml"
    path.write_text(to_yaml(recipe.model_copy(update={"tracking": tracking})), encoding="utf-8")
    return path


def two_nodes(recipe: Path, name: str, site: Site) -> BatchJob:
    output_dir = recipe.parent / name
    run = SweepRun("", 0, (f"output_dir={output_dir}",), output_dir)
    plan = LaunchPlan("sft", str(recipe), "ddp", nodes=2, gpus_per_node=1)
    return BatchJob(name, plan, site, (run,), recipe.parent / f"{name}.slurm")


def test_stopped_before_the_time_limit_and_queued_again_until_done(cluster: Cluster, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, traces=350, epochs=4)
    stopped = two_nodes(recipe, "stopped", cpu_site(time="30", signal_seconds=60))
    whole = two_nodes(recipe, "whole", cpu_site(time="30", signal_seconds=60))
    first = submit(stopped)
    second = submit(whole, after=[first])
    assert cluster.job(second)["Dependency"].startswith(f"afterok:{first}")
    # The limit comes when training has begun, however fast this machine is.
    metrics = recipe.parent / "stopped" / "metrics.jsonl"
    cluster.until(lambda: metrics.exists() and '"step": 20,' in metrics.read_text(), timeout_s=300)
    cluster.limit(first, minutes=2 + cluster.seconds_run(first) // 60)
    cluster.until(lambda: cluster.job(first)["Restarts"] == "1", timeout_s=150)
    cluster.limit(first, minutes=30)
    jobs = cluster.wait([first, second], timeout_s=900)
    said = (stopped.folder / f"stopped-{first}.out").read_text()
    assert [(job["JobState"], job["ExitCode"]) for job in jobs] == [("COMPLETED", "0:0")] * 2, said
    assert int(jobs[0]["Restarts"]) >= 1 and jobs[1]["Restarts"] == "0"
    assert "queued again" in said and "start 1 on node[1-2]" in said

    # One log for each node, and each node with a number of its own.
    logs = {path.name: path.read_text() for path in stopped.folder.glob("*.log")}
    assert sorted(logs) == [f"stopped-{first}-node1.log", f"stopped-{first}-node2.log"]
    records = [read_metrics(recipe.parent / name / "metrics.jsonl").records for name in ("stopped", "whole")]
    starts = [[item for item in found if item["kind"] == "start"] for found in records]
    assert all(item["world_size"] == 2 and item["strategy"] == "MULTI_CPU" for found in starts for item in found)
    assert len(starts[0]) == 1 + int(jobs[0]["Restarts"]) and starts[0][1]["steps_done"] > 0

    curves = [[(item["step"], item["loss"]) for item in found if item["kind"] == "train"] for found in records]
    assert curves[0] == curves[1]
    models = [recipe.parent / name / "model" / "adapter_model.safetensors" for name in ("stopped", "whole")]
    one, other = map(load_file, models)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)

    # The same W&B run, in a segment for each start.
    run = RunDir.load(recipe.parent / "stopped")
    identity = json.loads((run.root / "wandb.json").read_text())["id"]
    segments = list((run.root / "wandb").glob("offline-run-*"))
    assert len(segments) == len(starts[0]) and all(path.name.endswith(identity) for path in segments)
    assert len(run.read_manifest()["resumes"]) == int(jobs[0]["Restarts"])


def test_a_failed_training_fails_the_job_and_what_waits_for_it_never_starts(cluster: Cluster, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    site = cpu_site(time="5", signal_seconds=30)
    broken = two_nodes(recipe, "broken", site)
    (tmp_path / "model" / "config.json").write_text("{}")
    first = submit(broken)
    second = submit(two_nodes(recipe, "after", site), after=[first])
    (job,) = cluster.wait([first], timeout_s=200)
    assert job["JobState"] == "FAILED" and job["ExitCode"] != "0:0" and job["Restarts"] == "0"
    assert cluster.job(second)["JobState"] in ("PENDING", "CANCELLED")
    assert not (tmp_path / "after").exists()


def test_a_sweep_is_a_job_array(cluster: Cluster, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    runs = runs_of(["train.learning_rate=[0.01,0.001]"], range(2), tmp_path / "sweep")
    plan = LaunchPlan("sft", str(recipe), "single")
    job = BatchJob("sweep", plan, cpu_site(time="5", signal_seconds=30), runs, tmp_path / "sweep" / "slurm")
    number = submit(job)
    tasks = cluster.wait([f"{number}_{task}" for task in range(4)], timeout_s=400)
    assert [task["JobState"] for task in tasks] == ["COMPLETED"] * 4
    rows = table_of([outcome_of(run) for run in runs])
    assert [(row.finished, row.values["steps"]) for row in rows] == [(2, (10.0, 0.0))] * 2
    assert rows[0].settings == "train.learning_rate=0.01" and rows[0].values["loss"] != rows[1].values["loss"]
