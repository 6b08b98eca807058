"""Writing files so that a reader, or a process killed half-way, never meets half of one.

Every file is written aside, in its own folder, and then renamed over its final name.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from pathlib import Path
from typing import Any

from txagent_train.core.errors import EnvironmentFailure, UserError

_CHUNK_BYTES = 1 << 20
_ASIDE = re.compile(r"\..+\.\d+\.tmp")


def atomic_write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, whole or not at all; folders above it are created.

    Raises:
        EnvironmentFailure: the machine refused (disk full, no permission).
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(aside, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise EnvironmentFailure(f"{path} could not be written: {error.strerror or error}") from error


def atomic_write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all (see atomic_write_bytes)."""
    atomic_write_bytes(path, text.encode("utf-8"))


def atomic_write_json(path: Path, value: object) -> None:
    """Write ``value`` as indented JSON, whole or not at all (see atomic_write_bytes and dump_json)."""
    atomic_write_text(path, dump_json(value, indent=2) + "\n")


def dump_json(value: object, *, indent: int | None = None) -> str:
    """``value`` as strict JSON in ASCII.

    Floats that JSON cannot hold become the strings "NaN", "Infinity" and "-Infinity": a diverged loss must be
    on record, and ``float()`` turns the strings back. ASCII, because text from a tool may hold lone surrogates,
    which UTF-8 cannot encode.
    """
    return json.dumps(_finite(value), indent=indent, ensure_ascii=True, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def is_leftover(name: str) -> bool:
    """Whether ``name`` is a file that a killed process had written aside and not yet renamed."""
    return _ASIDE.fullmatch(name) is not None


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's content in hex; the file is streamed, never held in memory.

    Raises:
        UserError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    return digest.hexdigest()


def content_sha256(path: Path) -> str:
    """SHA-256 of a file; of a folder, that of the names and contents of its files, hidden ones left out."""
    if not path.is_dir():
        return file_sha256(path)
    names = sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())
    shown = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    return hashlib.sha256("".join(f"{file_sha256(path / name)} {name}\n" for name in shown).encode()).hexdigest()


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest one above it that is there: what tells of the disk that it would be on."""
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
