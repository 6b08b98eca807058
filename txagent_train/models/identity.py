"""Which weights a base model has, so that an adapter never meets others under the same name.

Of a local folder (and an embedded model) it is a hash of the weight files' names, sizes, first and last MiB: their
headers, and what a torn or replaced file would not share, in a second whatever the size. Of a model from the hub it
is the commit.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from txagent_train.core.errors import ModelError
from txagent_train.models.embedded import embedded_file, is_embedded
from txagent_train.models.loading import reading_model
from txagent_train.tracking.files import atomic_write_json

BASE_FILE = "base_model.json"
_END_BYTES = 1 << 20


def base_identity(name_or_path: str, revision: str | None = None) -> str:
    """The identity of a base model's weights.

    Raises:
        ModelError: they cannot be found or read.
    """
    if is_embedded(name_or_path):
        return _files_hash([embedded_file(name_or_path)])
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return _files_hash(sorted(folder.glob("*.safetensors")))
    from transformers import AutoConfig

    with reading_model(name_or_path, revision):
        config = AutoConfig.from_pretrained(name_or_path, revision=revision, trust_remote_code=False)
    return f"commit:{config._commit_hash}"


def _files_hash(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            with open(path, "rb") as file:
                size = file.seek(0, os.SEEK_END)
                digest.update(f"{path.name}:{size}:".encode())
                for start in (0, max(size - _END_BYTES, 0)):
                    file.seek(start)
                    digest.update(file.read(_END_BYTES))
        except OSError as error:
            raise ModelError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    return f"ends:{digest.hexdigest()}"


def write_base(folder: Path, name_or_path: str, identity: str) -> None:
    """Leave in an adapter's folder which weights it was trained on."""
    atomic_write_json(folder / BASE_FILE, {"name_or_path": name_or_path, "identity": identity})


def check_base(folder: Path, name_or_path: str, revision: str | None) -> None:
    """Check that a base model has the weights that an adapter was trained on, where its folder says which.

    Raises:
        ModelError: it has others, or the file cannot be read.
    """
    path = folder / BASE_FILE
    if not path.exists():
        return  # an adapter made by other software
    try:
        trained_on = json.loads(path.read_bytes())["identity"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"cannot be read: {error}", where=str(path)) from error
    if base_identity(name_or_path, revision) != trained_on:
        raise ModelError(
            f"the base model {name_or_path} has other weights than the adapter was trained on",
            where=str(folder),
            fix="put the former weights back, or train the adapter anew",
        )
