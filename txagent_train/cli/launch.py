"""``txagent-train launch``: a recipe on many devices, here or by SLURM."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from txagent_train.config.loading import load_recipe
from txagent_train.config.paths import check_files
from txagent_train.config.sft import SftRecipe
from txagent_train.config.shipped import find_recipe
from txagent_train.core.errors import UserError
from txagent_train.data.writing import check_place
from txagent_train.launch.choice import Choice, check_port, choose, target_elsewhere, target_here
from txagent_train.launch.command import LaunchPlan, Meeting, node_argv, node_environment, shell_line
from txagent_train.launch.gpus import Gpu, gpus_here
from txagent_train.launch.site import Site, load_site
from txagent_train.launch.slurm import BatchJob, batch_script, submit
from txagent_train.launch.strategies import STRATEGIES
from txagent_train.launch.sweep import SweepRun

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_PLACEHOLDER = "FIRST_NODE"


def launch(
    recipe: Annotated[
        str, typer.Argument(help="The recipe: a file, or the name of a shipped one.", show_default=False)
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe.", show_default=False)
    ] = None,
    accelerate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help=f"{', '.join(STRATEGIES)}, or your own accelerate configuration; else what `plan` recommends.",
            show_default=False,
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="How many machines.")] = 1,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of each to use; else all that are seen.", show_default=False)
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="4xh100", help="What a machine has, where it is not this one.", show_default=False),
    ] = None,
    node_rank: Annotated[
        int | None,
        typer.Option(min=0, help="Which of several machines this is, from 0; not with --slurm.", show_default=False),
    ] = None,
    main_address: Annotated[
        str | None, typer.Option(metavar="HOST", help="Machine 0, as the others reach it.", show_default=False)
    ] = None,
    main_port: Annotated[int, typer.Option(min=1, max=65535, help="A free port of machine 0.")] = 29500,
    slurm: Annotated[bool, typer.Option("--slurm", help="Submit a batch job instead.")] = False,
    site: Annotated[Path, typer.Option(metavar="FILE", help="The cluster, with --slurm.")] = Path("site.yaml"),
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the command or the batch script; run nothing.")
    ] = False,
    resume: Annotated[str, typer.Option(help="auto, never or a checkpoint's path, as in `sft`.")] = "auto",
) -> None:
    """Start a recipe on all GPUs of this machine, of several machines, or as a batch job.

    The recipe is checked before anything starts. What runs is printed first: it is a plain `accelerate launch`.
    """
    path = find_recipe(recipe)
    loaded = load_recipe(path, overrides or ())
    _check_place(loaded, path, print_only=print_only)
    cluster = load_site(site) if slurm else None
    seen: tuple[Gpu, ...] = ()
    if cluster is None and on is None:
        seen = gpus_here(os.environ.get(_VISIBLE))
        target = target_here(seen, nodes=nodes, gpus=gpus)
    else:
        target = target_elsewhere(on, cluster, nodes=nodes, gpus=gpus)
    choice = choose(loaded, target, accelerate)
    _say(choice)
    plan = LaunchPlan(
        kind=loaded.kind,
        recipe=recipe,
        strategy=choice.strategy,
        nodes=nodes,
        gpus_per_node=1 if choice.strategy == "single" else target.gpus_per_node,
        overrides=(*(overrides or ()), *choice.overrides),
        resume=resume,
    )
    if cluster is not None:
        _by_slurm(plan, loaded, cluster, print_only=print_only)
        return
    if on is not None and not print_only:
        raise UserError("says what another machine has", where="--on", fix="add --print, and run the command there")
    meetings = _meetings(nodes, node_rank, main_address, main_port, print_only=print_only)
    _here(plan, meetings, seen, print_only=print_only)


def _check_place(recipe: SftRecipe, path: Path, *, print_only: bool) -> None:
    """The files of the recipe must be here; what is only printed may be for another machine, so there it is said."""
    try:
        check_files(recipe, where=str(path))
        check_place(recipe.output_dir / "x")
    except UserError as error:
        if not print_only:
            raise
        print(f"on this machine: {error}", file=sys.stderr)


def _say(choice: Choice) -> None:
    """Beside the command, not in it."""
    name = choice.strategy if isinstance(choice.strategy, str) else f"configuration {choice.strategy}"
    changes = "".join(f" with {change}" for change in choice.overrides)
    print(f"{name}{changes} ({choice.why})", file=sys.stderr)


def _meetings(
    nodes: int, node_rank: int | None, address: str | None, port: int, *, print_only: bool
) -> list[Meeting | None]:
    """Where this machine meets the others; with --print and no --node-rank, for each of them."""
    if nodes == 1:
        if node_rank or address is not None:
            raise UserError("there is one machine only", where="--node-rank, --main-address", fix="say --nodes too")
        return [None]
    if node_rank is not None and node_rank >= nodes:
        raise UserError(f"the machines are 0 to {nodes - 1}", where="--node-rank")
    if not print_only and (node_rank is None or address is None):
        raise UserError(
            f"which of the {nodes} machines is this, and where is the first?",
            where="--nodes",
            fix="start it on each with --node-rank N --main-address HOST; --print shows the commands of all, "
            "and --slurm submits a job",
        )
    ranks = range(nodes) if node_rank is None else (node_rank,)
    return [Meeting(str(rank), address or _PLACEHOLDER, str(port)) for rank in ranks]


def _here(plan: LaunchPlan, meetings: list[Meeting | None], seen: tuple[Gpu, ...], *, print_only: bool) -> None:
    """Print the command; unless that is all, become it."""
    extra = node_environment(plan, cores=len(os.sched_getaffinity(0)), environment=os.environ)
    if len(seen) > plan.gpus_per_node:
        extra[_VISIBLE] = ",".join(gpu.uuid for gpu in seen[: plan.gpus_per_node])
    for meeting in meetings:
        if len(meetings) > 1 and meeting is not None:
            print(f"# on machine {meeting.node}")
        print(shell_line(node_argv(plan, meeting), extra))
    if print_only:
        if any(meeting is not None and meeting.address == _PLACEHOLDER for meeting in meetings):
            print(f"{_PLACEHOLDER} is the name or address of machine 0, as the others reach it", file=sys.stderr)
        return
    (meeting,) = meetings
    if meeting is not None and meeting.node == "0":
        check_port(int(meeting.port))
    sys.stdout.flush()
    argv = node_argv(plan, meeting)
    os.execve(argv[0], argv, {**os.environ, **extra})


def _by_slurm(plan: LaunchPlan, recipe: SftRecipe, cluster: Site, *, print_only: bool) -> None:
    run_dir = recipe.output_dir.absolute()
    run = SweepRun("", recipe.seed, (), run_dir)
    job = BatchJob(recipe.name, plan, cluster, (run,), run_dir.with_name(f"{run_dir.name}.slurm"))
    if print_only:
        print(batch_script(job), end="")
        return
    number = submit(job)
    print(f"job {number}; its logs are in {shlex.quote(str(job.folder))}")
