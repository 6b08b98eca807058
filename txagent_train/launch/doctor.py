"""The checks of `doctor`: each a pure function of what was read from the machine (launch.examine reads it)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from txagent_train.core.records import JsonObject
from txagent_train.launch.devices import GIB
from txagent_train.launch.gpus import Gpu

State = Literal["ok", "warning", "problem"]

_PYTHON = ((3, 11), (3, 13))
_CU126 = "https://download.pytorch.org/whl/cu126"
OTHER_TORCH = (
    f"make clean && TORCH_INDEX={_CU126} make setup; or, without make, before anything else into a new environment: "
    f"pip install --index-url {_CU126} torch==2.13.0"
)
_VIRTUAL = ("lo", "docker", "veth", "br-", "virbr", "tun", "tap", "cali", "flannel", "cni")


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, and what to do about it ("" if nothing)."""

    name: str
    state: State
    found: str
    fix: str = ""

    def to_json(self) -> JsonObject:
        return asdict(self)


def python_release(version: tuple[int, int]) -> Check:
    found = f"Python {version[0]}.{version[1]}"
    if _PYTHON[0] <= version <= _PYTHON[1]:
        return Check("Python", "ok", found)
    return Check("Python", "problem", found, "PYTHON=python3.12 make setup; 3.11 to 3.13 have been tested")


def packages(requirements: Sequence[str], installed: Mapping[str, str], pins: Mapping[str, str] | None = None) -> Check:
    """Installed releases against what the package needs, and against those that its tests ran with.

    Args:
        requirements: as in the package's metadata, ``accelerate>=1.15``.
        installed: release of each package, by canonical name.
        pins: the tested releases (constraints.txt), where they are at hand.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    wrong, other = [], []
    for line in requirements:
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(needed.name)
        have = installed.get(name)
        if have is None or not needed.specifier.contains(have, prereleases=True):
            wrong.append(f"{name} {have or 'missing'} (needs {needed.specifier})")
        elif pins and name in pins and Version(have).public != Version(pins[name]).public:
            other.append(f"{name} {have} (tested: {pins[name]})")
    if wrong:
        return Check("packages", "problem", ", ".join(wrong), "make setup; or pip install -c constraints.txt .")
    if other:
        return Check("packages", "warning", ", ".join(other), "make setup installs the tested releases")
    return Check("packages", "ok", "as tested" if pins else "as needed")


def parse_driver(text: str | None) -> tuple[str, tuple[int, int]] | None:
    """The driver's release and the newest CUDA it runs, in the head of nvidia-smi's table."""
    driver = re.search(r"Driver Version:\s*([\d.]+)", text or "")
    cuda = re.search(r"CUDA(?: UMD)? Version:\s*(\d+)\.(\d+)", text or "")
    return (driver[1], (int(cuda[1]), int(cuda[2]))) if driver and cuda else None


def parse_torch_version(source: str) -> tuple[str, tuple[int, int] | None]:
    """The release of torch and the CUDA that it was built with, in its version.py (importing torch takes seconds)."""
    version = re.search(r"__version__ = '([^']+)'", source)
    cuda = re.search(r"^cuda\b[^=]*= '(\d+)\.(\d+)", source, re.MULTILINE)
    return version[1] if version else "unknown", (int(cuda[1]), int(cuda[2])) if cuda else None


def driver_and_torch(
    driver: tuple[str, tuple[int, int]] | None, torch: tuple[str, tuple[int, int] | None] | None
) -> Check:
    """Whether the driver runs the installed build of torch. Inside one major release of CUDA, any driver does."""
    name = "driver and torch"
    if torch is None:
        return Check(name, "problem", "torch is not installed", "make setup")
    release, built = torch
    made = f"torch {release} for " + ("CPUs" if built is None else f"CUDA {built[0]}.{built[1]}")
    if driver is None:
        fix = "training runs on the CPU; with a GPU, look why nvidia-smi does not answer"
        return Check(name, "warning", f"{made}; no NVIDIA driver answers", fix)
    number, runs = driver
    found = f"{made}; driver {number} runs CUDA {runs[0]}.{runs[1]}"
    if built is None:
        return Check(name, "problem", f"{found}, which this build does not use", _fit(runs))
    if built[0] <= runs[0]:
        return Check(name, "ok", found)
    return Check(name, "problem", f"{found}: too old for this build", _fit(runs))


def _fit(runs: tuple[int, int]) -> str:
    if runs[0] >= 13:
        return "make clean && make setup"
    return OTHER_TORCH if runs[0] == 12 else "a driver for CUDA 12 or newer (525 or newer)"


def gpus(found: Sequence[Gpu], visible: str | None) -> Check:
    hidden = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
    if not found:
        return Check("GPUs", "warning", f"none{hidden}", "training runs on the CPU")
    kinds = {(gpu.name, round(gpu.memory_bytes / GIB)): 0 for gpu in found}
    for gpu in found:
        kinds[gpu.name, round(gpu.memory_bytes / GIB)] += 1
    text = ", ".join(f"{count} x {name} with {size} GiB" for (name, size), count in kinds.items()) + hidden
    if len(kinds) > 1:
        fix = "all ranks do the same work: the smallest and slowest decides. CUDA_VISIBLE_DEVICES picks like ones"
        return Check("GPUs", "warning", text, fix)
    return Check("GPUs", "ok", text)


def matching_interfaces(setting: str, interfaces: Sequence[str]) -> list[str]:
    """Those that NCCL takes for NCCL_SOCKET_IFNAME: beginnings of names, ``=`` whole names, ``^`` all others."""
    inverted, exact = setting.startswith("^"), setting.lstrip("^").startswith("=")
    names = [name.strip() for name in setting.lstrip("^").lstrip("=").split(",") if name.strip()]
    return [
        interface
        for interface in interfaces
        if inverted != any(interface == name if exact else interface.startswith(name) for name in names)
    ]


def network_interface(setting: str | None, up: Sequence[str]) -> Check:
    """``setting`` is NCCL_SOCKET_IFNAME, ``up`` the interfaces that are."""
    name = "network interface"
    real = [interface for interface in up if not interface.startswith(_VIRTUAL)]
    there = f"up: {', '.join(up) or 'none'}"
    if setting:
        taken = matching_interfaces(setting, up)
        if taken:
            return Check(name, "ok", f"NCCL_SOCKET_IFNAME={setting}: {', '.join(taken)}")
        fix = f"export NCCL_SOCKET_IFNAME={real[0]}" if real else "unset NCCL_SOCKET_IFNAME"
        return Check(name, "problem", f"NCCL_SOCKET_IFNAME={setting} is none of these; {there}", fix)
    if len(real) > 1:
        fix = "for several nodes, name the one by which they reach each other: export NCCL_SOCKET_IFNAME="
        return Check(name, "warning", f"NCCL chooses; {there}", fix + " or ".join(real))
    return Check(name, "ok", there)


def disk(what: str, path: str, *, free: int, total: int, writable: bool, least: int) -> Check:
    """A folder that is written to; ``least`` are the bytes below which it is warned of."""
    if not writable:
        return Check(what, "problem", f"{path} may not be written to", "choose another place")
    found = f"{path}: {free / GIB:.0f} GiB free of {total / GIB:.0f}"
    if free < GIB:
        return Check(what, "problem", found, "make room")
    if free < least:
        return Check(what, "warning", found, f"{least / GIB:.0f} GiB are soon full of checkpoints and models")
    return Check(what, "ok", found)


def shared_memory(size: int | None, gpu_count: int) -> Check:
    if size is None:
        return Check("/dev/shm", "warning", "is not there", "mount it: processes of one node exchange data by it")
    found = f"{size / GIB:.2f} GiB"
    if size < GIB and gpu_count > 1:
        fix = "NCCL needs it between GPUs: docker run --ipc=host or --shm-size=16g"
        return Check("/dev/shm", "problem", found, fix)
    return Check("/dev/shm", "ok", found)


def hub_access(
    *, offline: bool, token: bool, model: str | None, cached: bool = False, refusal: tuple[str, str] | None = None
) -> Check:
    """Whether the recipe's model can be loaded.

    Args:
        model: None without a recipe.
        cached: its configuration and weights are in the cache.
        refusal: what went wrong when the hub was asked for it, and what to do.
    """
    log_in = "logged in" if token else "not logged in"
    how = f"hub {'switched off (HF_HUB_OFFLINE)' if offline else 'on'}, {log_in}"
    if model is None:
        fix = "" if token or offline else "for gated models such as Llama: hf auth login"
        return Check("hub", "ok", how, fix)
    if cached:
        return Check("hub", "ok", f"{model} is in the cache; {how}")
    if offline:
        fix = "where there is a network: txagent-train fetch RECIPE, with the same HF_HOME"
        return Check("hub", "problem", f"{model} is not in the cache; {how}", fix)
    if refusal is not None:
        return Check("hub", "problem", f"{model}: {refusal[0]}; {how}", refusal[1])
    return Check("hub", "warning", f"{model} is not in the cache yet; {how}", "txagent-train fetch RECIPE")


def deepspeed_compiler(nvcc: str | None, compiler: bool, built: tuple[int, int] | None) -> Check:
    """What DeepSpeed compiles its CPU optimizer with; ``nvcc`` is what it says of its version."""
    name = "DeepSpeed's compiler"
    need = "zero3_offload compiles an optimizer; the other strategies need nothing"
    if built is None:
        return Check(name, "ok", "not needed by a build of torch for CPUs")
    release = re.search(r"release (\d+)\.(\d+)", nvcc or "")
    if release is None or not compiler:
        missing = [*(["no nvcc"] if release is None else []), *([] if compiler else ["no C++ compiler"])]
        return Check(
            name, "warning", " and ".join(missing), f"{need}: load the cluster's CUDA module, and set CUDA_HOME"
        )
    found = f"nvcc {release[1]}.{release[2]}"
    if int(release[1]) != built[0]:
        fix = f"{need}, with the CUDA of torch ({built[0]}.{built[1]})"
        return Check(name, "warning", f"{found}, but torch is for CUDA {built[0]}.{built[1]}", fix)
    return Check(name, "ok", found)


SLURM_CLIENTS = ("sbatch", "srun", "scontrol", "scancel")


def slurm_clients(there: Sequence[str]) -> Check:
    missing = [name for name in SLURM_CLIENTS if name not in there]
    if not there:
        return Check("SLURM", "ok", "not on this machine; launch --slurm --print still writes the script")
    if missing:
        return Check("SLURM", "warning", f"without {', '.join(missing)}", "the batch script uses them all")
    return Check("SLURM", "ok", ", ".join(there))


def clock(now: float, stamped: float | None, *, released: float) -> Check:
    """This machine's clock (seconds since 1970) against the one that stamps the files of a run, and against a day past.

    Args:
        stamped: time of a file just written, None if it could not be.
        released: a time that is certainly past.
    """
    if now < released:
        return Check("clock", "problem", "is years behind: no certificate is valid yet", "set it (NTP)")
    if stamped is None:
        return Check("clock", "ok", "")
    apart = abs(now - stamped)
    if apart > 5:
        fix = "start NTP on both: locks and times of runs go by it"
        return Check("clock", "warning", f"{apart:.0f} s apart from the file system's", fix)
    return Check("clock", "ok", "agrees with the file system's")
