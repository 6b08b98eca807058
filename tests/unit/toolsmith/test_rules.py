from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tool_specs import tool
from txagent_train.core.records import ToolSpec
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.checks import Kept, draft_problems
from txagent_train.toolsmith.drafts import Draft, Job
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


def drafts(spec: ToolSpec, count: int = 20) -> list[Draft]:
    writer = RuleWriter(Toolbox((spec,)))
    return [writer.draft(Job(spec, version)) for version in range(1, count + 1)]


def test_values_of_the_schema_stay_in_every_text() -> None:
    kind = {
        "type": "string",
        "enum": ["drug_name", "identifier", "drug"],
        "description": "'drug_name', identifier or drug.",
    }
    properties = {"kind": kind, "drug_name": {"description": "If the kind is drug_name."}, "identifier": {}}
    spec = ToolSpec("query_entries", "Query a drug entry by drug_name or 'identifier'.", {"properties": properties})
    for draft in drafts(spec):
        assert "drug_name or 'identifier'" in draft.description and "drug " in draft.description
        assert "'drug_name', identifier or drug" in draft.arguments["kind"].description
        assert draft.arguments["drug_name"].name == "drug_name"
        assert draft.arguments["identifier"].name == "identifier"
    assert len({draft.arguments["kind"].name for draft in drafts(spec)}) > 2


def test_names_and_what_abbreviations_stand_for_stay() -> None:
    text = "Retrieve the drug by National Drug Code (NDC), adverse event (AE) or vitamin A level. From the Drug Bank."
    spec = tool("get_drug_by_code", text, national_drug_code="National Drug Code of the drug.")
    texts = [f"{draft.description} {draft.arguments['national_drug_code'].description}" for draft in drafts(spec)]
    for text in texts:
        assert "National Drug Code (NDC), adverse event (AE) or vitamin A level" in text and "Drug Bank" in text
    assert any("medicine" in text or "remedy" in text for text in texts)
    assert all("drug" in draft.arguments["national_drug_code"].name for draft in drafts(spec))


def test_an_article_goes_with_what_follows_it_and_no_other_letter_changes() -> None:
    spec = tool("get_it", "Look into vitamin A record a, a disease, an entry. A disease is a entry.")
    for draft in drafts(spec):
        assert "vitamin A " in draft.description and "itamin An" not in draft.description
        for wrong in (" an disorder", " a illness", " an medical", " an malady", " an record", " a item", " an result"):
            assert wrong not in draft.description


@pytest.mark.parametrize(
    "description",
    ["Retrieve   by name", "Get \u00a0 by\u2028 z", "Retrieve \t\t from y", "Get\u3000 by x", "Find\n by x", "Get by",
     "Get ", "\x00", "Get\x1b[31m the name by x"],
)  # fmt: skip
def test_white_space_of_any_kind_is_read(description: str) -> None:
    spec = tool("get_name", description, a=description)
    kept = Kept.of(spec)
    for draft in drafts(spec):
        assert not [problem for problem in draft_problems(spec, draft, kept) if problem[0] != "no_description"]


def test_a_second_verb_keeps_the_sentence_whole() -> None:
    spec = tool("get_page_title", "Fetch a page from the web and return the title of it.", url="Address.")
    for draft in drafts(spec):
        assert not draft.description.startswith(("Returns", "Output", "From", "A page", "Gives access", "Looking for"))


def test_what_is_searched_is_not_found_itself() -> None:
    for draft in drafts(tool("search_base", "Search the base for genes.", q="What.")):
        assert not re.search(r"(find|locat|discover|seek)\w* the base", draft.description.lower())


def test_a_sentence_that_leans_on_another_stays_behind_it() -> None:
    text = (
        "Get genes. Returns names of genes. It may be slow. Uses the newest release. Example: BRCA1. Limits are strict."
    )
    orders = set()
    for draft in drafts(tool("get_genes", text)):
        at = [draft.description.index(part) for part in ("names of", "may be slow", "release", "Example", "Limits")]
        assert at[0] < at[1] < min([place for place in at[2:] if place > at[0]], default=10**6)
        assert at[2] < at[3] and not any(at[2] < place < at[3] for place in at)
        orders.add(tuple(sorted(range(5), key=at.__getitem__)))
    assert len(orders) > 2


@pytest.mark.parametrize("schema", [{"propertyNames": {"enum": ["drug_name"]}}, {"patternProperties": {"x": {}}}])
def test_arguments_that_the_schema_binds_keep_their_names(schema: dict[str, object]) -> None:
    spec = ToolSpec("get_dose", "Get the dose of a drug.", {"properties": {"drug_name": {"type": "string"}}} | schema)
    assert {draft.arguments["drug_name"].name for draft in drafts(spec)} == {"drug_name"}
    assert len({draft.name for draft in drafts(spec)}) > 10


def test_the_generic_name_of_a_drug_stays_generic() -> None:
    spec = tool("get_drug_generic_name", "Retrieve the drug's generic name by a brand name.", drug_name="Brand name.")
    assert all("generic" in draft.name for draft in drafts(spec, 60))


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
