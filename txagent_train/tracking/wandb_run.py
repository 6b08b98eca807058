"""The Weights & Biases run of a training run; wandb is imported when a run is started, never before.

Only rank 0 starts one. What is logged here is also in metrics.jsonl, which is the record that counts.
"""

from __future__ import annotations

import json
import logging
import netrc
import os
import secrets
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from txagent_train.core.errors import EnvironmentFailure, RunDirError, UserError
from txagent_train.core.records import JsonObject
from txagent_train.tracking.files import atomic_write_json

if TYPE_CHECKING:
    import wandb

WandbMode: TypeAlias = Literal["auto", "online", "offline", "off"]

_log = logging.getLogger(__name__)
_ID_FILE = "wandb.json"
_PRIVACY = ("online", "offline", "off")
_OF_ENVIRONMENT = {"online": "online", "run": "online", "offline": "offline", "dryrun": "offline", "disabled": "off"}


class WandbRun:
    """A started run. ``id`` belongs into every checkpoint, so that a resumed job continues this run."""

    def __init__(self, run: wandb.Run) -> None:
        self._run = run
        self.id: str = run.id

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers by name at an optimizer step.

        W&B takes rising steps only: after a resume from an earlier checkpoint it ignores, with a warning, the
        steps that it has already; they are the same numbers.
        """
        self._run.log(dict(values), step=step)

    def finish(self, exit_code: int = 0) -> None:
        """Send what is left and close the run; a non-zero exit code shows it as failed."""
        self._run.finish(exit_code=exit_code)


class NullRun:
    """Stands in where W&B is off. It has no id, and logs nothing."""

    id: None = None

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Do nothing."""

    def finish(self, exit_code: int = 0) -> None:
        """Do nothing."""


def start_wandb(
    mode: WandbMode,
    *,
    run_dir: Path,
    project: str,
    name: str,
    config: JsonObject,
    entity: str | None = None,
    tags: Sequence[str] = (),
    run_id: str | None = None,
    init_timeout_s: float = 90.0,
) -> WandbRun | NullRun:
    """Start, or continue, the W&B run that belongs to ``run_dir``.

    The id is ``run_id`` (from the checkpoint resumed from), else the one in ``run_dir/wandb.json``, else a new
    one; it is kept in that file. Online, a resumed job continues the same run. Offline, each start writes a new
    segment with the same id under ``run_dir/wandb``: ``wandb sync run_dir/wandb/offline-run-*`` joins them.

    Args:
        mode: see resolve_mode.
        config: what W&B shows as the run's configuration (the resolved recipe).
        init_timeout_s: seconds to wait for the server when online.

    Raises:
        EnvironmentFailure: W&B did not start as asked; nothing falls back to another mode.
        RunDirError: wandb.json cannot be read.
    """
    resolved = resolve_mode(mode)
    if resolved == "off":
        return NullRun()
    if find_spec("wandb") is None:
        if mode == "auto":
            _log.info("Weights & Biases is off: the package wandb is not installed")
            return NullRun()
        raise EnvironmentFailure(
            "the package wandb is not installed\n  -> pip install wandb, or set tracking.wandb=off"
        )
    import wandb

    identity = _keep_id(run_dir / _ID_FILE, run_id)
    # Its debug logs would go to ~/.cache/wandb, which on clusters is small, shared and not this run's.
    os.environ.setdefault("WANDB_CACHE_DIR", str((run_dir / "wandb" / "cache").absolute()))
    settings = wandb.Settings(
        # The terminal's progress bars are no use as a log, and wrapping stdout breaks them.
        console="off",
        disable_git=True,
        # W&B's metadata holds the command line as typed, secrets included; the manifest has it redacted.
        x_disable_meta=True,
        init_timeout=init_timeout_s,
        # Online it prints the address of the run; offline nothing that the line below does not say.
        silent=resolved == "offline",
    )
    try:
        run = wandb.init(
            mode=resolved,
            dir=run_dir,
            id=identity,
            resume="allow",
            project=project,
            entity=entity,
            name=name,
            tags=list(tags),
            config=config,
            settings=settings,
        )
    except (wandb.errors.Error, OSError) as error:
        raise _not_started(resolved, str(error)) from error
    if resolved == "online" and run.offline:
        # Asked for a key on a terminal, the user may choose not to give one.
        run.finish()
        raise _not_started(resolved, "it started offline")
    if resolved == "offline":
        _log.info("Weights & Biases records offline; `wandb sync %s` uploads it", Path(run.dir).parent)
    return WandbRun(run)


def resolve_mode(mode: WandbMode) -> Literal["online", "offline", "off"]:
    """What ``mode`` and the environment variable WANDB_MODE come to.

    ``auto`` is WANDB_MODE where that is set, else online where credentials are found (WANDB_API_KEY, or the
    server's entry in the netrc file), else offline. Any other mode is what it says, unless WANDB_MODE is more
    private: a node set to offline never sends.

    Raises:
        UserError: WANDB_MODE has a value that is not known.
    """
    environment = os.environ.get("WANDB_MODE", "")
    if environment and environment not in _OF_ENVIRONMENT:
        raise UserError(
            f"{environment!r} is no W&B mode",
            where="environment variable WANDB_MODE",
            fix="online, offline or disabled",
        )
    from_environment = _OF_ENVIRONMENT.get(environment)
    if mode == "auto":
        found = from_environment or ("online" if _has_credentials() else "offline")
    else:
        found = max(mode, from_environment or mode, key=_PRIVACY.index)
    if found == "online":
        return "online"
    return "offline" if found == "offline" else "off"


def _has_credentials() -> bool:
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname
    named = os.environ.get("NETRC")
    for path in [Path(named)] if named else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        try:
            if host in netrc.netrc(path).hosts:
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


def _keep_id(path: Path, run_id: str | None) -> str:
    kept: str | None = None
    if path.exists():
        try:
            kept = str(json.loads(path.read_bytes())["id"])
        except (ValueError, KeyError, TypeError):
            raise RunDirError("the W&B run id cannot be read", where=str(path), fix="delete the file") from None
    identity = run_id or kept or secrets.token_hex(4)
    if identity != kept:
        atomic_write_json(path, {"id": identity})
    return identity


def _not_started(mode: str, reason: str) -> EnvironmentFailure:
    fix = "set tracking.wandb=offline and `wandb sync` later" if mode == "online" else "set tracking.wandb=off"
    return EnvironmentFailure(f"Weights & Biases did not start ({mode}): {reason}\n  -> {fix}")
