"""``txagent-train tools rewrite``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from txagent_train.cli.data.shared import AsJson, Overwrite, print_json, table
from txagent_train.cli.tools.shared import EmbedderOption, ToolsArgument, ToolsFormat, check_not_input
from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject
from txagent_train.data.toolbox import Toolbox, check_packing
from txagent_train.data.toolspecs import AUTO
from txagent_train.data.writing import check_free

if TYPE_CHECKING:
    from txagent_train.clients.recording import ReplyStore
    from txagent_train.toolsmith.drafts import Job
    from txagent_train.toolsmith.rewriting import Rewriting
    from txagent_train.toolsmith.teacher import TeacherWriter

_TEACHER_ATTEMPTS = 4
_NAMES_SHOWN = 5


class WriterChoice(StrEnum):
    """Who writes."""

    RULES = "rules"
    TEACHER = "teacher"


def rewrite(
    tools: ToolsArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file of rewrites to write (JSON Lines).")],
    n: Annotated[int, typer.Option("--n", min=1, help="Versions of each tool.")] = 20,
    writer: Annotated[
        WriterChoice, typer.Option(help="rules: offline, by lexicon; teacher: a chat model behind --base-url.")
    ] = WriterChoice.RULES,
    hold_out_versions: Annotated[
        int, typer.Option(min=0, help="Keep the last so many versions of each tool for evaluation.")
    ] = 0,
    hold_out_tools: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Keep this share of the tools, and one at least, for evaluation, in every version."
        ),
    ] = 0.0,
    hold_out: Annotated[
        list[str] | None, typer.Option(help="Keep this tool for evaluation, too; may be given several times.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed writes other texts and holds out other tools.")] = 0,
    embedder: EmbedderOption = "tfidf",
    base_url: Annotated[
        str, typer.Option(help="Teacher: an OpenAI-compatible server, up to /v1. The key is read from OPENAI_API_KEY.")
    ] = "",
    model: Annotated[str, typer.Option(help="Teacher: the name of the model.")] = "",
    concurrency: Annotated[int, typer.Option(min=1, help="Teacher: requests under way at once.")] = 8,
    price_in: Annotated[float | None, typer.Option(min=0, help="Teacher: price of a million prompt tokens.")] = None,
    price_out: Annotated[float | None, typer.Option(min=0, help="Teacher: price of a million answer tokens.")] = None,
    replies: Annotated[
        Path | None, typer.Option(help="Teacher: keep the answers here; a run goes on from it. [OUT.replies.jsonl]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Teacher: do not ask before requests are sent.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Write nothing and fail where a version passes no attempt.")
    ] = False,
    format: ToolsFormat = AUTO,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Say every tool in other words: names, descriptions and arguments, each version checked.

    A version must be unlike all others, map arguments one to one, keep types and required, and mean what its tool
    means (closer to it than to any other tool). What fails is written again, and in the end reported.
    """
    from txagent_train.toolsmith.embedding import make_embedder
    from txagent_train.toolsmith.rewriting import ATTEMPTS, RewritePlan, jobs_of, rewrite_toolbox
    from txagent_train.toolsmith.rules import RuleWriter

    start = time.monotonic()
    check_not_input(out, [tools])
    check_packing(out)
    check_free(out, overwrite=overwrite)
    by_rules = writer is WriterChoice.RULES
    attempts = ATTEMPTS if by_rules else _TEACHER_ATTEMPTS
    plan = RewritePlan(n, attempts, hold_out_versions, hold_out_tools, tuple(hold_out or ()), seed)
    toolbox = Toolbox.read(tools, format)
    embedding = make_embedder(embedder, toolbox.tools)
    taught: JsonObject = {}
    if by_rules:
        done = rewrite_toolbox(toolbox, RuleWriter(toolbox, seed=seed), embedding, plan)
    else:
        from txagent_train.clients.recording import ReplyStore

        path = replies or out.with_name(f"{out.name}.replies.jsonl")
        make = _teacher(base_url, model, concurrency, price_in, price_out, seed)
        if path.absolute() == out.absolute():
            raise UserError("the answers and the rewrites cannot be one file", where=str(out), fix="name another file")
        check_not_input(path, [tools])
        with ReplyStore(path) as store:
            teacher = make(store)
            taught["estimate"] = _agreed(teacher, jobs_of(toolbox, n), yes)
            done = rewrite_toolbox(toolbox, teacher, embedding, plan)
            taught["spent"] = teacher.spent()
    report = done.to_json() | taught | {"seconds": round(time.monotonic() - start, 2), "out": str(out)}
    refused = bool(strict and done.failures)
    nothing = not report["versions"]
    if not refused and not nothing:
        done.rewrites.write(out, overwrite=overwrite)
    if as_json:
        print_json(report)
    else:
        _show(report, done)
    if refused:
        fix = "run it again with another --seed or writer, or without --strict"
        raise UserError(f"{len(done.failures)} versions passed no attempt; nothing was written", fix=fix)
    if nothing:
        raise _nothing_passed(done)


def _nothing_passed(done: Rewriting) -> UserError:
    if not done.failures:
        return UserError("there is no tool to rewrite, so nothing was written", fix="name a file that has one")
    reasons = ", ".join(f"{reason} {count:,} times" for reason, count in done.refused.most_common())
    last = done.failures[-1].problems[0]
    problem = f"no version passed the checks, so nothing was written: {reasons}; the last one: {': '.join(last)}"
    return UserError(problem, fix="run it again with another --seed, --model or --writer")


def _teacher(
    base_url: str,
    model: str,
    concurrency: int,
    price_in: float | None,
    price_out: float | None,
    seed: int,
) -> Callable[[ReplyStore], TeacherWriter]:
    """What makes the teacher, once what was asked for is known to be in order."""
    from txagent_train.clients.chat import Price
    from txagent_train.clients.endpoint import Endpoint
    from txagent_train.toolsmith.teacher import TeacherWriter

    if not base_url or not model:
        raise UserError("the teacher needs --base-url and --model", fix="or write with --writer rules, offline")
    if (price_in is None) != (price_out is None):
        raise UserError("one of --price-in and --price-out alone gives no cost", fix="pass both, or neither")
    price = None if price_in is None or price_out is None else Price(price_in, price_out)
    Endpoint(base_url)  # a wrong address is told before any file is made
    return lambda store: TeacherWriter(
        lambda: Endpoint(base_url, concurrency=concurrency), store, model=model, price=price, seed=seed
    )


def _agreed(teacher: TeacherWriter, jobs: list[Job], yes: bool) -> JsonObject:
    """The estimate, after whoever pays has agreed to it."""
    estimate = teacher.estimate(jobs).to_json()
    cost = "price not given" if estimate["cost"] is None else f"about {estimate['cost']:.2f}"
    words = (
        f"{estimate['requests'] - estimate['recorded']:,} requests ({estimate['recorded']:,} more are recorded), about "
        f"{estimate['prompt_tokens']:,} prompt and {estimate['completion_tokens']:,} answer tokens, {cost}"
    )
    typer.echo(words, err=True)
    if yes or estimate["requests"] == estimate["recorded"]:
        return estimate
    if not sys.stdin.isatty():
        raise UserError(f"nothing was sent: this takes {words}", fix="pass --yes to agree")
    if not typer.confirm("Send them?", err=True):
        raise UserError("nothing was sent")
    return estimate


def _show(report: JsonObject, done: Rewriting) -> None:
    console = Console()
    held_out = len(report["held_out_tools"])
    typer.echo(
        f"{report['versions']:,} versions of {report['tools']:,} tools in {report['seconds']:.1f} s -> {report['out']}"
    )
    shown = f" ({', '.join(report['held_out_tools'][:_NAMES_SHOWN])}{', ...' if held_out > _NAMES_SHOWN else ''})"
    typer.echo(
        f"for training: {report['versions_for_training']:,}; tools held out: {held_out:,}{shown if held_out else ''}"
    )
    if report["left_out"]:
        typer.echo(f"never rewritten: {', '.join(report['left_out'])}")
    console.print(table("variety", ("mean over tools", ""), report["variety"]))
    if report["refused"]:
        console.print(table("refused, then written again", ("reason", "times"), report["refused"]))
    if done.failures:
        rows = {f"{failure.tool}, version {failure.version}": failure.problems[0][0] for failure in done.failures}
        console.print(table("passed no attempt, left out", ("version", "reason"), rows))
    if "spent" in report:
        console.print(table("teacher", ("spent", ""), report["spent"]))
