"""Keeps what no user can act on out of the log."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial


@contextmanager
def quiet_renames() -> Iterator[None]:
    """TRL and peft still use old names of transformers, and the user cannot help it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*will be removed in v6.*", category=FutureWarning)
        yield


@contextmanager
def quiet_loading() -> Iterator[None]:
    """No progress bars, for a model that loads in seconds. The one of GGUF files cannot be turned off by option."""
    from transformers import modeling_gguf_pytorch_utils as gguf
    from transformers.utils import logging

    bar, enabled = gguf.tqdm, logging.is_progress_bar_enabled()
    gguf.tqdm = partial(bar, disable=True)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        gguf.tqdm = bar
        if enabled:
            logging.enable_progress_bar()
