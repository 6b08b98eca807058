"""``txagent-train data show``: the samples of one record exactly as training sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from txagent_train.cli.data.comparing import compare
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
    guards_of,
    judge_for,
    judged,
    overlong_fix,
)
from txagent_train.cli.data.shared import AsJson, Format, print_json
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import JsonObject, RenderedExample, StepExample, Trace
from txagent_train.data.decompose import untrained_reason
from txagent_train.rendering.preview import Line, Piece, Preview, lines, shared_messages, visible
from txagent_train.rendering.preview_page import StepPreview, margin, preview_page
from txagent_train.rendering.wire import WireFormat
from txagent_train.sft.rows import RowMaker, Sample
from txagent_train.tracking.files import atomic_write_text

_WHY_UNTRAINED = {
    "train_false": "the record says train: false",
    "weight_zero": "the record gives it the weight 0",
    "unparsable": "the output could not be read as a call; it stays in the history of later steps",
    "forced": "the loop made the model answer; it stays in the history of later steps",
    "rejected": "a filter rejected it; it stays in the history of later steps",
}
_TOOLS_SHOWN = 8
_LEGEND = "lines marked + are trained on, the rest is the prompt; > goes on in the middle of a line of the text"
_TOKEN_BORDER = "\N{LEFT ONE EIGHTH BLOCK}"


def show(
    file: Annotated[Path, typer.Argument(help="A data file.", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe.", show_default=False)
    ] = None,
    record: Annotated[int | None, typer.Option("--record", "-n", min=1, help="Which record, from 1.")] = None,
    trace_id: Annotated[str | None, typer.Option("--id", help="The record with this trace id instead.")] = None,
    step: Annotated[int | None, typer.Option("--step", min=0, help="This step alone (from 0), in full.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show where each token begins.")] = False,
    epoch: Annotated[int, typer.Option("--epoch", min=0, help="As it is in this epoch (from 0).")] = 0,
    beside: Annotated[
        bool, typer.Option("--beside", help="Show the trace as recorded beside what augmentation made of it.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page instead.")] = None,
    recipe: RecipeOption = None,
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
    """Show the samples of one record as training sees them: every token, and which are trained on.

    The first record is shown unless --record or --id names another. Nothing but the records before it is read. With
    --beside, the trace is shown as text instead, what changed marked: [-before-] and {+after+}.
    """
    if record is not None and trace_id is not None:
        raise UserError("--record and --id name a record each", fix="give one of them")
    if beside and html is not None:
        raise UserError("--beside prints text, and --html writes the samples", fix="give one of them")
    options = Options(model, kind, syntax, finish, tool_delivery, max_length, overlong, incomplete, invalid_calls)
    judge = judge_for([file], overrides or (), recipe=recipe, format=format, options=options)
    number, found = _find(judge, number=record or 1, trace_id=trace_id, epoch=epoch)
    steps = list(_steps(judge, found, epoch))
    if step is not None:
        steps = [item for item in steps if item.number == step]
        if not steps and found.trace is not None:
            raise UserError(f"the record has {len(found.trace.steps)} steps, counted from 0", where=f"--step {step}")
    title = f"record {number} of {file}" + (f", line {found.line}" if found.line not in (None, number) else "")
    if found.trace is not None:
        title += f": trace {found.trace.id}"
    if beside:
        compare(title, found, as_json=as_json)
        return
    preview = Preview(judge.renderer.tokenizer)
    if as_json:
        print_json(_to_json(number, found, steps, preview, tokens=tokens))
    if html is not None:
        atomic_write_text(html, preview_page(title, steps, preview, tokens=tokens))
        typer.echo(f"written to {html}", err=as_json)
    if html is None and not as_json:
        opening = judge.renderer.tokenizer.get_vocab()[judge.renderer.frame.open]
        _print(title, found, steps, preview, tokens=tokens, opening=None if step is not None else opening)


def _find(judge: Judge, *, number: int, trace_id: str | None, epoch: int) -> tuple[int, Judged]:
    """The record that is asked for, and which it is, from 1; the trace as it is in an epoch."""
    source = judge.sources[0]
    count = 0
    for count, item in enumerate(judged(source, judge, guards_of(judge), epoch=epoch), 1):
        if item.id == trace_id if trace_id is not None else count == number:
            return count, item
    wanted = f"no record with the id {trace_id!r}" if trace_id is not None else f"no record {number}"
    raise DataError(f"the file has {wanted}: it holds {count} records", reason="no_such_record", path=str(source.path))


# ---- what becomes of each step ----


def _steps(judge: Judge, found: Judged, epoch: int) -> Iterator[StepPreview]:
    if found.trace is None:
        return
    samples = {sample.example.step_index: (sample, notes) for sample, notes in _samples(judge, found.trace, epoch)}
    for number, step in enumerate(found.trace.steps):
        if number in samples:
            sample, notes = samples[number]
            yield _sample_preview(number, sample, [*notes, *_new_tools(sample.example, judge.renderer.wire)])
            continue
        reason = untrained_reason(step) or ""
        yield StepPreview(number, f"not trained on ({reason})", (_WHY_UNTRAINED.get(reason, reason),))


def _samples(judge: Judge, trace: Trace, epoch: int) -> Iterator[tuple[Sample, list[str]]]:
    """The samples of an epoch. All of them are made, for what is summarised in one stays so in later ones."""
    maker = RowMaker(judge.data, judge.renderer, judge.seed)
    for sample in maker.samples(trace, epoch=epoch):
        notes = []
        saved, maker.overlong.tokens_saved = maker.overlong.tokens_saved, 0
        if saved:
            notes.append(f"results of early steps are summaries, or it would have {sample.length + saved:,} tokens")
        if sample.fault is not None and sample.fault.reason == "overlong":
            fix = overlong_fix(judge.data, maker.overlong.longest)
            sample = replace(sample, fault=DataError.from_json(sample.fault.to_json() | {"fix": fix}))
        yield sample, notes


def _new_tools(example: StepExample, wire: WireFormat) -> Iterator[str]:
    """Where the tools stand that each step before this one brought into view."""
    place = "in the list at the top" if wire.tool_delivery == "prompt" else "in its result"
    for number, step in enumerate(example.trace.steps[: example.step_index]):
        if step.tools_added:
            yield f"tools found in step {number} stand {place}: {_some([tool.name for tool in step.tools_added])}"


def _sample_preview(number: int, sample: Sample, notes: Sequence[str]) -> StepPreview:
    if sample.rendered is None:
        assert sample.fault is not None
        verdict = "stops the run" if sample.stops else "left out"
        return StepPreview(number, f"{verdict} ({sample.fault.reason})", _told(sample.fault))
    rendered, notes = sample.rendered, list(notes)
    facts = f"{len(rendered.input_ids):,} tokens, {sum(rendered.loss_mask):,} of them trained on"
    facts += f"; weight {rendered.weight:g}"
    if rendered.neutralised:
        facts += f"; {rendered.neutralised} control strings in the data are broken by a space or an escape"
    tools = tuple(tool.name for tool in sample.example.tools)
    return StepPreview(number, "trained on", (facts, *notes), tools, rendered)


def _told(fault: DataError) -> tuple[str, ...]:
    return (fault.problem, f"-> {fault.fix}") if fault.fix else (fault.problem,)


# ---- output ----


def _print(
    title: str, found: Judged, steps: Sequence[StepPreview], preview: Preview, *, tokens: bool, opening: int | None
) -> None:
    """Print the steps; of each, what is new in it, where the token is given with which messages begin."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(visible(title), style="bold"))
    if found.fault is not None:
        verdict = "stops the run" if found.stops else "left out"
        console.print(Text(f"{verdict} ({found.fault.reason}): " + visible("\n  ".join(_told(found.fault)))))
    if any(step.example is not None for step in steps):
        console.print(Text(_LEGEND, style="italic"))
    before: RenderedExample | None = None
    for step in steps:
        console.print(Text(f"\nstep {step.number}: {step.verdict}", style="bold"))
        for note in step.notes:
            console.print(Text(f"  {visible(note)}"))
        if step.example is None:
            continue
        console.print(Text(f"  {len(step.tools)} tools: {visible(_some(step.tools))}"))
        skip = 0 if opening is None or before is None else shared_messages(step.example, before, opening)
        if skip:
            console.print(Text(f"  ... the first {skip:,} tokens are those of the step before (all: --step)"))
        for line in lines(_after(preview.tokens(step.example) if tokens else preview.runs(step.example), skip)):
            console.print(_styled(line, tokens=tokens))
        before = step.example


def _some(names: Sequence[str]) -> str:
    more = len(names) - _TOOLS_SHOWN
    return ", ".join(names[:_TOOLS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _after(pieces: Sequence[Piece], skip: int) -> Iterator[Piece]:
    """The pieces behind the first ``skip`` tokens; a message begins there, so no piece spans that."""
    seen = 0
    for piece in pieces:
        if seen >= skip:
            yield piece
        seen += len(piece.ids)


def _styled(line: Line, *, tokens: bool) -> Text:
    # Text objects, never markup: what stands in data must not be read as instructions to the terminal.
    out = Text(margin(line) + " ", style="bold green" if line.trained else "dim")
    for piece in line.pieces:
        style = "green underline" if line.trained else "dim"
        if piece.control:
            style = "magenta underline" if line.trained else "magenta dim"
        if tokens:
            out.append(_TOKEN_BORDER, style="dim")
        out.append(visible(piece.text), style=style)
    return out


def _to_json(number: int, found: Judged, steps: Sequence[StepPreview], preview: Preview, *, tokens: bool) -> JsonObject:
    out: JsonObject = {
        "record": number,
        "line": found.line,
        "id": found.id,
        "fault": None if found.fault is None else found.fault.to_json() | {"stops": found.stops},
        "steps": [],
    }
    for step in steps:
        entry: JsonObject = {"step": step.number, "verdict": step.verdict, "notes": list(step.notes)}
        if step.example is not None:
            pieces = preview.tokens(step.example) if tokens else preview.runs(step.example)
            entry |= {
                "tokens": len(step.example.input_ids),
                "supervised_tokens": sum(step.example.loss_mask),
                "weight": step.example.weight,
                "neutralised": step.example.neutralised,
                "tools": list(step.tools),
                "pieces": [
                    {"text": piece.text, "ids": list(piece.ids), "trained": piece.trained, "control": piece.control}
                    for piece in pieces
                ],
            }
        out["steps"].append(entry)
    return out
