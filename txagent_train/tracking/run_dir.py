"""The directory of one run, and the rules for who may write into it.

    run_dir/
      manifest.json    where the run came from, its fingerprint and state; a folder that has one is a run
      recipe.yaml      the resolved recipe (recipe.1.yaml, ...: the ones before a resume that changed it)
      metrics.jsonl    one record a line
      checkpoints/     to resume from
      model/           the final output
      report/          sections that stages leave for the report
      report.html

Only rank 0 opens a run directory for training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from txagent_train.core.errors import EnvironmentFailure, RunDirError
from txagent_train.core.records import JsonObject
from txagent_train.tracking.files import atomic_write_json, atomic_write_text, dump_json, is_leftover
from txagent_train.tracking.provenance import provenance, utc_now

_SHOWN_ENTRIES = 5
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
            resume: go on with the run in ``root`` if there is one.
            allowed: names that may already lie in ``root`` without making it a foreign folder.

        Raises:
            RunDirError: ``root`` holds a run and ``resume`` is False; holds a run with another fingerprint;
                holds something else; or has a manifest that cannot be read.
            EnvironmentFailure: the machine refused to write.
        """
        run = cls(root)
        fingerprint = json.loads(dump_json(fingerprint))
        if run.manifest_path.exists():
            if not resume:
                raise _taken(run)
            run._continue(fingerprint, manifest, recipe_yaml)
        else:
            _check_empty(root, allowed)
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
        # The manifest first: it claims the folder. Killed before the next line, the run resumes, from step 0.
        atomic_write_json(self.manifest_path, manifest)
        self._lay_out(recipe_yaml)

    def _continue(self, fingerprint: JsonObject, added: JsonObject, recipe_yaml: str) -> None:
        manifest = self.read_manifest()
        differences = list(fingerprint_differences(manifest["fingerprint"], fingerprint))
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


def _check_empty(root: Path, allowed: frozenset[str]) -> None:
    if root.exists() and not root.is_dir():
        raise RunDirError("a file, not a folder", where=str(root), fix="take another output_dir")
    if not root.exists():
        return
    foreign = sorted(
        entry.name for entry in root.iterdir() if entry.name not in allowed and not is_leftover(entry.name)
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


def fingerprint_differences(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    """One readable line for each differing key, nested keys dotted: ``train.seed: 0 -> 1``."""
    before, after = dict(_flatten(old)), dict(_flatten(new))
    for key in (*before, *(key for key in after if key not in before)):
        was, now = before.get(key, "(absent)"), after.get(key, "(absent)")
        if was != now:
            yield f"{key}: {was} -> {now}"


def _flatten(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _flatten(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", dump_json(item)
