"""Where a run came from: package versions, machine, git revision and command line, without secrets."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from txagent_train.core.records import JsonObject

PACKAGES = ("txagent-train", "torch", "transformers", "peft", "trl", "accelerate", "datasets")
REDACTED = "[redacted]"

_SECRET_WORD = re.compile(r"(token|key|password|passwd|secret|credential|credentials)$")
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def provenance() -> JsonObject:
    """What is recorded each time a run is started or resumed. The environment is never part of it."""
    return {
        "time": utc_now(),
        "command_line": redact_arguments(sys.argv),
        "working_directory": str(Path.cwd()),
        "git": git_revision(Path.cwd()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": package_versions(),
    }


def utc_now() -> str:
    """The present time in UTC, ISO 8601, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def package_versions(names: Sequence[str] = PACKAGES) -> dict[str, str | None]:
    """Installed versions, read from the packages' metadata without importing them; None where absent."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def git_revision(directory: Path) -> JsonObject | None:
    """The commit that ``directory`` is at and whether tracked files differ from it; None outside a repository."""
    revision = _git(directory, "rev-parse", "HEAD")
    if revision is None:
        return None
    return {"revision": revision, "modified": bool(_git(directory, "status", "--porcelain", "--untracked-files=no"))}


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Command line arguments with the values of secret-looking keys, and logins inside URLs, taken out.

    A key looks secret when one of its words ends in token, key, password, ...: ``hf_token=x``, ``--api-key x``,
    ``teacher.apiKey=x``; ``tokenizer=x`` and ``max_new_tokens=8`` do not.
    """
    redacted: list[str] = []
    value_is_secret = False
    for argument in arguments:
        key, equals, _ = argument.partition("=")
        if value_is_secret and not argument.startswith("-"):
            redacted.append(REDACTED)
            value_is_secret = False
            continue
        value_is_secret = False
        if looks_secret(key) and equals:
            redacted.append(f"{key}={REDACTED}")
            continue
        value_is_secret = argument.startswith("-") and looks_secret(key)
        redacted.append(_URL_LOGIN.sub(REDACTED, argument))
    return redacted


def looks_secret(key: str) -> bool:
    """Whether one of the words of a key ends in token, key, password, ...; ``tokenizer`` and ``max_tokens`` do not."""
    return any(_SECRET_WORD.search(word) for word in re.split(r"[^a-z0-9]+", key.lower()))
