"""What a recipe is launched on, and with which strategy: decided from what the user said and what is here."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import UserError
from txagent_train.launch.devices import device_named, parse_hardware
from txagent_train.launch.gpus import Gpu
from txagent_train.launch.recommend import recommend
from txagent_train.launch.site import Site
from txagent_train.launch.strategies import STRATEGIES, Strategy, strategy_named


@dataclass(frozen=True, slots=True)
class Target:
    """The nodes of a run.

    Args:
        gpus_per_node: 0 where there are none.
        memory_bytes: of each GPU, or None where nothing tells.
    """

    nodes: int
    gpus_per_node: int
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy (or the user's own accelerate configuration), why, and what it changes in the recipe."""

    strategy: Strategy | Path
    why: str
    overrides: tuple[str, ...] = ()


def target_here(found: Sequence[Gpu], *, nodes: int, gpus: int | None) -> Target:
    """The GPUs of this machine, or ``gpus`` of them, on each of ``nodes`` alike.

    Raises:
        UserError: there are fewer.
    """
    if gpus is not None and gpus > len(found):
        raise UserError(
            f"{gpus} GPUs were asked for, but this machine shows {len(found)} (nvidia-smi, CUDA_VISIBLE_DEVICES)",
            where="--gpus",
            fix="ask for fewer, or look closer: txagent-train doctor; for another machine: --on 4xh100 --print",
        )
    used = found[: len(found) if gpus is None else gpus]
    memory = min((gpu.memory_bytes for gpu in used), default=0)
    return Target(nodes, len(used), memory or None)


def target_elsewhere(hardware: str | None, site: Site | None, *, nodes: int, gpus: int | None) -> Target:
    """The nodes of ``--on 4xh100`` or of a site.

    Raises:
        UserError: ``hardware`` cannot be read, or has fewer GPUs than ``gpus``.
    """
    there, memory = 0 if site is None else site.gpus_per_node, None
    if hardware is not None:
        there, device = parse_hardware(hardware)
        memory = device.memory_bytes
    elif site is not None and site.gpu_type is not None:
        try:
            memory = device_named(site.gpu_type).memory_bytes
        except UserError:
            memory = None  # a name of that cluster only
    if gpus is not None and gpus > there:
        raise UserError(f"{gpus} GPUs on each node were asked for, but there are {there}", where="--gpus")
    return Target(nodes, there if gpus is None else gpus, memory)


def choose(recipe: SftRecipe, target: Target, named: str | None) -> Choice:
    """The strategy that was named, or else what ``plan`` recommends.

    Raises:
        UserError: it is not known, needs GPUs where there are none, or nothing fits.
    """
    if named is not None:
        choice = Choice(_named(named), "as asked")
    elif target.gpus_per_node == 0:
        choice = Choice("single", "there is no GPU here")
    else:
        choice = _recommended(recipe, target)
    if choice.strategy == "single" and target.nodes > 1:
        raise UserError("single is one process, on one node", where="--nodes", fix="name another strategy")
    if choice.strategy != "single" and target.gpus_per_node == 0:
        raise UserError(
            "no GPU is here (nvidia-smi, CUDA_VISIBLE_DEVICES)",
            where=f"--accelerate {named}",
            fix="--accelerate single runs on the CPU; --on 4xh100 --print shows the command for another machine",
        )
    return choice


def _named(text: str) -> Strategy | Path:
    if text not in STRATEGIES and (os.path.isfile(text) or text.endswith((".yaml", ".yml"))):
        if not os.path.isfile(text):
            raise UserError("there is no such accelerate configuration", where=text)
        return Path(text).absolute()
    return strategy_named(text)


def _recommended(recipe: SftRecipe, target: Target) -> Choice:
    if target.memory_bytes is None:
        raise UserError(
            "no strategy can be recommended without knowing the GPU's memory",
            where="launch",
            fix=f"say the GPU, as in --on {target.gpus_per_node}xh100, or a strategy: --accelerate "
            + " | ".join(STRATEGIES),
        )
    best = recommend(
        recipe, gpus_per_node=target.gpus_per_node, nodes=target.nodes, gpu_memory_bytes=target.memory_bytes
    )
    if not best.fits:
        raise UserError(
            f"this does not fit: {best.why}",
            where=recipe.name,
            fix="`txagent-train plan RECIPE --on ...` shows what is needed; --accelerate NAME tries it nevertheless",
        )
    return Choice(best.strategy, f"recommended: {best.why}", best.overrides)


def check_port(port: int) -> None:
    """Check that the other nodes can be waited for on a port of this machine.

    Raises:
        UserError: another process has it.
    """
    with socket.socket() as probe:
        # As the rendezvous does: a port that a run has just left is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise UserError(
                f"port {port} cannot be used: {error.strerror}",
                where="--main-port",
                fix="name another one, the same on all nodes",
            ) from None
