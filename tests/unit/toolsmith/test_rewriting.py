from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.drafts import Draft, Job, NoDraft, Written
from txagent_train.toolsmith.embedding import TfidfEmbedder
from txagent_train.toolsmith.rewriting import RewritePlan, Rewriting, held_out_tools, rewrite_toolbox
from txagent_train.toolsmith.rules import RuleWriter


def run(toolbox: Toolbox, plan: RewritePlan, seed: int = 0) -> Rewriting:
    return rewrite_toolbox(toolbox, RuleWriter(toolbox, seed=seed), TfidfEmbedder(toolbox.tools), plan)


def test_every_tool_gets_its_versions(toolbox: Toolbox) -> None:
    done = run(toolbox, RewritePlan(n=20))
    assert not done.failures and done.left_out == ("Finish", "Tool_RAG")
    assert {tool: [item.version for item in items] for tool, items in done.rewrites.by_tool.items()} == {
        tool.name: list(range(1, 21)) for tool in toolbox.tools[:8]
    }
    names = [item.name.casefold() for items in done.rewrites.by_tool.values() for item in items]
    assert len(set(names) | {tool.name.casefold() for tool in toolbox.tools}) == len(names) + len(toolbox.tools)
    done.rewrites.check_fits(toolbox)
    assert done.rewrites.writer == {"name": "rules", "seed": 0, "embedder": "tfidf", "n": 20, "attempts": 12}


def test_equal_seeds_give_equal_files(toolbox: Toolbox) -> None:
    plan = RewritePlan(n=5, hold_out_tools=0.3)
    assert run(toolbox, plan).rewrites == run(toolbox, plan).rewrites
    assert run(toolbox, plan, seed=1).rewrites.by_tool != run(toolbox, plan).rewrites.by_tool


def test_more_versions_leave_the_first_ones_in_place(toolbox: Toolbox) -> None:
    few, many = run(toolbox, RewritePlan(n=3)), run(toolbox, RewritePlan(n=6))
    same = [few.rewrites.by_tool[tool][0] == many.rewrites.by_tool[tool][0] for tool in few.rewrites.by_tool]
    assert sum(same) >= len(same) - 1


def test_the_last_versions_and_a_share_of_the_tools_are_held_out(toolbox: Toolbox) -> None:
    done = run(toolbox, RewritePlan(n=5, hold_out_versions=2, hold_out_tools=0.25))
    assert len(done.rewrites.held_out_tools) == 2
    for tool, items in done.rewrites.by_tool.items():
        kept = [] if tool in done.rewrites.held_out_tools else [1, 2, 3]
        assert [item.version for item in done.rewrites.training(tool)] == kept
        assert len(items) == 5
    others = run(toolbox, RewritePlan(n=5, hold_out_tools=0.25, seed=1)).rewrites.held_out_tools
    assert others != done.rewrites.held_out_tools


def test_a_share_that_is_asked_for_is_one_tool_at_least(toolbox: Toolbox) -> None:
    def held_out(share: float, count: int) -> int:
        return len(held_out_tools(toolbox.tools[:count], RewritePlan(hold_out_tools=share)))

    assert [held_out(0.1, 2), held_out(0.01, 8), held_out(0.5, 8), held_out(0.0, 8)] == [1, 1, 4, 0]
    with pytest.raises(UserError, match="all tools would be held out"):
        held_out(0.1, 1)


@pytest.mark.parametrize(
    "plan", [{"n": 0}, {"n": 2, "hold_out_versions": 2}, {"hold_out_tools": 1.0}, {"hold_out_versions": -1}]
)
def test_a_plan_that_leaves_nothing_is_refused(plan: dict[str, int]) -> None:
    with pytest.raises(UserError):
        RewritePlan(**plan)


class Stubborn:
    """Fails the same version in each attempt, another one in the first only."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._rules = RuleWriter(toolbox)
        self.jobs: list[Job] = []

    def settings(self) -> JsonObject:
        return {"name": "stubborn"}

    def write(self, jobs: Sequence[Job], done: Callable[[int], None]) -> list[Written]:
        self.jobs += jobs
        return [self._one(job) for job in jobs]

    def _one(self, job: Job) -> Written:
        if job.spec.name == "get_storage_by_drug_name" and job.version == 2:
            return NoDraft("timeout", "no answer")
        if job.spec.name == "get_drug_names_by_storage":
            return NoDraft("refused_request", "400", final=True)
        draft = self._rules.draft(job)
        broken = job.version == 1 and job.attempt == 0 and job.spec.name == "get_warnings_by_drug_name"
        return Draft("no name", draft.description, draft.arguments) if broken else draft


def test_what_fails_is_written_again_and_then_reported(toolbox: Toolbox) -> None:
    writer = Stubborn(toolbox)
    done = rewrite_toolbox(toolbox, writer, TfidfEmbedder(toolbox.tools), RewritePlan(n=2, attempts=3))
    again = [job for job in writer.jobs if job.spec.name == "get_warnings_by_drug_name" and job.version == 1]
    assert again[1].attempt == 1 and again[1].rejected == ("invalid_name: no name",)
    tries = [job.attempt for job in writer.jobs if job.spec.name == "get_storage_by_drug_name" and job.version == 2]
    assert tries == [0, 1, 2]
    # What a server says is nothing that the writer could mend, and what is refused for good is not asked for again.
    assert not [job for job in writer.jobs if any("timeout" in reason for reason in job.rejected)]
    assert [job.attempt for job in writer.jobs if job.spec.name == "get_drug_names_by_storage"] == [0, 0]
    report = done.to_json()
    assert {
        "tool": "get_storage_by_drug_name",
        "version": 2,
        "problems": [{"reason": "timeout", "found": "no answer"}],
    } in (report["failures"])
    assert report["failed"] == {"timeout": 1, "refused_request": 2} and report["refused"]["timeout"] == 3
    assert report["versions"] == 13
    assert [item.version for item in done.rewrites.by_tool["get_storage_by_drug_name"]] == [1]


def test_variety_is_measured(toolbox: Toolbox) -> None:
    done = run(toolbox, RewritePlan(n=8))
    assert 0 < done.variety["jaccard"] < 0.6 and done.variety["name_changed"] == 1
    assert done.variety["distinct_names"] == 1 and done.variety["longest_name"] <= 64
    assert run(toolbox, RewritePlan(n=1)).variety == {}


@pytest.mark.slow
def test_the_real_toolbox_is_rewritten_with_all_checks_passing(shared_data: Callable[[str], Path]) -> None:
    toolbox = Toolbox.read(shared_data("tooluniverse_v0") / "tools.json")
    start = time.process_time()
    done = run(toolbox, RewritePlan(n=20, hold_out_versions=2, hold_out_tools=0.1))
    assert time.process_time() - start < 60
    assert not done.failures and done.to_json()["versions"] == 211 * 20
    assert done.variety["jaccard"] < 0.5 and done.variety["argument_names_changed"] > 0.7
    for tool, items in done.rewrites.by_tool.items():
        for item in items:
            item.spec(replace(toolbox.by_name[tool]))
    assert all("generic" in item.name for item in done.rewrites.by_tool["get_drug_generic_name"])


@pytest.mark.slow
def test_the_real_tools_with_long_descriptions_vary_and_lose_no_value(shared_data: Callable[[str], Path]) -> None:
    toolbox = Toolbox.read(shared_data("tooluniverse_v1") / "specs.json")
    done = run(toolbox, RewritePlan(n=20))
    assert not done.failures and done.variety["jaccard"] < 0.74
    for tool, items in done.rewrites.by_tool.items():
        for old, schema in toolbox.by_name[tool].parameters["properties"].items():
            text = schema.get("description") or ""
            named = [
                value for value in schema.get("enum") or () if re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text)
            ]
            for item in items:
                assert all(str(value) in item.arguments[old].description for value in named)


@pytest.mark.parametrize(
    "name", [pytest.param("tooluniverse_v1/specs.json", marks=pytest.mark.slow), "genegpt/tools.json"]
)
def test_other_toolboxes_are_rewritten_too(shared_data: Callable[[str], Path], name: str) -> None:
    toolbox = Toolbox.read(shared_data(name.split("/")[0]) / name.split("/")[1])
    done = run(toolbox, RewritePlan(n=20))
    assert not done.failures
    assert len(done.rewrites.by_tool) == len(toolbox.tools)
