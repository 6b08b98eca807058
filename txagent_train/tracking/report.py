"""The one HTML report generator: every stage adds sections, and one self-contained file comes out.

A stage either fills a Report and writes it, or leaves sections in the run directory (save_section), from which
``txagent-train report RUN_DIR`` builds the run's report at any time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.tracking.files import atomic_write_json, atomic_write_text
from txagent_train.tracking.html import render_page
from txagent_train.tracking.metric_sections import key_figures, metric_sections
from txagent_train.tracking.metrics import Metrics, read_metrics
from txagent_train.tracking.provenance import utc_now
from txagent_train.tracking.run_dir import RunDir
from txagent_train.tracking.sections import (
    Cell,
    Code,
    Curves,
    KeyFigures,
    Point,
    Section,
    Table,
    Text,
    Traces,
    section_from_json,
    section_to_json,
)

_SECTION_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class Report:
    """Collects sections in reading order, and writes them as one HTML file."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self.subtitle = subtitle
        self.sections: list[Section] = []

    def add(self, section: Section) -> None:
        """Add a section that is already made."""
        self.sections.append(section)

    def text(self, heading: str, *paragraphs: str) -> None:
        """Add plain paragraphs."""
        self.add(Text(heading, paragraphs))

    def figures(self, heading: str, figures: Mapping[str, Cell]) -> None:
        """Add the few numbers that matter most, by label."""
        self.add(KeyFigures(heading, figures))

    def table(
        self,
        heading: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        note: str = "",
        bars: Sequence[str] = (),
    ) -> None:
        """Add a table; columns named in ``bars`` are drawn as bars as well."""
        self.add(Table(heading, tuple(columns), tuple(map(tuple, rows)), note, tuple(bars)))

    def curves(
        self,
        heading: str,
        series: Mapping[str, Sequence[Point]],
        x_label: str,
        y_label: str,
        log_y: bool = False,
        note: str = "",
        wide: bool = False,
    ) -> None:
        """Add a line chart; charts that follow each other stand in two columns unless they are wide."""
        points = {name: tuple(values) for name, values in series.items()}
        self.add(Curves(heading, points, x_label, y_label, log_y, note, wide))

    def code(self, heading: str, text: str) -> None:
        """Add text in a fixed-width font, folded up."""
        self.add(Code(heading, text))

    def traces(self, heading: str, traces: Sequence[Trace], labels: Sequence[str] = (), note: str = "") -> None:
        """Add traces to browse; ``labels`` is empty or has one short label for each."""
        self.add(Traces(heading, tuple(traces), tuple(labels), note))

    def write(self, path: Path) -> None:
        """Write the page, whole or not at all.

        Raises:
            EnvironmentFailure: the machine refused to write.
        """
        footer = f"txagent-train, {_readable_time(utc_now())}"
        atomic_write_text(path, render_page(self.title, self.subtitle, self.sections, footer))


def save_section(run_dir: Path, name: str, section: Section) -> None:
    """Leave a section for the report of ``run_dir``; one of the same name is replaced.

    Sections appear in the order of their names: begin them with a number (``20-comparison``).
    """
    if not _SECTION_NAME.fullmatch(name):
        raise ValueError(f"{name!r}: use lower-case letters, digits, - and _")
    atomic_write_json(RunDir(run_dir).sections / f"{name}.json", section_to_json(section))


def load_sections(run_dir: Path) -> list[Section]:
    """The sections left for the report of ``run_dir``, in the order of their names.

    Raises:
        DataError: one cannot be read; names the file.
    """
    sections: list[Section] = []
    for path in sorted(RunDir(run_dir).sections.glob("[!.]*.json")):
        try:
            sections.append(section_from_json(json.loads(path.read_bytes())))
        except ValueError as error:
            raise DataError(f"not JSON: {error}", reason="not_json", path=str(path)) from None
        except DataError as error:
            raise error.at(path=str(path)) from None
    return sections


def build_run_report(run_dir: Path) -> Path:
    """Build the report of a run from what lies in its directory, and return where it is.

    Raises:
        RunDirError: ``run_dir`` is no run directory.
        DataError: its metrics or a section cannot be read.
    """
    run = RunDir.load(run_dir)
    manifest = run.read_manifest()
    metrics = read_metrics(run.metrics_path) if run.metrics_path.exists() else Metrics(())
    name = str(manifest.get("name") or run.root.resolve().name)
    report = Report(name, f"Training run, {manifest['state']}. Created {_readable_time(manifest['created'])}.")
    report.add(key_figures(manifest, metrics.records))
    if "error" in manifest:
        report.text("Error", str(manifest["error"]))
    for section in (*metric_sections(metrics.records), *load_sections(run_dir)):
        report.add(section)
    if not metrics.records:
        report.text("Metrics", "No metrics have been recorded yet.")
    if metrics.torn:
        report.text(
            "Unfinished metrics",
            "The last line of metrics.jsonl is unfinished (a process was killed while it wrote) and is left out.",
        )
    if run.recipe_path.exists():
        report.code("Recipe", run.recipe_path.read_text(encoding="utf-8"))
    report.add(_origin(manifest))
    report.code("Manifest", json.dumps(manifest, indent=2))
    report.write(run.report_path)
    return run.report_path


def _readable_time(time: str) -> str:
    return f"{time[:10]} {time[11:16]} UTC"


def _origin(manifest: JsonObject) -> Table:
    """Where the run came from, as a table; the manifest has the rest."""
    git = manifest["git"]
    revision = f"{git['revision']}{' with local changes' if git['modified'] else ''}" if git else "no repository"
    rows: list[tuple[Cell, ...]] = [
        ("Command", " ".join(manifest["command_line"])),
        ("Git revision", revision),
        ("Python", f"{manifest['python']} on {manifest['platform']}"),
    ]
    rows += [(name, version or "not installed") for name, version in manifest["packages"].items()]
    rows += [
        (f"Resumed {_readable_time(resume['time'])}", " ".join(resume["command_line"]))
        for resume in manifest["resumes"]
    ]
    return Table("Origin", ("", ""), tuple(rows))
