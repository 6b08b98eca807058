"""A real SLURM with two nodes on this machine; skips with a reason where its programs are not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parent / "slurm_local.sh"
_DAEMONS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Its clients find it by SLURM_CONF, which is set while it is up."""

    folder: Path

    def job(self, number: str) -> dict[str, str]:
        """What scontrol knows of a job, or of one task (``NUMBER_TASK``) of an array."""
        command = ["scontrol", "--oneliner", "show", "job", number]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[0]
        return dict(pair.partition("=")[::2] for pair in shown.split() if "=" in pair)

    def seconds_run(self, number: str) -> int:
        """How long a job has run since its last start."""
        hours, minutes, seconds = self.job(number)["RunTime"].split(":")
        return (int(hours) * 60 + int(minutes)) * 60 + int(seconds)

    def limit(self, number: str, *, minutes: int) -> None:
        """Set the time limit of a job."""
        command = ["scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}"]
        subprocess.run(command, capture_output=True, check=True)

    def until(self, true: Callable[[], bool], *, timeout_s: float) -> None:
        """Wait for something."""
        deadline = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > deadline:
                queue = subprocess.run(["squeue"], capture_output=True, text=True, check=False).stdout
                pytest.fail(f"not so after {timeout_s} s; the queue:\n{queue}")
            time.sleep(1)

    def wait(self, numbers: Sequence[str], *, timeout_s: float) -> list[dict[str, str]]:
        """Wait until jobs have ended; what became of them. One that is queued again has not."""
        self.until(lambda: all(self.job(number)["JobState"] in _ENDED for number in numbers), timeout_s=timeout_s)
        return [self.job(number) for number in numbers]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name, path=_DAEMONS)]
    if missing:
        pytest.skip(f"SLURM is not installed here (no {', '.join(missing)}): apt-get install munge slurm-wlm")
    # Not under pytest's own folder: the path of a socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    settings = {"SLURM_LOCAL_DIR": str(folder), "SLURM_LOCAL_GPUS": "0", "SLURM_LOCAL_CPUS": "2"}
    environment = os.environ | settings
    start = ["bash", str(_SCRIPT), "start"]
    started = subprocess.run(start, env=environment, capture_output=True, text=True, check=False)
    if started.returncode != 0:
        pytest.skip(f"SLURM is installed, but does not start here: {started.stderr[-1500:]}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "etc" / "slurm.conf"))
        try:
            yield Cluster(folder)
        finally:
            subprocess.run(["bash", str(_SCRIPT), "stop"], env=environment, check=False)
            shutil.rmtree(folder, ignore_errors=True)
