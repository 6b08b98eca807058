"""Reads from this machine what the checks of launch.doctor judge. Neither torch nor DeepSpeed is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from txagent_train.config.sft import ModelSection
from txagent_train.core.errors import ModelError
from txagent_train.launch import doctor
from txagent_train.launch.devices import GIB
from txagent_train.launch.doctor import SLURM_CLIENTS, Check
from txagent_train.launch.gpus import gpus_here, run_tool
from txagent_train.models.embedded import is_embedded
from txagent_train.models.fetch import check_access
from txagent_train.tracking.files import nearest_existing

_PACKAGE = "txagent-train"
_PINS = Path(__file__).resolve().parents[2] / "constraints.txt"
_RELEASED = 1764547200.0  # December 2025: older than any release of this package
_ROOM = {"output": 50 * GIB, "cache": 20 * GIB}


def examine(model: ModelSection | None, output: Path) -> list[Check]:
    """All checks. ``model`` is that of a recipe, ``output`` where runs are written."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = gpus_here(visible)
    torch = _torch_build()
    built = None if torch is None else torch[1]
    stamped = _stamp(output)
    return [
        doctor.python_release((sys.version_info.major, sys.version_info.minor)),
        doctor.packages(importlib.metadata.requires(_PACKAGE) or (), _installed(), _pins()),
        doctor.driver_and_torch(doctor.parse_driver(run_tool("nvidia-smi")), torch),
        doctor.gpus(found, visible),
        doctor.network_interface(os.environ.get("NCCL_SOCKET_IFNAME"), _interfaces_up()),
        _disk("output", output),
        _disk("cache", _hub_cache()),
        doctor.shared_memory(_size(Path("/dev/shm")), len(found)),
        _hub(model),
        doctor.deepspeed_compiler(run_tool(_nvcc(os.environ), "--version"), _has_compiler(os.environ), built),
        doctor.slurm_clients([name for name in SLURM_CLIENTS if shutil.which(name)]),
        doctor.clock(time.time(), stamped, released=_RELEASED),
    ]


def _installed() -> dict[str, str]:
    from packaging.utils import canonicalize_name

    return {canonicalize_name(item.name): item.version for item in importlib.metadata.distributions()}


def _pins() -> dict[str, str] | None:
    """The tested releases; only a checkout has them."""
    if not _PINS.is_file():
        return None
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)$", _PINS.read_text(encoding="utf-8"), re.MULTILINE))


def _torch_build() -> tuple[str, tuple[int, int] | None] | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return doctor.parse_torch_version(Path(spec.origin).with_name("version.py").read_text(encoding="utf-8"))


def _interfaces_up() -> list[str]:
    """Network interfaces that carry traffic; the kernel calls some that do so ``unknown``."""
    return [name for _, name in socket.if_nameindex() if _state_of(name) in ("up", "unknown")]


def _state_of(interface: str) -> str:
    try:
        return Path("/sys/class/net", interface, "operstate").read_text(encoding="utf-8").strip()
    except OSError:
        return "unknown"


def _disk(what: str, path: Path) -> Check:
    there = nearest_existing(path)
    usage = shutil.disk_usage(there)
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return doctor.disk(what, str(path), free=usage.free, total=usage.total, writable=writable, least=_ROOM[what])


def _size(path: Path) -> int | None:
    return shutil.disk_usage(path).total if path.is_dir() else None


def _stamp(folder: Path) -> float | None:
    """The time that the file system of a folder gives to a new file."""
    try:
        with tempfile.TemporaryFile(dir=nearest_existing(folder)) as file:
            file.write(b".")
            file.flush()
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return None


def _nvcc(environment: Mapping[str, str]) -> str:
    """As torch looks for it."""
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    return str(Path(home, "bin", "nvcc")) if home else (shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")


def _has_compiler(environment: Mapping[str, str]) -> bool:
    return shutil.which(environment.get("CXX") or "c++") is not None


def _hub_cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _hub(model: ModelSection | None) -> Check:
    from huggingface_hub import constants, get_token, try_to_load_from_cache

    offline, token = constants.HF_HUB_OFFLINE, get_token() is not None
    if model is None or is_embedded(model.name_or_path) or os.path.isdir(model.name_or_path):
        return doctor.hub_access(offline=offline, token=token, model=None)
    name = model.name_or_path
    config, *weights = (
        isinstance(try_to_load_from_cache(name, file, revision=model.revision), str)
        for file in ("config.json", "model.safetensors", "model.safetensors.index.json")
    )
    cached = config and any(weights)
    refusal = None if cached or offline else _refusal(name, model.revision)
    return doctor.hub_access(offline=offline, token=token, model=name, cached=cached, refusal=refusal)


def _refusal(name: str, revision: str | None) -> tuple[str, str] | None:
    """What goes wrong when a file of the model is asked for, and what to do."""
    try:
        check_access(name, revision)
    except ModelError as error:
        return error.problem, error.fix
    return None
