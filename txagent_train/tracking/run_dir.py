"""The directory of one run, and the rules for who may write into it.

    run_dir/
      manifest.json    where the run came from, its fingerprint and state; a folder that has one is a run
      recipe.yaml      the resolved recipe (recipe.1.yaml, ...: the ones before a resume that changed it)
      metrics.jsonl    one record a line
      prepared/        tokens of the data; may be there before the run is
      checkpoints/     to resume from
      model/           the final output
      report/          sections that stages leave for the report
      report.html
      .lock            held by the process that writes (tracking/lock.py)

Only rank 0 opens a run directory for training. A run without a checkpoint and without a model holds nothing worth
keeping: it may be started anew with other settings.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path

from txagent_train.core.errors import EnvironmentFailure, RunDirError, UserError
from txagent_train.core.records import JsonObject
from txagent_train.tracking.files import atomic_write_json, atomic_write_text, dump_json, is_leftover
from txagent_train.tracking.lock import LOCK_NAME, locked
from txagent_train.tracking.provenance import provenance, utc_now

PREPARED = "prepared"
_SHOWN_ENTRIES = 5
_ABSENT = object()
_HASH = re.compile(r"[0-9a-f]{64}")
_ORIGIN_KEYS = frozenset(["command_line", "git", "python", "platform", "packages"])
_MANIFEST_KEYS = _ORIGIN_KEYS | {"state", "state_time", "created", "fingerprint", "resumes"}


class RunState(StrEnum):
    """What became of a run. A run that was killed outright still says running."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class RunDir:
    """The paths of a run directory, and its manifest."""

    root: Path

    @property
    def manifest_path(self) -> Path:
        return self.root / "manifest.json"

    @property
    def recipe_path(self) -> Path:
        return self.root / "recipe.yaml"

    @property
    def metrics_path(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def model(self) -> Path:
        return self.root / "model"

    @property
    def sections(self) -> Path:
        return self.root / "report"

    @property
    def report_path(self) -> Path:
        return self.root / "report.html"

    def has_progress(self) -> bool:
        """Whether there is a checkpoint or a model."""
        checkpoints = self.checkpoints.iterdir() if self.checkpoints.is_dir() else ()
        return self.model.exists() or any(not entry.name.startswith(".") for entry in checkpoints)

    @classmethod
    @contextmanager
    def claim(
        cls, root: Path, *, fingerprint: JsonObject, manifest: JsonObject, recipe_yaml: str, resume: bool
    ) -> Iterator[RunDir]:
        """``open_for_training`` under the folder's lock, until the block ends.

        A UserError in the block leaves the folder as it was: what is new in it is removed (unless there is a
        checkpoint by then), a run that was there keeps its state.

        Raises:
            RunDirError: as open_for_training; or another process holds the lock, or ``root`` cannot be used.
        """
        run = cls(root)
        existed, before = _is_folder(root), _entries(root)
        if run.manifest_path.name not in before:
            _check_empty(root, frozenset([PREPARED]))
        with locked(root):
            former = run.read_manifest() if run.manifest_path.exists() else None
            try:
                yield cls.open_for_training(
                    root, fingerprint=fingerprint, manifest=manifest, recipe_yaml=recipe_yaml, resume=resume
                )
            except UserError:
                if former is not None and run.manifest_path.exists():
                    run.mark(RunState(former["state"]), error=former.get("error", ""))
                elif not run.has_progress():
                    _remove_new(root, before, existed)
                raise

    @classmethod
    def open_for_training(
        cls,
        root: Path,
        *,
        fingerprint: JsonObject,
        manifest: JsonObject,
        recipe_yaml: str,
        resume: bool,
        allowed: frozenset[str] = frozenset(),
    ) -> RunDir:
        """Create a run directory, or open the one there to go on with it.

        Args:
            fingerprint: what decides the loss curve (data hashes, seed, optimizer, ...); a resume must match it.
            manifest: what the caller adds to the manifest, such as the name and the data fingerprints.
            recipe_yaml: the resolved recipe.
            resume: go on with the run in ``root`` if there is one. One without progress is started anew where it
                has another fingerprint, or ``resume`` is False.
            allowed: names that may already lie in ``root`` without making it a foreign folder.

        Raises:
            RunDirError: ``root`` holds a run and ``resume`` is False; holds a run with another fingerprint;
                holds something else; or has a manifest that cannot be read.
            EnvironmentFailure: the machine refused to write.
        """
        run = cls(root)
        fingerprint = json.loads(dump_json(fingerprint))
        if run.manifest_path.exists():
            same = run.read_manifest()["fingerprint"] == fingerprint
            if not run.has_progress() and not (resume and same):
                run._create(fingerprint, manifest, recipe_yaml)
            elif not resume:
                raise _taken(run)
            else:
                run._continue(fingerprint, manifest, recipe_yaml)
        else:
            _check_empty(root, allowed | {PREPARED})
            run._create(fingerprint, manifest, recipe_yaml)
        return run

    @classmethod
    def load(cls, root: Path) -> RunDir:
        """Open a run directory for reading.

        Raises:
            RunDirError: ``root`` is no run directory.
        """
        run = cls(root)
        if not run.manifest_path.is_file():
            raise RunDirError("not a run directory: it has no manifest.json", where=str(root))
        run.read_manifest()
        return run

    def read_manifest(self) -> JsonObject:
        """The manifest as it stands on disk.

        Raises:
            RunDirError: it cannot be read.
        """
        try:
            manifest = json.loads(self.manifest_path.read_bytes())
        except (OSError, ValueError) as error:
            raise RunDirError(
                f"the manifest cannot be read: {error}", where=str(self.manifest_path), fix="take another output_dir"
            ) from None
        if not isinstance(manifest, dict) or not manifest.keys() >= _MANIFEST_KEYS:
            raise RunDirError(
                "not the manifest of a training run", where=str(self.manifest_path), fix="take another output_dir"
            )
        return manifest

    def mark(self, state: RunState, *, error: str = "") -> None:
        """Record in the manifest what became of the run, and why where it failed."""
        manifest = self.read_manifest()
        manifest |= {"state": str(state), "state_time": utc_now()}
        manifest.pop("error", None)
        if error:
            manifest["error"] = error
        atomic_write_json(self.manifest_path, manifest)

    def _create(self, fingerprint: JsonObject, added: JsonObject, recipe_yaml: str) -> None:
        origin = provenance()
        manifest = {
            **added,
            "state": str(RunState.RUNNING),
            "state_time": origin["time"],
            "created": origin.pop("time"),
            **origin,
            "fingerprint": fingerprint,
            "resumes": [],
        }
        # Of a run without progress that was here before.
        for name in (self.metrics_path.name, "wandb.json"):
            (self.root / name).unlink(missing_ok=True)
        # The manifest first: it claims the folder. Killed before the next line, the run resumes, from step 0.
        atomic_write_json(self.manifest_path, manifest)
        self._lay_out(recipe_yaml)

    def _continue(self, fingerprint: JsonObject, added: JsonObject, recipe_yaml: str) -> None:
        manifest = self.read_manifest()
        hashes = manifest.get("data_sha256", {}) | added.get("data_sha256", {})
        names = {content: Path(path).name for path, content in hashes.items()}
        differences = list(fingerprint_differences(manifest["fingerprint"], fingerprint, names))
        if differences:
            lines = "".join(f"\n    {line}" for line in differences)
            raise RunDirError(
                f"the run here cannot be resumed with other settings (the run's -> asked for):{lines}",
                where=str(self.root),
                fix="take another output_dir, or put these settings back",
            )
        manifest["resumes"].append({**added, **provenance()})
        manifest |= {"state": str(RunState.RUNNING), "state_time": utc_now()}
        manifest.pop("error", None)
        if self.recipe_path.exists() and self.recipe_path.read_text(encoding="utf-8") != recipe_yaml:
            self.recipe_path.replace(self.root / f"recipe.{len(manifest['resumes'])}.yaml")
        atomic_write_json(self.manifest_path, manifest)
        self._lay_out(recipe_yaml)

    def _lay_out(self, recipe_yaml: str) -> None:
        atomic_write_text(self.recipe_path, recipe_yaml)
        try:
            self.checkpoints.mkdir(exist_ok=True)
        except OSError as error:
            raise EnvironmentFailure(f"{self.checkpoints} could not be made: {error.strerror}") from error


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder, or nothing yet.

    Raises:
        RunDirError: it is something else, or cannot be looked at.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False  # below a file: making it says so
    except OSError as error:
        raise _unusable(path, error) from None
    if not path.is_dir():
        raise RunDirError("a file, not a folder", where=str(path), fix="take another output_dir")
    return True


def _entries(root: Path) -> frozenset[str]:
    """The names in a folder; none where it is not there. Raises as _is_folder."""
    try:
        return frozenset(entry.name for entry in root.iterdir()) if _is_folder(root) else frozenset()
    except OSError as error:
        raise _unusable(root, error) from None


def _unusable(path: Path, error: OSError) -> RunDirError:
    return RunDirError(f"cannot be read: {error.strerror or error}", where=str(path), fix="take another output_dir")


def _remove_new(root: Path, before: frozenset[str], existed: bool) -> None:
    """Remove what was not in a folder before, and the folder if it was not there."""
    for entry in root.iterdir():
        if entry.name in before:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    if not existed and not any(root.iterdir()):
        root.rmdir()


def _check_empty(root: Path, allowed: frozenset[str]) -> None:
    foreign = sorted(
        name for name in _entries(root) if name not in allowed and name != LOCK_NAME and not is_leftover(name)
    )
    if foreign:
        shown = ", ".join(foreign[:_SHOWN_ENTRIES])
        more = f" and {len(foreign) - _SHOWN_ENTRIES} more" if len(foreign) > _SHOWN_ENTRIES else ""
        raise RunDirError(
            f"the folder is not empty and not a run: it holds {shown}{more}",
            where=str(root),
            fix="take another output_dir, or empty this one",
        )


def _taken(run: RunDir) -> RunDirError:
    manifest = run.read_manifest()
    name = f" {manifest['name']!r}" if "name" in manifest else ""
    checkpoints = sorted(entry.name for entry in run.checkpoints.iterdir()) if run.checkpoints.is_dir() else []
    holds = f"{len(checkpoints)} checkpoint{'' if len(checkpoints) == 1 else 's'}"
    return RunDirError(
        f"the folder already holds the run{name} ({manifest['state']}, created {manifest['created']}, {holds})",
        where=str(run.root),
        fix="take another output_dir, or go on with that run: --resume auto",
    )


def fingerprint_differences(
    old: Mapping[str, object], new: Mapping[str, object], names: Mapping[str, str] | None = None
) -> Iterator[str]:
    """One readable line for each differing key, nested keys and items of lists dotted: ``train.seed: 0 -> 1``.

    A hash is not shown: ``data.sources.0 (train.jsonl): its content changed``. ``names`` are what hashes are known by.
    """
    yield from _differences("", old, new, names or {})


def _differences(key: str, was: object, now: object, names: Mapping[str, str]) -> Iterator[str]:
    pairs = _pairs(was, now)
    if pairs is not None:
        for name, before, after in pairs:
            yield from _differences(f"{key}.{name}" if key else name, before, after, names)
    elif _is_hash(was) and _is_hash(now) and was != now:
        here = names.get(str(now)) or names.get(str(was))
        yield f"{key.removesuffix('.sha256')}{f' ({here})' if here else ''}: its content changed"
    elif was is _ABSENT or now is _ABSENT or dump_json(was) != dump_json(now):
        yield f"{key}: {_shown(was, names)} -> {_shown(now, names)}"


def _pairs(was: object, now: object) -> list[tuple[str, object, object]] | None:
    """The parts of two sections or two lists, side by side; None of anything else."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        keys = (*was, *(key for key in now if key not in was))
        return [(key, was.get(key, _ABSENT), now.get(key, _ABSENT)) for key in keys]
    if isinstance(was, list) and isinstance(now, list):
        items = enumerate(zip_longest(was, now, fillvalue=_ABSENT))
        return [(str(number), before, after) for number, (before, after) in items]
    return None


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def _shown(value: object, names: Mapping[str, str]) -> str:
    if value is _ABSENT:
        return "(absent)"
    if isinstance(value, Mapping) and _is_hash(value.get("sha256")):
        return names.get(value["sha256"], "another file")
    return "another file" if _is_hash(value) else dump_json(value)
