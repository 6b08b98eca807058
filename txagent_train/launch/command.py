"""The command that starts a recipe on the devices of one node: pure functions of a ``LaunchPlan``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txagent_train.launch.strategies import Strategy, accelerate_config, deepspeed_config

COMMANDS: Mapping[str, str] = {"sft": "sft"}
"""The command that runs each kind of recipe."""

PYTHON = (sys.executable,)

_SHUTDOWN_SECONDS = 600


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What is started, and on what.

    Args:
        kind: of the recipe, a key of ``COMMANDS``.
        recipe: as the command takes it: a file, or the name of a shipped one.
        strategy: one of ours, or the user's own accelerate configuration.
        nodes: how many.
        gpus_per_node: processes on each node.
        overrides: ``key=value``, passed on.
        resume: as the command takes it.
    """

    kind: str
    recipe: str
    strategy: Strategy | Path
    nodes: int = 1
    gpus_per_node: int = 1
    overrides: tuple[str, ...] = ()
    resume: str = "auto"

    @property
    def processes(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def config(self) -> Path:
        """The accelerate configuration."""
        return self.strategy if isinstance(self.strategy, Path) else accelerate_config(self.strategy)

    @property
    def deepspeed(self) -> Path | None:
        """The DeepSpeed configuration; a user's own accelerate configuration names its own."""
        return None if isinstance(self.strategy, Path) else deepspeed_config(self.strategy)

    @property
    def command(self) -> tuple[str, ...]:
        """What each process runs, after ``python -m``."""
        resume = () if self.resume == "auto" else ("--resume", self.resume)
        return ("txagent_train", COMMANDS[self.kind], self.recipe, *self.overrides, *resume)


class ShellVariable(str):
    """An argument that the shell is to expand, such as ``$SLURM_NODEID``."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the nodes of a run meet, as one of them sees it.

    Args:
        node: the number of this node, from 0.
        address: of node 0.
        port: of node 0, free on it.
    """

    node: str
    address: str
    port: str


def node_argv(plan: LaunchPlan, meeting: Meeting | None = None, *, python: Sequence[str] = PYTHON) -> tuple[str, ...]:
    """The command of one node. ``meeting`` is needed where there are several nodes; ``python`` is the interpreter."""
    if plan.strategy == "single":
        # Without accelerate's launcher, which answers 1 whatever the exit code.
        return (*python, "-m", *plan.command)
    options = ["--config_file", str(plan.config)]
    if plan.deepspeed is not None:
        options += ["--deepspeed_config_file", str(plan.deepspeed)]
    options += ["--num_machines", str(plan.nodes), "--num_processes", str(plan.processes)]
    if meeting is None:
        options += ["--main_process_port", "0"]  # any that is free
    else:
        options += ["--machine_rank", meeting.node, "--main_process_ip", meeting.address]
        options += ["--main_process_port", meeting.port]
    return (*python, "-m", "accelerate.commands.launch", *options, "-m", *plan.command)


def node_environment(plan: LaunchPlan, *, cores: int, environment: Mapping[str, str]) -> dict[str, str]:
    """What the command of a node needs besides the environment of whoever starts it, whose own values stay.

    Args:
        cores: of the node.
        environment: that it is started from.
    """
    wanted: dict[str, str] = {}
    if plan.strategy != "single":
        # What torchrun gives its processes after Ctrl-C or SIGTERM. Its 30 s end a step that is saving a checkpoint.
        wanted["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(_SHUTDOWN_SECONDS)
    if plan.strategy == "zero3_offload":
        # torchrun allows one thread, and the optimizer runs on the CPU.
        wanted["OMP_NUM_THREADS"] = str(max(1, cores // plan.gpus_per_node))
    return {name: value for name, value in wanted.items() if name not in environment}


def shell_line(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """The command as a line for bash, in which only a ``ShellVariable`` is expanded."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
    return " ".join(
        [*settings, *(f'"{part}"' if isinstance(part, ShellVariable) else shlex.quote(part) for part in argv)]
    )
