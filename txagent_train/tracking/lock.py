"""One writer at a time in a folder."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from txagent_train.core.errors import EnvironmentFailure, RunDirError

LOCK_NAME = ".lock"
_MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
_log = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[Path]:
    """Hold the lock of a folder, which is made if it is not there. It is released when the process ends, however.

    Args:
        wait: wait while another process holds it; else that is an error.

    Raises:
        RunDirError: another process holds it, or the folder cannot be made or written to.
        EnvironmentFailure: the machine failed (disk full).
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if error.errno in _MACHINE_ERRORS:
            raise EnvironmentFailure(f"{folder} could not be written: {error.strerror}") from error
        raise RunDirError(
            f"the folder cannot be written to: {error.strerror or error}", where=str(folder), fix="take another folder"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise RunDirError(
                "another process is writing a run here",
                where=str(folder),
                fix="wait for it, or take another folder",
            ) from None
        except OSError as error:
            _log.warning("%s: this file system has no locks (%s); start no second run here", folder, error.strerror)
        yield folder
    finally:
        os.close(descriptor)
