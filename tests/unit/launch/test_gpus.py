from __future__ import annotations

import sys

from txagent_train.launch.gpus import Gpu, parse_gpus, run_tool, visible_gpus

LISTING = """\
0, GPU-1c3f0000-aaaa, NVIDIA H100 80GB HBM3, 81559
1, GPU-2d4e0000-bbbb, NVIDIA H100 80GB HBM3, 81559
2, GPU-3e5d0000-cccc, NVIDIA GB10, [N/A]
"""


def test_the_listing_is_read() -> None:
    first, _, third = parse_gpus(LISTING)
    assert first == Gpu("0", "GPU-1c3f0000-aaaa", "NVIDIA H100 80GB HBM3", 81559 * 1024**2)
    assert third.memory_bytes == 0
    assert parse_gpus("No devices were found\n") == ()
    assert parse_gpus("") == ()


def names(visible: str | None) -> list[str]:
    return [gpu.index for gpu in visible_gpus(parse_gpus(LISTING), visible)]


def test_what_is_hidden_from_cuda_is_not_seen() -> None:
    assert names(None) == ["0", "1", "2"]
    assert names("2,0") == ["2", "0"]
    assert names("GPU-2d4e") == ["1"]
    assert names("") == names("-1") == names("NoDevFiles") == []
    assert names("1,7,0") == ["1"]  # CUDA stops at the first that is not there
    assert names("MIG-a,MIG-b") == ["MIG-a", "MIG-b"]


def test_a_tool_that_is_not_there_or_fails_says_nothing() -> None:
    assert run_tool("no-such-program-anywhere") is None
    assert run_tool(sys.executable, "-c", "raise SystemExit(9)") is None
    assert run_tool(sys.executable, "-c", "print('here')") == "here\n"
