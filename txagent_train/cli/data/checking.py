"""``txagent-train data check``: what would become of every record, step and sample of data files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from txagent_train.cli.data.importing import IncompleteChoice, InvalidCallsChoice
from txagent_train.cli.data.judging import (
    DEFAULT_MODEL,
    FinishChoice,
    FinishOption,
    IncompleteOption,
    InvalidCallsOption,
    Judge,
    Judged,
    KindChoice,
    KindOption,
    LengthOption,
    ModelOption,
    Options,
    OverlongChoice,
    OverlongOption,
    RecipeOption,
    SyntaxChoice,
    SyntaxOption,
    ToolDeliveryChoice,
    ToolDeliveryOption,
    files_and_overrides,
    guards_of,
    judge_for,
    judged,
    overlong_fix,
)
from txagent_train.cli.data.shared import AsJson, Format, print_json
from txagent_train.config.sft import DataSection, SourceSection
from txagent_train.core.errors import DataError, RecipeError
from txagent_train.core.records import JsonObject, RenderedExample
from txagent_train.data.decompose import untrained_reason
from txagent_train.data.mixing import Guards, check_sources, format_of
from txagent_train.rendering.preview import visible
from txagent_train.sft.rows import RowMaker
from txagent_train.tracking.files import content_sha256
from txagent_train.tracking.markup import count_of

_FIRST = 200


@dataclass(slots=True)
class Reason:
    """Why something is left out: how often, and the first of it."""

    count: int = 0
    first: DataError | None = None

    def add(self, fault: DataError) -> None:
        self.count += 1
        self.first = self.first or fault

    def set_fix(self, fix: str) -> None:
        """Say what all of them need, and not only the first."""
        if self.first is not None:
            self.first = DataError.from_json(self.first.to_json() | {"fix": fix})

    def told(self) -> str:
        """The first fault with its place, and what to do."""
        return str(self.first)

    def to_json(self) -> JsonObject:
        return {"count": self.count, "first": None if self.first is None else self.first.to_json()}


@dataclass(slots=True)
class FileCheck:
    """What would become of a file. Token counts are of the samples that are trained on.

    ``whole`` says whether all of it was read. ``stopping`` are the faults that would stop a run; ``over_limit`` counts
    the samples over data.max_length, summarised or not, and ``lengths_over_limit`` has them by length (data.overlong).
    """

    path: str
    format: str
    kind: str
    whole: bool = True
    records: int = 0
    traces: int = 0
    steps: int = 0
    samples: int = 0
    tokens: int = 0
    supervised_tokens: int = 0
    longest: int = 0
    longest_id: str = ""
    over_limit: int = 0
    lengths_over_limit: dict[int, int] = field(default_factory=dict)
    summarized: int = 0
    tokens_saved: int = 0
    neutralised: int = 0
    neutralised_in_targets: int = 0
    untrained: Counter[str] = field(default_factory=Counter)
    dropped_records: dict[str, Reason] = field(default_factory=dict)
    dropped_samples: dict[str, Reason] = field(default_factory=dict)
    stopping: dict[str, Reason] = field(default_factory=dict)

    def add(self, item: Judged, maker: RowMaker) -> None:
        """Count what becomes of a record."""
        self.records += 1
        if item.trace is None:
            assert item.fault is not None
            self._leave_out(item.fault, self.stopping if item.stops else self.dropped_records)
            return
        steps = item.trace.steps
        self.traces += 1
        self.steps += len(steps)
        self.untrained.update(reason for step in steps if (reason := untrained_reason(step)) is not None)
        for sample in maker.samples(item.trace, epoch=0):
            if sample.rendered is None:
                assert sample.fault is not None
                fault = sample.fault.at(path=self.path, line=item.line)
                self._leave_out(fault, self.stopping if sample.stops else self.dropped_samples)
            else:
                self._count(sample.example.id, sample.rendered)

    def _count(self, name: str, rendered: RenderedExample) -> None:
        length = len(rendered.input_ids)
        self.samples += 1
        self.tokens += length
        self.supervised_tokens += sum(rendered.loss_mask)
        self.neutralised += rendered.neutralised
        self.neutralised_in_targets += rendered.neutralised_in_target > 0
        if length > self.longest:
            self.longest, self.longest_id = length, name

    @staticmethod
    def _leave_out(fault: DataError, reasons: dict[str, Reason]) -> None:
        reasons.setdefault(fault.reason, Reason()).add(fault)

    def to_json(self) -> JsonObject:
        out: JsonObject = {item.name: getattr(self, item.name) for item in fields(self)}
        for name in ("dropped_records", "dropped_samples", "stopping"):
            out[name] = {reason: item.to_json() for reason, item in out[name].items()}
        return out


def check_source(source: SourceSection, judge: Judge, guards: Guards, *, first: int | None) -> FileCheck:
    """Judge the first records of a source, or all of them.

    A fault of the file itself (torn, not UTF-8, no record) is counted as one that stops a run.
    """
    out = FileCheck(str(source.path), source.format, source.kind)
    maker = RowMaker(judge.data, judge.renderer, judge.seed)
    try:
        out.format = format_of(source)
        items = judged(source, judge, guards)
        for item in islice(items, first):
            out.add(item, maker)
        out.whole = next(items, None) is None
    except DataError as fault:
        out.stopping.setdefault(fault.reason, Reason()).add(fault)
    report = maker.overlong
    out.over_limit = report.summarized + report.too_long
    out.lengths_over_limit = dict(sorted(report.lengths.items()))
    out.summarized, out.tokens_saved = report.summarized, report.tokens_saved
    for reasons in (out.stopping, out.dropped_samples):
        if "overlong" in reasons:
            reasons["overlong"].set_fix(overlong_fix(judge.data, report.longest))
    return out


def mark_empty(checks: Sequence[FileCheck]) -> None:
    """Count it as a fault that stops a run where no file of a part, all of them read, has a sample left."""
    if not checks or any(item.stopping or item.samples or not item.whole for item in checks):
        return
    gone: Counter[str] = Counter()
    for item in checks:
        gone.update({reason: found.count for reason, found in (item.dropped_records | item.dropped_samples).items()})
    told = ", ".join(f"{count} {reason}" for reason, count in gone.items()) or "no step is trained on"
    problem = f"no sample is left: {told}"
    checks[-1].stopping["no_samples"] = Reason(
        1, DataError(problem, reason="no_samples", path=", ".join(item.path for item in checks))
    )


def same_contents(data: DataSection) -> tuple[str, ...]:
    """What is wrong with files of a recipe that have the same content; only ones of the same size are read for it."""
    paths = [source.path for source in (*data.sources, *data.eval)]
    sizes = {path: path.stat().st_size if path.exists() else None for path in paths}
    shared = Counter(sizes.values())
    hashes = {
        str(path): content_sha256(path) if size is not None and shared[size] > 1 else str(path)
        for path, size in sizes.items()
    }
    try:
        check_sources(data, hashes, recipe="")
    except RecipeError as error:
        return error.problems
    return ()


# ---- the command ----


def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]... [KEY=VALUE]...", help="Data files; changes to the recipe.", show_default=False
        ),
    ] = None,
    recipe: RecipeOption = None,
    first: Annotated[int, typer.Option("--first", min=1, help="How many records of each file are read.")] = _FIRST,
    every: Annotated[bool, typer.Option("--all", help="Read all records.")] = False,
    format: Format = "auto",
    kind: KindOption = KindChoice.TRACE,
    model: ModelOption = DEFAULT_MODEL,
    syntax: SyntaxOption = SyntaxChoice.TXAGENT,
    finish: FinishOption = FinishChoice.CALL,
    tool_delivery: ToolDeliveryOption = ToolDeliveryChoice.PROMPT,
    max_length: LengthOption = None,
    overlong: OverlongOption = OverlongChoice.ERROR,
    incomplete: IncompleteOption = IncompleteChoice.DROP,
    invalid_calls: InvalidCallsOption = InvalidCallsChoice.DROP,
    as_json: AsJson = False,
) -> None:
    """Say what would be trained on, what would be left out and why, and whether a run would stop.

    With a recipe, records are judged as training judges them (its own files where none is named); without one, as an
    import does, and then training with --model. Exits with 2 where a run would stop.
    """
    paths, overrides = files_and_overrides(files or ())
    options = Options(model, kind, syntax, finish, tool_delivery, max_length, overlong, incomplete, invalid_calls)
    judge = judge_for(paths, overrides, recipe=recipe, format=format, options=options)
    guards = guards_of(judge)
    parts: tuple[list[FileCheck], list[FileCheck]] = ([], [])
    for source in judge.sources:
        parts[source in judge.held_out].append(check_source(source, judge, guards, first=None if every else first))
    for part in parts:
        mark_empty(part)
    checks = [item for part in parts for item in part]
    problems = same_contents(judge.data) if judge.strict else ()
    stops = bool(problems) or any(item.stopping for item in checks)
    if as_json:
        limit = judge.data.max_length
        files_json = [item.to_json() for item in checks]
        print_json({"stops": stops, "max_length": limit, "problems": list(problems), "files": files_json})
    else:
        console = Console()
        for item in checks:
            console.print(_table(item, judge.data.max_length))
        console.print(_safe(_conclusion(*parts, problems)), soft_wrap=True)
    if stops:
        raise typer.Exit(2)


def _conclusion(train: Sequence[FileCheck], held_out: Sequence[FileCheck], problems: Sequence[str]) -> str:
    checks = (*train, *held_out)
    parts = [] if all(item.whole for item in checks) else ["Only the first records were read; --all reads every one."]
    parts += problems
    stopping = len(problems) + sum(reason.count for item in checks for reason in item.stopping.values())
    if stopping:
        return "\n".join([*parts, f"A run would stop ({count_of(stopping, 'error')})."])
    samples, measured = (sum(item.samples for item in part) for part in (train, held_out))
    told = [f"train on {count_of(samples, 'sample')}"] if train else []
    told += [f"be evaluated on {count_of(measured, 'sample')}"] if held_out else []
    return "\n".join([*parts, f"A run would {' and '.join(told)} of these."])


def _table(item: FileCheck, limit: int) -> Table:
    records = "records" if item.whole else "records, the first of the file"
    out = Table(title=_safe(f"{item.path} ({item.kind}, format {item.format})"), title_justify="left")
    out.add_column("what")
    out.add_column("number", justify="right")
    out.add_column("the first, and what to do", overflow="fold")
    saved = f"{item.tokens_saved:,} tokens saved"
    rows: list[tuple[str, int, str]] = [
        (records, item.records, ""),
        ("  traces", item.traces, ""),
        ("samples that would be trained on", item.samples, ""),
        ("  tokens", item.tokens, ""),
        ("  tokens, supervised", item.supervised_tokens, ""),
        ("  longest sample, tokens", item.longest, item.longest_id),
        (f"samples over {limit:,} tokens", item.over_limit, ""),
    ]
    found = [
        *((f"  up to {bound:,}", count, "") for bound, count in item.lengths_over_limit.items()),
        ("  made to fit by summaries", item.summarized, saved),
        *((f"record left out: {name}", reason.count, reason.told()) for name, reason in item.dropped_records.items()),
        *((f"sample left out: {name}", reason.count, reason.told()) for name, reason in item.dropped_samples.items()),
        *((f"step not trained on: {name}", count, "") for name, count in item.untrained.items()),
        ("control strings broken", item.neutralised, "they stand in data, and are kept from acting as control tokens"),
        ("  samples with one in the output", item.neutralised_in_targets, ""),
        *((f"STOPS THE RUN: {name}", reason.count, reason.told()) for name, reason in item.stopping.items()),
    ]
    rows += [row for row in found if row[1]]
    for what, number, told in rows:
        out.add_row(_safe(what), f"{number:,}", _safe(told))
    return out


def _safe(value: str) -> str:
    """Text for a table: what comes from a file is neither markup nor able to move the cursor."""
    return escape(visible(value))
