"""Staging a model's files from the hub at one commit, and the proof that they load without a network.

Only what is read is staged: weights in safetensors, configuration, tokenizer and chat template. No pickle, no code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from txagent_train.core.errors import EnvironmentFailure, ModelError
from txagent_train.core.records import JsonObject
from txagent_train.tracking.files import nearest_existing

PROOF = "txagent_train.models.offline_proof"

_WEIGHTS = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
# Of the tokenizers that are no JSON: SentencePiece's model and the lists of words and merges.
_OTHER_FILES = re.compile(
    r"[^/]+\.(json|jinja)|tokenizer\.model|(vocab|merges)\.txt|additional_chat_templates/[^/]+\.jinja"
)


@dataclass(frozen=True, slots=True)
class Staged:
    """A model's files on this machine; ``commit`` is the whole hash, ``size`` in bytes."""

    name: str
    commit: str
    folder: Path
    files: tuple[str, ...]
    size: int

    def to_json(self) -> JsonObject:
        return {"name": self.name, "commit": self.commit, "folder": str(self.folder), "files": len(self.files)} | {
            "size": self.size
        }


def wanted_files(files: Iterable[str], name: str) -> tuple[str, ...]:
    """Those of a model's files that are staged.

    Raises:
        ModelError: none of them holds weights that would be loaded.
    """
    kept = tuple(sorted(file for file in files if _WEIGHTS.fullmatch(file) or _OTHER_FILES.fullmatch(file)))
    if not any(_WEIGHTS.fullmatch(file) for file in kept):
        raise ModelError(
            "there are no weights in safetensors, and others (pickles) are not loaded",
            where=name,
            fix="name a model that has them (model.safetensors), or convert it",
        )
    return kept


def stage(name: str, revision: str | None, to: Path | None = None) -> Staged:
    """Download a model into the hub's cache, or into a folder; what is there already is not downloaded again.

    Args:
        revision: branch, tag or commit; None is the main branch as it is now.

    Raises:
        ModelError: the model or the revision is not there, is gated, or the hub cannot be reached.
        EnvironmentFailure: the disk is too small.
    """
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.hf_api import RepoFile

    at = f"{name}@{revision}" if revision else name
    with _asking_the_hub(at):
        api = HfApi()
        commit = api.model_info(name, revision=revision).sha
        tree = api.list_repo_tree(name, revision=commit, recursive=True)
        sizes = {item.path: item.size for item in tree if isinstance(item, RepoFile)}
    assert commit is not None
    files = wanted_files(sizes, at)
    size = sum(sizes[file] for file in files)
    _check_space(Path(constants.HF_HUB_CACHE) if to is None else to, size)
    with _asking_the_hub(at):
        folder = snapshot_download(name, revision=commit, local_dir=to, allow_patterns=list(files))
    return Staged(name, commit, Path(folder), files, size)


def check_access(name: str, revision: str | None) -> None:
    """Ask the hub for a file of a model, of which only the head is fetched.

    Raises:
        ModelError: as `stage`.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    with _asking_the_hub(name):
        get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision))


def _check_space(folder: Path, size: int) -> None:
    there = nearest_existing(folder)
    free = shutil.disk_usage(there).free
    have = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0
    if size > free + have:
        raise EnvironmentFailure(f"{size / 1e9:.1f} GB are needed, but {there} has {free / 1e9:.1f} GB free")


@contextmanager
def _asking_the_hub(at: str) -> Iterator[None]:
    """The hub's many refusals as one kind of error each with what to do."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    log_in = "log in with an account that may read it: hf auth login, or HF_TOKEN"
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise ModelError("the hub is switched off", where=at, fix="unset HF_HUB_OFFLINE to fetch") from error
    except GatedRepoError as error:
        fix = f"ask for access on https://huggingface.co/{at.partition('@')[0]}, then {log_in}"
        raise ModelError("the model is gated, and this account has no access", where=at, fix=fix) from error
    except RevisionNotFoundError as error:
        raise ModelError("the model has no such revision", where=at, fix="a branch, a tag or a commit") from error
    except RepositoryNotFoundError as error:
        fix = f"check the name; if it is private, {log_in}"
        raise ModelError("no such model on the hub", where=at, fix=fix) from error
    except HFValidationError as error:
        raise ModelError(f"no name of a model: {error}", where=at) from error
    except Exception as error:  # the hub's client raises errors of several libraries
        cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) and error.__cause__ else error
        reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        fix = "check the network and its proxy (HTTPS_PROXY); what was fetched is kept"
        raise ModelError(f"the hub does not answer: {reason}", where=at, fix=fix) from error


def prove(name_or_path: str, revision: str | None, *, environment: Mapping[str, str] | None = None) -> JsonObject:
    """Load configuration, tokenizer and all weights in a fresh process with the hub switched off.

    Returns:
        ``parameters``, ``vocabulary`` and ``model_type``.

    Raises:
        ModelError: something is missing, torn, or does not fit.
    """
    offline = {**(os.environ if environment is None else environment), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", PROOF, name_or_path, *([revision] if revision else [])]
    done = subprocess.run(command, env=offline, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        # A user's error is its own words; anything else ends in the exception.
        said = "\n".join(lines) if done.returncode == 2 else (lines[-1] if lines else f"exit code {done.returncode}")
        raise ModelError(f"does not load with the hub switched off: {said}", where=name_or_path)
    found: JsonObject = json.loads(done.stdout.splitlines()[-1])
    return found
