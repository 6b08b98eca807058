"""Fixtures for all tests. Tests never touch the network."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("any_machine", settings(), deadline=None)
settings.load_profile("any_machine")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """The path of a real data set that lies beside a checkout of the project; skips where it does not."""

    def path(name: str) -> Path:
        found = SHARED / name
        if not found.exists():
            pytest.skip(f"the data set {name} is not beside this checkout ({SHARED})")
        return found

    return path
