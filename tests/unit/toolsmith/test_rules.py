from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tool_specs import tool
from txagent_train.core.records import ToolSpec
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.checks import Kept, draft_problems
from txagent_train.toolsmith.drafts import Job
from txagent_train.toolsmith.lexicon import GENERIC, SYNONYMS
from txagent_train.toolsmith.nameparts import NameParts, described_verb
from txagent_train.toolsmith.rules import RuleWriter
from txagent_train.toolsmith.synonyms import Vocabulary
from txagent_train.toolsmith.words import content_words


def test_a_job_gives_the_same_text_whatever_else_is_written(toolbox: Toolbox) -> None:
    jobs = [Job(spec, version) for spec in toolbox.tools[:8] for version in (1, 2, 3)]
    together = RuleWriter(toolbox, seed=4).write(jobs, lambda n: None)
    alone = [RuleWriter(toolbox, seed=4).draft(job) for job in reversed(jobs)]
    assert together == alone[::-1]
    assert RuleWriter(toolbox, seed=5).write(jobs, lambda n: None) != together


def test_another_attempt_gives_another_text(toolbox: Toolbox) -> None:
    writer, spec = RuleWriter(toolbox), toolbox.tools[0]
    drafts = [writer.draft(Job(spec, 1, attempt)) for attempt in range(8)]
    assert len({draft.description for draft in drafts}) > 4 and len({draft.name for draft in drafts}) > 4


def test_no_version_takes_a_word_that_is_anothers(toolbox: Toolbox) -> None:
    words = Vocabulary((*toolbox.tools, tool("alert_list", "List every medicine alert.", day="The day.")))
    assert not words.allows("get_warnings_by_drug_name", "alert")
    assert words.allows("alert_list", "alert")
    assert words.allows("get_warnings_by_drug_name", "advisory")
    assert words.allows("get_warnings_by_drug_name", "details")  # tells no tool from another


def test_words_of_other_tools_are_in_no_draft(toolbox: Toolbox) -> None:
    # A tool for each synonym of "drug" and "warning": none of them may stand for those words any more.
    others = [
        tool(f"count_{phrase.replace(' ', '_')}", f"Count each {phrase}.")
        for key in ("drug", "warning")
        for phrase in SYNONYMS[key]
    ]
    writer = RuleWriter(Toolbox((*toolbox.tools, *others)))
    known = {word for phrase in (*SYNONYMS["drug"], *SYNONYMS["warning"]) for word in content_words(phrase)} - GENERIC
    for version in range(30):
        draft = writer.draft(Job(toolbox.tools[0], version))
        assert not known & content_words(f"{draft.name} {draft.description}")


def test_values_in_brackets_and_quotes_stay(toolbox: Toolbox) -> None:
    spec = tool(
        "find_entities", "Find drug entries (drug, disease) of type 'drug' or `disease`.", kind="One of (drug, target)."
    )
    writer = RuleWriter(Toolbox((*toolbox.tools, spec)))
    for version in range(30):
        draft = writer.draft(Job(spec, version))
        assert all(text in draft.description for text in ("(drug, disease)", "'drug'", "`disease`"))
        assert "(drug, target)" in draft.arguments["kind"].description


def test_a_mention_of_an_argument_follows_its_name(toolbox: Toolbox) -> None:
    spec = tool("find_it", "Find it by drugId, or by `limit`.", drugId="The drugId.", limit="See drugId and 'limit'.")
    writer = RuleWriter(Toolbox((*toolbox.tools, spec)))
    for version in range(30):
        draft = writer.draft(Job(spec, version))
        new = {old: argument.name for old, argument in draft.arguments.items()}
        assert new["drugId"] in draft.description and f"`{new['limit']}`" in draft.description
        assert f"'{new['limit']}'" in draft.arguments["limit"].description


@pytest.mark.parametrize(
    "spec",
    [
        ToolSpec("x", "", {}),
        ToolSpec("get", "", {"type": "object", "properties": {}}),
        ToolSpec("esearch", "Search", {"properties": {"class": {"type": ["string", "null"]}, "p-p": {}, "a b": True}}),
        ToolSpec("7zip_" + "very_long_name_" * 12 + "by_key", "Überprüft {braces} and %s.\n- a list\n- more", {}),
        ToolSpec("get_" + "x" * 100, "A." * 500, {"properties": {"n" * 90: {"type": "null"}}, "required": ["n" * 90]}),
        ToolSpec("日本", "日本語。", {"properties": {"薬": {"description": "名前"}}}),
    ],
)  # fmt: skip
def test_odd_tools_are_written_too(spec: ToolSpec) -> None:
    writer = RuleWriter(Toolbox((spec,)))
    for version in range(1, 21):
        draft = writer.draft(Job(spec, version))
        wrong = [problem for problem in draft_problems(spec, draft, Kept.of(spec)) if problem[0] != "no_description"]
        assert not wrong, wrong


def test_names_are_taken_apart_by_what_their_words_do() -> None:
    spec = tool("FDA_get_drug_names_by_alarm_type", "Retrieve drug names.")
    assert NameParts.of(spec) == NameParts(("fda",), "retrieve", ("drug", "names"), ("alarm", "type"))
    assert NameParts.of(tool("target_disease_evidence", "Explore evidence.")).verb_class == "search"
    assert described_verb("Report of an earlier job") == "" and described_verb("Retrieves jobs") == "retrieve"


def test_the_real_tools_with_the_longest_names_fit(shared_data: Callable[[str], Path]) -> None:
    toolbox = Toolbox.read(shared_data("tooluniverse_v0") / "tools.json")
    writer = RuleWriter(toolbox)
    for spec in (item for item in toolbox.tools if len(item.name) > 64):
        drafts = [writer.draft(Job(spec, version)) for version in range(1, 21)]
        assert all(len(draft.name) <= 64 for draft in drafts)
        assert not [problem for draft in drafts for problem in draft_problems(spec, draft, Kept.of(spec))]
