"""Batch scripts for SLURM, filled in from a launch plan and a site file, and their submission.

There is one script, ``slurm/sft.slurm``, which also runs as it lies there. Between ``# --- NAME`` and ``# --- end`` it
has three blocks that differ from job to job; what is written here are these blocks, and nothing else is replaced.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from txagent_train.config.shipped import shipped_folder
from txagent_train.core.errors import EnvironmentFailure, UserError
from txagent_train.launch.command import (
    PYTHON,
    LaunchPlan,
    Meeting,
    ShellVariable,
    node_argv,
    node_environment,
    shell_line,
)
from txagent_train.launch.site import Site, shell_text
from txagent_train.launch.sweep import SweepRun
from txagent_train.tracking.files import atomic_write_text

TEMPLATE = "sft.slurm"


@dataclass(frozen=True, slots=True)
class BatchJob:
    """What a batch script is for: one run, or a run for each task of an array.

    Args:
        runs: one, or several that differ in their overrides and output_dir only.
        folder: where the script and the logs go; a shared file system.
    """

    name: str
    plan: LaunchPlan
    site: Site
    runs: tuple[SweepRun, ...]
    folder: Path


def batch_script(job: BatchJob) -> str:
    """The text of the script that ``sbatch`` takes.

    Raises:
        UserError: the plan does not fit the site.
    """
    per_node, there = job.plan.gpus_per_node, job.site.gpus_per_node
    if per_node > there > 0:
        raise UserError(
            f"{per_node} GPUs on each node were asked for, but the site's nodes have {there}",
            where="gpus_per_node",
            fix="ask for fewer on each and for more nodes",
        )
    blocks = {"resources": _resources(job), "environment": _environment(job), "run": _run(job)}
    return fill(_template(), blocks)


def fill(template: str, blocks: Mapping[str, Sequence[str]]) -> str:
    """The template with the lines between ``# --- NAME`` and ``# --- end`` replaced."""
    for name, lines in blocks.items():
        before, start, rest = template.partition(f"# --- {name}\n")
        _, end, after = rest.partition("# --- end\n")
        assert start and end, name
        template = "".join([before, start, *(f"{line}\n" for line in lines), end, after])
    return template


def submit(job: BatchJob, *, after: Sequence[str] = ()) -> str:
    """Write the script into the job's folder and hand it to ``sbatch``.

    Args:
        after: numbers of jobs that must have ended well before (``--dependency=afterok``).

    Returns:
        the number of the job.

    Raises:
        EnvironmentFailure: sbatch is not here, or did not take the script; says what it said.
    """
    script = job.folder / f"{job.name}.slurm"
    atomic_write_text(script, batch_script(job))
    command = ["sbatch", "--parsable"]
    if after:
        command.append(f"--dependency=afterok:{':'.join(after)}")
    try:
        done = subprocess.run([*command, str(script)], capture_output=True, text=True, check=False)
    except OSError as error:
        why = error.strerror or error
        fix = f"on a machine that has SLURM: sbatch {script}"
        raise EnvironmentFailure(f"sbatch does not start: {why}\n  -> {fix}") from None
    if done.returncode != 0:
        raise EnvironmentFailure(f"sbatch did not take {script}: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]  # with several clusters it is number;cluster


def _template() -> str:
    return (shipped_folder("slurm") / TEMPLATE).read_text(encoding="utf-8")


def _resources(job: BatchJob) -> list[str]:
    site, plan = job.site, job.plan
    options: list[tuple[str, object]] = [("job-name", _word(job.name))]
    if len(job.runs) > 1:
        options.append(("array", f"0-{len(job.runs) - 1}"))
    options += [(name, getattr(site, name)) for name in ("account", "partition", "qos", "constraint")]
    options += [("nodes", plan.nodes), ("ntasks-per-node", 1)]
    if site.gpus_per_node:
        kind = f"{site.gpu_type}:" if site.gpu_type else ""
        options.append(("gres", f"gpu:{kind}{plan.gpus_per_node}"))
    options += [("cpus-per-task", site.cpus_per_task), ("mem", site.memory), ("time", site.time)]
    lines = [f"#SBATCH --{name}={value}" for name, value in options if value is not None]
    return [
        *lines,
        f"#SBATCH --signal=B:USR1@{site.signal_seconds}",
        f"#SBATCH --{'requeue' if site.requeue else 'no-requeue'}",
        "#SBATCH --open-mode=append",
        # SLURM has its own marks (%x), and no quotation.
        f"#SBATCH --output={str(job.folder).replace('%', '%%')}/%x-%j.out",
    ]


def _word(name: str) -> str:
    """A name as one word, and without the marks that SLURM replaces in the names of logs."""
    return re.sub(r"[^\w.+-]+", "-", name)


def _environment(job: BatchJob) -> list[str]:
    site = job.site
    lines = [f"module load {name}" for name in site.modules]
    cores = site.cpus_per_task or job.plan.gpus_per_node
    needed = node_environment(job.plan, cores=cores, environment=site.env)
    lines += [f"export {name}={shell_text(value)}" for name, value in (*needed.items(), *site.env.items())]
    if site.scratch is not None:
        lines.append(f"export SCRATCH={shell_text(site.scratch)}")
    return [*lines, *site.setup]


def _run(job: BatchJob) -> list[str]:
    site = job.site
    container, srun = _container(job)
    return [
        f"SIGNAL_SECONDS={site.signal_seconds}",
        f"REQUEUE={int(site.requeue)}",
        f"CONTAINER=({' '.join(container)})",
        f"SRUN=({' '.join(srun)})",
        f"LOGS={shlex.quote(str(job.folder))}",
        *_for_each_task(job, [[f"RUN_DIR={shlex.quote(str(run.output_dir))}"] for run in job.runs]),
        "train() {",
        *_for_each_task(job, [[f"exec {_line(job, run)}"] for run in job.runs], indent="    "),
        "}",
    ]


def _for_each_task(job: BatchJob, options: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """The lines of the only run, or a choice by the number of the array's task."""
    if len(options) == 1:
        return [indent + line for line in options[0]]
    lines = [f'{indent}case "$SLURM_ARRAY_TASK_ID" in']
    for number, option in enumerate(options):
        lines += [f"{indent}    {number}) {'; '.join(option)} ;;"]
    return [*lines, f"{indent}esac"]


def _line(job: BatchJob, run: SweepRun) -> str:
    """What each node runs; its own number is known there only."""
    plan = replace(job.plan, overrides=(*job.plan.overrides, *run.overrides))
    meeting = Meeting(ShellVariable("$SLURM_NODEID"), ShellVariable("$HEAD"), ShellVariable("$PORT"))
    # A container has an interpreter of its own.
    python = PYTHON if job.site.container.kind == "none" else ("python",)
    return shell_line(node_argv(plan, meeting, python=python))


def _container(job: BatchJob) -> tuple[list[str], list[str]]:
    """What stands before the command, and what srun is told."""
    container = job.site.container
    if container.kind == "none":
        return [], []
    image = shell_text(container.image or "")
    # Where the job is submitted, with the run and its recipe, and where the configuration lies.
    binds = ['"$PWD"', shell_text(str(job.plan.config.parent)), *(shell_text(bind) for bind in container.binds)]
    if container.kind == "apptainer":
        return ["apptainer", "exec", "--nv", *(f"--bind={bind}" for bind in binds), '--pwd="$PWD"', image], []
    pairs = ",".join(bind if ":" in bind else f"{bind}:{bind}" for bind in binds)
    return [], [f"--container-image={image}", f"--container-mounts={pairs}", '--container-workdir="$PWD"']
