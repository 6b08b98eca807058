"""Turns the records of metrics.jsonl into charts and figures; a metric added later is drawn without a change here."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import datetime

from txagent_train.core.records import JsonObject
from txagent_train.tracking.sections import Cell, Curves, KeyFigures, Point, Section, Table

_DRAWN = ("train", "eval", "retention")
"""Kinds of records that measure something over the steps. Others state facts, at each start of a run for one."""
_NOT_DRAWN = ("step", "kind", "epoch", "time", "elapsed_s")
# Heading and label of the y axis, in the order of the page; other metrics follow, under their own names.
_KNOWN = {
    "loss": ("Loss", "loss per supervised token"),
    "learning_rate": ("Learning rate", "learning rate"),
    "grad_norm": ("Gradient norm", "norm before clipping"),
    "tokens_per_second": ("Throughput", "tokens per second"),
    "supervised_tokens": ("Supervised tokens", "tokens per optimizer step"),
}


def metric_sections(records: Sequence[JsonObject]) -> list[Section]:
    """A chart for each metric, a series for each kind of record; single values and facts go into a table."""
    series: dict[str, dict[str, list[Point]]] = {}
    facts: list[tuple[Cell, ...]] = []
    for record in records:
        for key, value in record.items():
            if key in _NOT_DRAWN or not isinstance(value, (int, float)) or isinstance(value, bool):
                continue
            if record["kind"] in _DRAWN:
                points = series.setdefault(key, {}).setdefault(record["kind"], [])
                points.append((float(record["step"]), float(value)))
            else:
                facts.append((key, record["kind"], record["step"], value))
    sections: list[Section] = []
    single: list[tuple[Cell, ...]] = []
    for key in sorted(series, key=_position):
        kinds = series[key]
        if all(len(points) == 1 for points in kinds.values()):
            single += [(key, kind, int(points[0][0]), points[0][1]) for kind, points in kinds.items()]
            continue
        heading, label = _KNOWN.get(key, (key.replace("_", " ").replace("/", ": ").capitalize(), key))
        if len(kinds) == 1 and (kind := next(iter(kinds))) != "train":
            heading = f"{heading} ({kind})"
        points_by_kind = {kind: tuple(points) for kind, points in kinds.items()}
        sections.append(Curves(heading, points_by_kind, "optimizer step", label, wide=key == "loss"))
        if key == "loss":
            sections += _loss_by_source(records)
    if single:
        sections.append(Table("Measured once", ("metric", "kind", "step", "value"), tuple(single)))
    if facts:
        sections.append(Table("Facts", ("fact", "kind", "step", "value"), tuple(facts)))
    return sections


def _loss_by_source(records: Sequence[JsonObject]) -> list[Section]:
    """A chart with a series for each source of each kind of record, where one has several."""
    series: dict[str, list[Point]] = {}
    kinds: set[str] = set()
    for record in records:
        for source, loss in record.get("loss_by_source", {}).items():
            kinds.add(record["kind"])
            series.setdefault(f"{record['kind']}: {source}", []).append((float(record["step"]), float(loss)))
    if len(series) <= len(kinds):
        return []
    points = {name: tuple(values) for name, values in series.items()}
    return [Curves("Loss by source", points, "optimizer step", "loss per supervised token", wide=True)]


def _position(key: str) -> int:
    return list(_KNOWN).index(key) if key in _KNOWN else len(_KNOWN)


def key_figures(manifest: JsonObject, records: Sequence[JsonObject]) -> KeyFigures:
    """The figures at the top of a run's report; those that were not measured are left out."""
    figures: dict[str, Cell] = {}
    train = [record for record in records if record["kind"] == "train"]
    if train:
        figures["Optimizer steps"] = train[-1]["step"]
    losses = {kind: [r["loss"] for r in records if r["kind"] == kind and "loss" in r] for kind in ("train", "eval")}
    if losses["train"]:
        figures["Last train loss"] = losses["train"][-1]
    if losses["eval"]:
        figures["First eval loss"] = losses["eval"][0]
        figures["Last eval loss"] = losses["eval"][-1]
    speeds = [record["tokens_per_second"] for record in train if "tokens_per_second" in record]
    if speeds:
        figures["Tokens/s (median)"] = round(statistics.median(speeds))
    if manifest["state"] != "running" and not manifest["resumes"]:
        figures["Duration"] = _duration(manifest["created"], manifest["state_time"])
    return KeyFigures("", figures)


def _duration(start: str, end: str) -> str:
    seconds = int((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
