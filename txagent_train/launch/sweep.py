"""A sweep: the runs of a grid of overrides, each with several seeds, and the table of what came out.

DIR/sweep.json               the recipe and the runs
DIR/<settings>/seed-<N>/     the run directory of each
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from txagent_train.config.nodes import Node, YamlProblem, plain, read_yaml
from txagent_train.core.errors import DataError, RunDirError, UserError
from txagent_train.core.records import JsonObject
from txagent_train.tracking.files import atomic_write_json
from txagent_train.tracking.metrics import read_metrics
from txagent_train.tracking.run_dir import RunDir, RunState

MEASURES: Mapping[str, str] = {"eval_loss": "held-out loss", "loss": "loss", "steps": "steps"}
"""What is averaged over the seeds, and how the table calls it."""

_INDEX = "sweep.json"


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run: its settings (the same for all of its seeds), and what the recipe is overridden with."""

    settings: str
    seed: int
    overrides: tuple[str, ...]
    output_dir: Path


def runs_of(overrides: Sequence[str], seeds: Sequence[int], folder: Path) -> tuple[SweepRun, ...]:
    """The runs of a sweep, settings by settings.

    Args:
        overrides: as for one run; one whose value is a list, ``adapter.lora.r=[8,16]``, is tried with each item. A
            value that is a list itself is a list in the list: ``tracking.tags=[[a,b]]``.

    Raises:
        UserError: an override that is no ``key=[...]`` or ``key=value``, stands twice or sets what a sweep sets.
    """
    axes = [_axis(text) for text in overrides]
    names = [name for name, _ in axes]
    for name in names:
        if names.count(name) > 1:
            raise UserError("stands twice", where=name, fix=f"one list holds all of its values: {name}=[...]")
        if name in ("seed", "output_dir"):
            raise UserError("a sweep sets this itself", where=name, fix="say --seeds N, and --out DIR for the runs")
    runs = []
    for values in product(*(values for _, values in axes)):
        chosen = tuple(f"{name}={value}" for name, value in zip(names, values, strict=True))
        swept = [text for text, (_, options) in zip(chosen, axes, strict=True) if len(options) > 1]
        settings = ", ".join(swept) or "as in the recipe"
        for seed in seeds:
            place = folder / _folder_name(swept) / f"seed-{seed}"
            own = (f"seed={seed}", f"output_dir={_json(str(place))}")
            runs.append(SweepRun(settings, seed, (*chosen, *own), place))
    return tuple(runs)


def _axis(text: str) -> tuple[str, list[str]]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UserError("an override is written key=value, or key=[value, value]", where=text)
    try:
        node, problems = read_yaml(value, None)
    except YamlProblem as problem:
        problems = [problem]
    if problems:
        raise UserError(problems[0].text, where=text)
    items = node.value if isinstance(node.value, list) else [node]
    if not items:
        raise UserError("an empty list: there is nothing to try", where=text)
    return name.strip(), [_as_written(item) for item in items]


def _as_written(node: Node) -> str:
    """A value as an override says it: a plain word, else JSON."""
    value = plain(node)
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][\w./-]*", value):
        return value if value.lower() not in ("null", "true", "false") else _json(value)
    return _json(value)


def _json(value: object) -> str:
    """JSON that YAML reads too: it takes fewer characters as they are, and the two halves of an escaped one apart."""
    return re.sub(r"[^ -~]", lambda match: f"\\U{ord(match[0]):08x}", json.dumps(value, ensure_ascii=False))


def _folder_name(swept: Sequence[str]) -> str:
    """``train.learning_rate=0.001`` -> ``learning_rate=0.001``: a name that every file system takes."""
    short = [text.partition("=")[0].rpartition(".")[2] + "=" + text.partition("=")[2] for text in swept]
    names = [re.sub(r"[^\w.=+-]+", "-", text) for text in (short if len(set(short)) == len(swept) else swept)]
    return ",".join(names) or "recipe"


def write_sweep(folder: Path, recipe: str, runs: Sequence[SweepRun]) -> None:
    """Note the runs in the folder of the sweep.

    Raises:
        UserError: another sweep is there.
    """
    index: JsonObject = {
        "recipe": recipe,
        "runs": [
            {
                "settings": run.settings,
                "seed": run.seed,
                "overrides": list(run.overrides),
                "output_dir": str(run.output_dir),
            }
            for run in runs
        ],
    }
    path = folder / _INDEX
    if path.exists() and json.loads(path.read_bytes()) != index:
        fix = "say --out OTHER, or repeat that sweep"
        raise UserError("another sweep is in this folder", where=str(folder), fix=fix)
    atomic_write_json(path, index)


def read_sweep(folder: Path) -> tuple[SweepRun, ...]:
    """The runs of a sweep.

    Raises:
        UserError: there is none in the folder.
    """
    path = folder / _INDEX
    try:
        index = json.loads(path.read_bytes())
        return tuple(
            SweepRun(row["settings"], row["seed"], tuple(row["overrides"]), Path(row["output_dir"]))
            for row in index["runs"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError("there is no sweep here (sweep.json)", where=str(folder)) from None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run. ``state`` is that of its manifest, or ``missing``; values are those of finished runs."""

    run: SweepRun
    state: str
    values: Mapping[str, float]

    @property
    def finished(self) -> bool:
        return self.state == RunState.FINISHED


def outcome_of(run: SweepRun) -> Outcome:
    """Read what a run left."""
    directory = RunDir(run.output_dir)
    if not directory.manifest_path.exists():
        return Outcome(run, "missing", {})
    try:
        state = str(directory.read_manifest()["state"])
        records = read_metrics(directory.metrics_path).records if state == RunState.FINISHED else ()
    except (RunDirError, DataError, OSError):
        return Outcome(run, "unreadable", {})
    values: dict[str, float] = {}
    for record in records:
        if record["kind"] == "train":
            values |= {"loss": record["loss"], "steps": record["step"]}
        elif record["kind"] == "eval":
            values["eval_loss"] = record["loss"]
    return Outcome(run, state, values)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: the seeds of one setting. ``values`` are mean and standard deviation (n - 1; None for one
    seed) over the finished runs; ``not_finished`` counts the others by state."""

    settings: str
    finished: int
    not_finished: Mapping[str, int]
    values: Mapping[str, tuple[float, float | None]]

    def to_json(self) -> JsonObject:
        return {
            "settings": self.settings,
            "finished": self.finished,
            "not_finished": dict(self.not_finished),
            **{name: {"mean": mean, "sd": sd} for name, (mean, sd) in self.values.items()},
        }


def table_of(outcomes: Sequence[Outcome]) -> tuple[Row, ...]:
    """One row for each setting, in the order of the sweep."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.run.settings, []).append(outcome)
    rows = []
    for settings, group in groups.items():
        finished = [item for item in group if item.finished]
        states = [item.state for item in group if not item.finished]
        values = {}
        for name in MEASURES:
            found = [item.values[name] for item in finished if name in item.values]
            if found:
                values[name] = (statistics.fmean(found), statistics.stdev(found) if len(found) > 1 else None)
        counted = {state: states.count(state) for state in dict.fromkeys(states)}
        rows.append(Row(settings, len(finished), counted, values))
    return tuple(rows)
