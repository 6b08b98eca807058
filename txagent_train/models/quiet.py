"""Keeps warnings that no user can act on out of the log."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_renames() -> Iterator[None]:
    """TRL and peft still use old names of transformers, and the user cannot help it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*will be removed in v6.*", category=FutureWarning)
        yield
