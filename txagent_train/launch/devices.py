"""GPUs by the names that people give them: how much memory a run finds on them, and how fast they multiply.

``memory_gib`` is what CUDA reports to PyTorch as total; the size on the box is larger by what the driver and error
correction keep. ``tflops`` is the dense bf16 peak of the vendor's data sheet (those with sparsity are twice it).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from txagent_train.core.errors import UserError, known_names

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Device:
    """One kind of GPU."""

    name: str
    memory_gib: float
    tflops: float

    @property
    def memory_bytes(self) -> int:
        return int(self.memory_gib * GIB)


_DEVICES = {
    device.name: device
    for device in (
        Device("a100-40", 39.4, 312.0),
        Device("a100-80", 79.1, 312.0),
        Device("h100", 79.1, 989.0),
        Device("h200", 139.8, 989.0),
        Device("l40s", 44.4, 362.0),
        Device("a6000", 47.4, 154.8),
        Device("rtx4090", 23.6, 165.2),
    )
}


def device_named(name: str) -> Device:
    """Look up a GPU, upper or lower case.

    Raises:
        UserError: it is not in the table; names those that are.
    """
    found = _DEVICES.get(name.lower())
    if found is None:
        raise UserError("no such GPU", where=name, fix=known_names(name.lower(), _DEVICES))
    return found


def parse_hardware(text: str) -> tuple[int, Device]:
    """``4xh100``: how many GPUs a node has, and which.

    Raises:
        UserError: it is not written so, or the GPU is not known.
    """
    found = re.fullmatch(r"([1-9]\d*)x(.+)", text.strip(), flags=re.IGNORECASE)
    if found is None:
        raise UserError("must be a number of GPUs and their name, such as 4xh100", where=f"--on {text}")
    return int(found.group(1)), device_named(found.group(2))
