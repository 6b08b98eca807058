"""Rewriting a toolbox: write, check, write again what failed, hold out, report."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.rewrites import RewriteSet, ToolRewrite
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.checks import Checker
from txagent_train.toolsmith.drafts import Draft, Job, NoDraft, Writer
from txagent_train.toolsmith.embedding import Embedder
from txagent_train.toolsmith.reserved import rewritable
from txagent_train.toolsmith.variety import variety
from txagent_train.tracking.logging import progress

_log = logging.getLogger(__name__)
ATTEMPTS = 12
"""How often a version is written at most; where it costs nothing."""
_LEAVE_SOME = "leave some for training"
Problems = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RewritePlan:
    """What is wanted.

    Args:
        n: versions of each tool.
        attempts: how often a version is written, at most, until it passes the checks.
        hold_out_versions: the last so many versions of each tool are for evaluation only.
        hold_out_tools: this share of the tools, and one at least, is for evaluation only, in every version.
        hold_out: the names of further such tools.
        seed: which tools are held out.

    Raises:
        UserError: a number is out of range, or nothing would be left for training.
    """

    n: int = 20
    attempts: int = ATTEMPTS
    hold_out_versions: int = 0
    hold_out_tools: float = 0.0
    hold_out: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n < 1 or self.attempts < 1:
            raise UserError("versions and attempts are counted from 1")
        if not 0 <= self.hold_out_versions < self.n:
            raise UserError(f"of {self.n} versions, {self.hold_out_versions} cannot be held out", fix=_LEAVE_SOME)
        if not 0 <= self.hold_out_tools < 1:
            raise UserError(f"{self.hold_out_tools} is no share of tools that can be held out", fix=_LEAVE_SOME)


@dataclass(frozen=True, slots=True)
class Failure:
    """A version that passed in no attempt, and what the last attempt was refused for."""

    tool: str
    version: int
    problems: Problems

    def to_json(self) -> JsonObject:
        problems = [{"reason": reason, "found": found} for reason, found in self.problems]
        return {"tool": self.tool, "version": self.version, "problems": problems}


@dataclass(frozen=True, slots=True)
class Rewriting:
    """``rewrites`` holds what passed, ``failures`` what did not; ``refused`` counts, by reason, each refusal."""

    rewrites: RewriteSet
    failures: tuple[Failure, ...]
    refused: Counter[str]
    left_out: tuple[str, ...]
    """Tools that are never rewritten: the agent knows them by name."""
    variety: JsonObject

    def to_json(self) -> JsonObject:
        versions = [rewrite for rewrites in self.rewrites.by_tool.values() for rewrite in rewrites]
        return {
            "tools": len(self.rewrites.by_tool),
            "left_out": list(self.left_out),
            "versions": len(versions),
            "versions_for_training": sum(not rewrite.held_out for rewrite in versions),
            "held_out_tools": sorted(self.rewrites.held_out_tools),
            "refused": dict(self.refused.most_common()),
            "failed": dict(Counter(problem[0] for failure in self.failures for problem in failure.problems)),
            "failures": [failure.to_json() for failure in self.failures],
            "variety": self.variety,
        }


def jobs_of(toolbox: Toolbox, n: int) -> list[Job]:
    """Every version of every tool, to be written for the first time."""
    return [Job(spec, version) for spec in rewritable(toolbox) for version in range(1, n + 1)]


def rewrite_toolbox(toolbox: Toolbox, writer: Writer, embedder: Embedder, plan: RewritePlan) -> Rewriting:
    """Write ``plan.n`` checked versions of each tool.

    Raises:
        UserError: the writer can write nothing, or the plan holds out tools that are not there.
    """
    tools = rewritable(toolbox)
    held_out = held_out_tools(tools, plan)
    checker = Checker(toolbox, embedder)
    pending = jobs_of(toolbox, plan.n)
    passed: dict[tuple[str, int], ToolRewrite] = {}
    refused: Counter[str] = Counter()
    failures: list[Failure] = []
    while pending:
        again: list[Job] = []
        for job, outcome in _written(writer, checker, pending):
            if isinstance(outcome, ToolRewrite):
                passed[job.spec.name, job.version] = outcome
                continue
            refused.update(reason for reason, _ in outcome.problems)
            if job.attempt + 1 < plan.attempts and not outcome.final:
                again.append(replace(job, attempt=job.attempt + 1, rejected=outcome.told))
            else:
                failures.append(Failure(job.spec.name, job.version, outcome.problems))
        if again:
            _log.info("%d of %d versions are written again", len(again), len(pending))
        pending = again
    settings = writer.settings() | {"embedder": embedder.name, "n": plan.n, "attempts": plan.attempts}
    by_tool = {tool.name: _versions(tool.name, passed, held_out, plan) for tool in tools}
    rewrites = RewriteSet(toolbox.hash, held_out, {tool: found for tool, found in by_tool.items() if found}, settings)
    left_out = tuple(name for name in toolbox.by_name if name not in by_tool)
    return Rewriting(rewrites, tuple(failures), refused, left_out, variety(rewrites, toolbox))


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a version did not pass. ``told`` is what the writer hears of it: what the checks say, and not a server."""

    problems: Problems
    told: tuple[str, ...] = ()
    final: bool = False


def _written(writer: Writer, checker: Checker, jobs: Sequence[Job]) -> list[tuple[Job, ToolRewrite | _Refusal]]:
    with progress("versions", len(jobs)) as bar:
        written = writer.write(jobs, bar.advance)
    drafts = [(job, draft) for job, draft in zip(jobs, written, strict=True) if isinstance(draft, Draft)]
    verdicts = iter(checker.check(drafts))
    outcomes: list[tuple[Job, ToolRewrite | _Refusal]] = []
    for job, draft in zip(jobs, written, strict=True):
        if isinstance(draft, NoDraft):
            outcomes.append((job, _Refusal(((draft.reason, draft.found),), final=draft.final)))
        else:
            problems = (verdict := next(verdicts)).problems
            told = tuple(f"{reason}: {found}" for reason, found in problems)
            outcomes.append((job, verdict.rewrite or _Refusal(problems, told)))
    return outcomes


def held_out_tools(tools: Sequence[ToolSpec], plan: RewritePlan) -> frozenset[str]:
    """The tools that training sees in no version.

    Raises:
        UserError: one that is named is no tool that gets versions, or none would be left for training.
    """
    rng = random.Random(f"held out tools:{plan.seed}")
    names = sorted(tool.name for tool in tools)
    unknown = sorted(set(plan.hold_out) - set(names))
    if unknown:
        raise UserError(
            f"{unknown[0]} cannot be held out: it is no tool that gets versions", fix="name one of the tools"
        )
    # A share of a few tools is one of them at least: what was asked for must not come to nothing.
    count = max(round(plan.hold_out_tools * len(names)), min(1, len(names))) if plan.hold_out_tools else 0
    out = frozenset(rng.sample(names, count)).union(plan.hold_out)
    if names and len(out) == len(names):
        raise UserError("all tools would be held out", fix=_LEAVE_SOME)
    return out


def _versions(
    tool: str, passed: dict[tuple[str, int], ToolRewrite], held_out: frozenset[str], plan: RewritePlan
) -> tuple[ToolRewrite, ...]:
    last_for_training = plan.n - plan.hold_out_versions
    found = (passed.get((tool, version)) for version in range(1, plan.n + 1))
    return tuple(
        replace(rewrite, held_out=tool in held_out or rewrite.version > last_for_training)
        for rewrite in found
        if rewrite is not None
    )
