"""The GPUs of this machine, without torch, whose import takes seconds."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits")
_SECONDS = 20
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as ``nvidia-smi`` knows it."""

    index: str
    uuid: str
    name: str
    memory_bytes: int


def run_tool(*command: str) -> str | None:
    """What a program prints, or None where it is not there, fails or hangs (nvidia-smi, with a broken driver)."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def parse_gpus(listing: str) -> tuple[Gpu, ...]:
    """The GPUs in nvidia-smi's answer to the query above; what it cannot tell ("[N/A]") counts as 0 bytes."""
    rows = [[part.strip() for part in line.split(",")] for line in listing.splitlines() if line.count(",") == 3]
    return tuple(
        Gpu(index, uuid, name, int(memory) * MIB if memory.isdecimal() else 0) for index, uuid, name, memory in rows
    )


def visible_gpus(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves. As CUDA reads it, what stands behind an unknown name is not seen either.

    A part of a GPU (``MIG-...``) is a device of its own, of which nvidia-smi's listing does not tell the memory.
    """
    if visible is None:
        return gpus
    seen: list[Gpu] = []
    for name in (part.strip() for part in visible.split(",")):
        if name.startswith("MIG-"):
            seen.append(Gpu(name, name, "part of a GPU", 0))
            continue
        found = next((gpu for gpu in gpus if name and (gpu.index == name or gpu.uuid.startswith(name))), None)
        if found is None:
            break
        seen.append(found)
    return tuple(seen)


def gpus_here(visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs that a training on this machine would see; ``visible`` is CUDA_VISIBLE_DEVICES."""
    return visible_gpus(parse_gpus(run_tool(*_QUERY) or ""), visible)
