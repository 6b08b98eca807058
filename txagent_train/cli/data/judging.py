"""What ``data show`` and ``data check`` judge records by: a recipe, or a model and a wire format that are named.

No torch here: the first record of a file is to be seen in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from txagent_train.cli.data.importing import IncompleteChoice, InvalidCallsChoice
from txagent_train.config.loading import load_recipe
from txagent_train.config.sft import DataSection, ModelSection, SftRecipe, SourceSection, WireSection
from txagent_train.config.shipped import find_recipe
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import Trace
from txagent_train.data.augment import Augmented
from txagent_train.data.checks import CALL_FAULTS, INCOMPLETE
from txagent_train.data.frozen import FROZEN
from txagent_train.data.mixing import Guards, source_traces
from txagent_train.models.embedded import embedded_model, is_embedded
from txagent_train.rendering.renderer import Renderer
from txagent_train.sft.rendering import renderer_for

_ALWAYS_STOP = (FROZEN, INCOMPLETE, *CALL_FAULTS)
"""Reasons that are errors only where the options or the data say so, also for a file that is not yet imported."""
DEFAULT_MODEL = "embedded:smollm2-135m-instruct"


class SyntaxChoice(StrEnum):
    """How calls are written."""

    TXAGENT = "txagent"
    HERMES = "hermes"


class FinishChoice(StrEnum):
    """How the answer is given."""

    CALL = "call"
    TEXT = "text"


class ToolDeliveryChoice(StrEnum):
    """Where the tools stand that Tool_RAG returned."""

    PROMPT = "prompt"
    RESULT = "result"


class KindChoice(StrEnum):
    """What a file holds."""

    TRACE = "trace"
    SUMMARY = "summary"
    QA = "qa"
    CHAT = "chat"


class OverlongChoice(StrEnum):
    """What to do with a sample that is too long."""

    ERROR = "error"
    DROP = "drop"
    SUMMARIZE = "summarize"


RecipeOption = Annotated[
    str | None, typer.Option("--recipe", "-r", help="Judge by this recipe: a file, or the name of a shipped one.")
]
ModelOption = Annotated[str, typer.Option("--model", help="Without a recipe: whose tokenizer; a name or a folder.")]
SyntaxOption = Annotated[SyntaxChoice, typer.Option("--syntax", help="Without a recipe: how calls are written.")]
FinishOption = Annotated[FinishChoice, typer.Option("--finish", help="Without a recipe: how the answer is given.")]
ToolDeliveryOption = Annotated[
    ToolDeliveryChoice, typer.Option("--tool-delivery", help="Without a recipe: where tools stand that Tool_RAG found.")
]
KindOption = Annotated[KindChoice, typer.Option("--kind", help="Without a recipe: what the file holds.")]
LengthOption = Annotated[int | None, typer.Option("--max-length", min=1, help="Without a recipe: the limit in tokens.")]
OverlongOption = Annotated[OverlongChoice, typer.Option("--overlong", help="Without a recipe: what is over the limit.")]
IncompleteOption = Annotated[
    IncompleteChoice, typer.Option("--incomplete", help="Without a recipe: traces without an answer.")
]
InvalidCallsOption = Annotated[
    InvalidCallsChoice, typer.Option("--invalid-calls", help="Without a recipe: calls that break their schema.")
]


@dataclass(frozen=True, slots=True)
class Options:
    """What records are judged by where no recipe is named; the names are those of the recipe's keys."""

    model: str
    kind: KindChoice
    syntax: SyntaxChoice
    finish: FinishChoice
    tool_delivery: ToolDeliveryChoice
    max_length: int | None
    overlong: OverlongChoice
    incomplete: IncompleteChoice
    invalid_calls: InvalidCallsChoice


@dataclass(frozen=True, slots=True)
class Judge:
    """Sources, and what their records are judged by.

    ``strict``: a record that cannot be read stops the run, as in training; without a recipe it is left out, as in an
    import. Sources among ``held_out`` are not trained on, and so not kept out of training.
    """

    sources: tuple[SourceSection, ...]
    held_out: tuple[SourceSection, ...]
    data: DataSection
    renderer: Renderer
    seed: int
    strict: bool

    @classmethod
    def by_recipe(cls, recipe: SftRecipe, files: Sequence[Path], format: str) -> Judge:
        """Judge the given files as sources of a recipe, or the recipe's own where none is given."""
        every = (*recipe.data.sources, *recipe.data.eval)
        own = {Path(source.path).resolve(): source for source in every}
        sources = tuple(own.get(file.resolve()) or _source(file, format) for file in files) or every
        renderer = renderer_for(recipe.model, recipe.wire, recipe.seed)
        return cls(sources, recipe.data.eval, recipe.data, renderer, recipe.seed, strict=True)

    @classmethod
    def by_options(cls, files: Sequence[Path], format: str, options: Options) -> Judge:
        """Judge files as an import does, and then training with a model."""
        sources = tuple(_source(file, format, options.kind.value) for file in files)
        keys: dict[str, Any] = {"sources": sources, "overlong": options.overlong.value}
        keys |= {"incomplete": options.incomplete.value, "invalid_calls": options.invalid_calls.value}
        known = embedded_model(options.model).max_length if is_embedded(options.model) else None
        if limit := options.max_length or known:
            keys["max_length"] = limit
        wire = WireSection(
            syntax=options.syntax.value, finish=options.finish.value, tool_delivery=options.tool_delivery.value
        )
        renderer = renderer_for(ModelSection(name_or_path=options.model), wire, 0)
        return cls(sources, (), DataSection(**keys), renderer, 0, strict=False)


def judge_for(
    files: Sequence[Path], overrides: Sequence[str], *, recipe: str | None, format: str, options: Options
) -> Judge:
    """The judge that the options of a command ask for.

    Raises:
        UserError: neither a file nor a recipe is named, or one of them is wrong.
    """
    if recipe is not None:
        return Judge.by_recipe(load_recipe(find_recipe(recipe), overrides), files, format)
    if overrides:
        raise UserError(f"{overrides[0]} changes a recipe, but none is named", fix="name it with --recipe")
    if not files:
        raise UserError("no file is named", fix="name one, or a recipe with --recipe")
    return Judge.by_options(files, format, options)


def overlong_fix(data: DataSection, longest: int) -> str:
    """What to do about samples over the limit, the longest of which has so many tokens.

    A sample that is left out need not be told how to leave it out.
    """
    enough = f"set data.max_length={longest} or more"
    return f"{enough}, or data.overlong=summarize, or data.overlong=drop" if data.overlong == "error" else enough


def files_and_overrides(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The arguments of a command that are files, and those that are ``key=value``."""
    overrides = [text for text in arguments if "=" in text and not os.path.exists(text)]
    return [Path(text) for text in arguments if text not in overrides], overrides


def _source(file: Path, format: str, kind: str = "trace") -> SourceSection:
    return SourceSection.model_validate({"path": file, "format": format, "kind": kind})


@dataclass(frozen=True, slots=True)
class Judged:
    """A record: its trace as training has it, or the fault for which it is left out or (``stops``) stops a run.

    ``original`` is the trace as it was recorded, ``augmented`` what was made of it.
    """

    trace: Trace | None
    line: int | None
    fault: DataError | None = None
    stops: bool = False
    original: Trace | None = None
    augmented: Augmented | None = None

    @property
    def id(self) -> str:
        """The id of the trace, as far as it is known."""
        return self.trace.id if self.trace is not None else self.fault.trace_id if self.fault is not None else ""


def guards_of(judge: Judge) -> Guards:
    """What keeps the records of a judge out of training, or varies them; read once for all its sources."""
    return Guards.of(judge.data, judge.seed)


def judged(source: SourceSection, judge: Judge, guards: Guards, *, epoch: int = 0) -> Iterator[Judged]:
    """Every record of a source as it is in an epoch, streamed, in order; unlike training, it goes on after a fault.

    Raises:
        DataError: the file itself cannot be read on: it is torn, or holds no record.
    """
    before: list[Judged] = []

    def left_out(fault: DataError) -> None:
        before.append(Judged(None, fault.line, fault))

    def error(fault: DataError) -> None:
        before.append(Judged(None, fault.line, fault, stops=judge.strict or fault.reason in _ALWAYS_STOP))

    training = source not in judge.held_out
    traces = source_traces(
        source,
        judge.data,
        training=training,
        guards=guards,
        on_drop=left_out,
        on_fault=error,
    )
    for line, trace in traces:
        yield from before
        before.clear()
        varied = guards.variation.apply(trace, epoch=epoch, training=training)
        yield Judged(varied.trace, line, original=trace, augmented=varied)
    yield from before
