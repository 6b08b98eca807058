from __future__ import annotations

from pathlib import Path

import pytest

from txagent_train.config.loading import load_recipe
from txagent_train.config.shipped import find_recipe
from txagent_train.launch import doctor
from txagent_train.launch.doctor import GIB
from txagent_train.launch.examine import examine
from txagent_train.launch.gpus import Gpu

SMI = """\
Thu Mar  5 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
"""
SMI_NEW = "| NVIDIA-SMI 595.10       KMD Version: 595.10     Driver Version: 595.10     CUDA UMD Version: 13.2 |"
VERSION_PY = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.13.0+cu130'
debug = False
cuda: Optional[str] = '13.0'
hip: Optional[str] = None
"""


def test_versions_are_read_from_what_the_tools_print() -> None:
    assert doctor.parse_driver(SMI) == ("550.54.15", (12, 4))
    assert doctor.parse_driver(SMI_NEW) == ("595.10", (13, 2))
    assert doctor.parse_driver("NVIDIA-SMI has failed") is None
    assert doctor.parse_driver(None) is None
    assert doctor.parse_torch_version(VERSION_PY) == ("2.13.0+cu130", (13, 0))
    assert doctor.parse_torch_version(VERSION_PY.replace("'13.0'", "None"))[1] is None


@pytest.mark.parametrize(
    ("driver", "built", "state", "words"),
    [
        ((13, 0), (13, 0), "ok", ""),
        ((12, 2), (12, 6), "ok", ""),  # minor releases of CUDA run on each other's drivers
        ((13, 1), (12, 6), "ok", ""),
        ((12, 4), (13, 0), "problem", "TORCH_INDEX=https://download.pytorch.org/whl/cu126 make setup"),
        ((11, 8), (13, 0), "problem", "a driver for CUDA 12"),
        ((12, 4), None, "problem", "cu126"),
        ((13, 0), None, "problem", "make clean && make setup"),
        (None, (13, 0), "warning", "runs on the CPU"),
        (None, None, "warning", "runs on the CPU"),
    ],
)
def test_a_driver_too_old_for_the_build_is_a_problem(
    driver: tuple[int, int] | None, built: tuple[int, int] | None, state: str, words: str
) -> None:
    check = doctor.driver_and_torch(None if driver is None else ("550", driver), ("2.13.0", built))
    assert check.state == state
    assert words in check.fix
    assert doctor.driver_and_torch(None, None).state == "problem"


def test_python() -> None:
    states = [doctor.python_release((3, minor)).state for minor in (10, 11, 13, 14)]
    assert states == ["problem", "ok", "ok", "problem"]


def test_packages_against_what_is_needed_and_tested() -> None:
    needs = ["accelerate>=1.15", "bitsandbytes>=0.50; extra == 'qlora'", "deepspeed>=0.19.8; sys_platform == 'plan9'"]
    assert doctor.packages(needs, {"accelerate": "1.15.0"}).state == "ok"
    old = doctor.packages(needs, {"accelerate": "1.2.0"})
    assert (old.state, old.found) == ("problem", "accelerate 1.2.0 (needs >=1.15)")
    assert doctor.packages(needs, {}).found == "accelerate missing (needs >=1.15)"
    newer = doctor.packages(needs, {"accelerate": "1.16.0"}, {"accelerate": "1.15.0"})
    assert (newer.state, newer.found) == ("warning", "accelerate 1.16.0 (tested: 1.15.0)")
    assert doctor.packages(["torch>=2.13"], {"torch": "2.13.0+cu126"}, {"torch": "2.13.0"}).state == "ok"


def test_gpus_of_several_kinds_are_warned_of() -> None:
    def gpu(index: str, name: str) -> Gpu:
        return Gpu(index, f"GPU-{index}", name, 80 * GIB)

    same = doctor.gpus([gpu("0", "H100"), gpu("1", "H100")], None)
    assert (same.state, same.found) == ("ok", "2 x H100 with 80 GiB")
    assert doctor.gpus([gpu("0", "H100"), gpu("1", "A100")], None).state == "warning"
    none = doctor.gpus([], "")
    assert (none.state, none.found) == ("warning", "none (CUDA_VISIBLE_DEVICES=)")


def test_interfaces_as_nccl_matches_them() -> None:
    up = ["lo", "eth0", "eth01", "ib0", "docker0"]
    assert doctor.matching_interfaces("eth", up) == ["eth0", "eth01"]
    assert doctor.matching_interfaces("=eth0", up) == ["eth0"]
    assert doctor.matching_interfaces("^docker,lo", up) == ["eth0", "eth01", "ib0"]
    assert doctor.matching_interfaces("^=eth0", up) == ["lo", "eth01", "ib0", "docker0"]


def test_an_interface_that_is_not_there_is_a_problem() -> None:
    up = ["lo", "eth0", "ib0", "docker0"]
    assert doctor.network_interface("ib", up).state == "ok"
    wrong = doctor.network_interface("ens5", up)
    assert (wrong.state, wrong.fix) == ("problem", "export NCCL_SOCKET_IFNAME=eth0")
    several = doctor.network_interface(None, up)
    assert several.state == "warning"
    assert "eth0 or ib0" in several.fix
    assert doctor.network_interface(None, ["lo", "eth0"]).state == "ok"


def test_disks() -> None:
    def state(free: int, writable: bool = True) -> str:
        return doctor.disk("output", "/runs", free=free, total=200 * GIB, writable=writable, least=50 * GIB).state

    assert [state(100 * GIB), state(20 * GIB), state(GIB // 2)] == ["ok", "warning", "problem"]
    assert state(100 * GIB, writable=False) == "problem"


def test_shared_memory_matters_between_gpus() -> None:
    docker = 64 * 1024**2
    assert [doctor.shared_memory(docker, count).state for count in (0, 1, 2)] == ["ok", "ok", "problem"]
    assert "--shm-size" in doctor.shared_memory(docker, 8).fix
    assert doctor.shared_memory(None, 0).state == "warning"


def test_the_hub() -> None:
    name = "meta-llama/Llama-3.1-8B-Instruct"
    assert doctor.hub_access(offline=False, token=False, model=None).state == "ok"
    assert doctor.hub_access(offline=True, token=False, model=name, cached=True).state == "ok"
    offline = doctor.hub_access(offline=True, token=True, model=name)
    assert offline.state == "problem"
    assert "txagent-train fetch" in offline.fix
    gated = doctor.hub_access(offline=False, token=False, model=name, refusal=("is gated", "hf auth login"))
    assert (gated.state, gated.fix) == ("problem", "hf auth login")
    assert doctor.hub_access(offline=False, token=True, model=name).state == "warning"


def test_what_deepspeed_compiles_with() -> None:
    nvcc = "Cuda compilation tools, release 13.0, V13.0.48"
    assert doctor.deepspeed_compiler(nvcc, True, (13, 0)).state == "ok"
    assert doctor.deepspeed_compiler(nvcc, True, (12, 6)).state == "warning"
    assert doctor.deepspeed_compiler(None, True, (13, 0)).found == "no nvcc"
    assert doctor.deepspeed_compiler(nvcc, False, (13, 0)).found == "no C++ compiler"
    assert doctor.deepspeed_compiler(None, False, None).state == "ok"


def test_slurm_and_clock() -> None:
    assert doctor.slurm_clients([]).state == "ok"
    assert doctor.slurm_clients(["sbatch"]).found == "without srun, scontrol, scancel"
    assert doctor.slurm_clients(doctor.SLURM_CLIENTS).state == "ok"
    assert doctor.clock(100.0, 99.0, released=50.0).state == "ok"
    assert doctor.clock(100.0, 40.0, released=50.0).state == "warning"
    assert doctor.clock(10.0, 10.0, released=50.0).state == "problem"


def test_this_machine_is_looked_at(tmp_path: Path) -> None:
    checks = {check.name: check for check in examine(None, tmp_path / "not" / "yet")}
    assert len(checks) == 12
    assert checks["Python"].state == "ok"
    assert checks["packages"].state == "ok"
    assert checks["clock"].state == "ok"
    assert str(tmp_path) in checks["output"].found


def test_a_model_that_is_nowhere_is_a_problem(tmp_path: Path) -> None:
    model = load_recipe(find_recipe("txagent-llama3.1-8b-lora")).model  # tests run with the hub switched off
    (hub,) = (check for check in examine(model, tmp_path) if check.name == "hub")
    assert hub.state == "problem"
    assert "Llama-3.1-8B" in hub.found
