from __future__ import annotations

import json
from dataclasses import replace

import pytest

from txagent_train.core.records import ToolSpec
from txagent_train.data.rewrites import ArgumentRewrite
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.checks import Checker, Kept, draft_problems
from txagent_train.toolsmith.drafts import Draft, Job
from txagent_train.toolsmith.embedding import TfidfEmbedder

GOOD = Draft(
    "warning_lookup_for_drug",
    "Look up the warning information of one drug.",
    {"drug_name": ArgumentRewrite("name_of_drug", "Name of the drug.")},
)


def checker(toolbox: Toolbox) -> Checker:
    return Checker(toolbox, TfidfEmbedder(toolbox.tools))


def reasons(toolbox: Toolbox, draft: Draft) -> list[str]:
    [verdict] = checker(toolbox).check([(Job(toolbox.tools[0], 1), draft)])
    assert (verdict.rewrite is None) == bool(verdict.problems)
    return [reason for reason, _ in verdict.problems]


def argument(name: str, description: str = "Name of the drug.") -> dict[str, ArgumentRewrite]:
    return {"drug_name": ArgumentRewrite(name, description)}


def test_a_good_version_passes(toolbox: Toolbox) -> None:
    assert reasons(toolbox, GOOD) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "warning lookup"}, "invalid_name"),
        ({"name": "w" * 65}, "invalid_name"),
        ({"name": "get_drug_names_by_warnings"}, "name_taken"),
        ({"name": "GET_warnings_BY_drug_name"}, "name_taken"),
        ({"description": "  "}, "no_description"),
        ({"description": "Retrieve warning information based on the drug name."}, "description_repeated"),
        ({"description": "Warnings as get_warnings_by_drug_name gives them."}, "names_the_original"),
        ({"description": "Warnings for drug_name."}, "names_the_original"),
        ({"arguments": {}}, "arguments_differ"),
        ({"arguments": argument("a") | {"b": ArgumentRewrite("b", "b")}}, "arguments_differ"),
        ({"arguments": argument("drug name")}, "invalid_argument_name"),
        ({"arguments": argument("class")}, "invalid_argument_name"),
        ({"arguments": argument("a", "")}, "no_argument_description"),
        ({"name": "drug_information_lookup"}, "name_lost_words"),
        ({"description": "Warnings of the drug Drug that is named."}, "word_doubled"),
        ({"arguments": argument("a", "The given given name.")}, "word_doubled"),
        ({"description": "Warnings of a drug.\x00"}, "unprintable_text"),
        ({"description": "Warnings of a drug. \ud83d"}, "unprintable_text"),
        ({"name": "warning_lookup_for_drug\ud83d"}, "unprintable_text"),
        ({"arguments": argument("a", "\x1b[31mThe drug.")}, "unprintable_text"),
        (
            {
                "description": "Retrieve drug names by the warning information that is given.",
                "arguments": argument("warning_text", "The warning text to look for."),
            },
            "closer_to_another_tool",
        ),
    ],
)
def test_what_is_wrong_has_its_reason(toolbox: Toolbox, change: dict[str, object], reason: str) -> None:
    assert reasons(toolbox, replace(GOOD, **change)) == [reason]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tool_rag", "FINISH"])
def test_the_names_of_the_loop_are_taken(toolbox: Toolbox, name: str) -> None:
    assert "name_taken" in reasons(toolbox, replace(GOOD, name=name))


def test_near_duplicates_are_told_apart_by_direction(toolbox: Toolbox) -> None:
    """The words are the same; which of them goes in and which comes out is not."""
    embedder = TfidfEmbedder(toolbox.tools)
    near = embedder.embed(toolbox.tools) @ embedder.embed(toolbox.tools).T
    assert (near.argmax(axis=1) == range(len(toolbox.tools))).all()
    forward, backward = toolbox.tools[0], toolbox.tools[1]
    swapped = Draft(
        "drug_names_from_warning_facts", "Find drug names from warning facts.",
        {"drug_name": ArgumentRewrite("warning_facts", "Warning text to look for.")},
    )  # fmt: skip
    [verdict] = checker(toolbox).check([(Job(forward, 1), swapped)])
    assert ("closer_to_another_tool", backward.name) in verdict.problems


def test_of_two_versions_that_clash_the_first_passes(toolbox: Toolbox) -> None:
    job = Job(toolbox.tools[0], 1)
    other = replace(GOOD, description="One drug in, its warning information out.")
    same_text = replace(GOOD, name="warnings_of_drug")
    found = checker(toolbox).check(
        [(job, GOOD), (replace(job, version=2), other), (replace(job, version=3), same_text)]
    )
    assert [verdict.problems for verdict in found] == [
        (),
        (("name_taken", GOOD.name),),
        (("description_repeated", GOOD.description),),
    ]


def test_a_version_that_failed_takes_no_name(toolbox: Toolbox) -> None:
    job, checks = Job(toolbox.tools[0], 1), checker(toolbox)
    [failed] = checks.check([(job, replace(GOOD, description=""))])
    [passed] = checks.check([(job, GOOD)])
    assert failed.problems and not passed.problems


def test_names_are_unique_over_all_tools(toolbox: Toolbox) -> None:
    drafts = [
        (Job(toolbox.tools[0], 1), GOOD),
        (Job(toolbox.tools[2], 1), replace(GOOD, description="Storage information of a drug.")),
    ]
    assert [reason for reason, _ in checker(toolbox).check(drafts)[1].problems] == ["name_taken"]


def test_tools_that_nothing_tells_apart_pass() -> None:
    twins = Toolbox(
        (ToolSpec("a_tool", "Same.", {}), ToolSpec("b_tool", "Same.", {}), ToolSpec("c", "Other thing.", {}))
    )
    [verdict] = checker(twins).check([(Job(twins.tools[1], 1), Draft("other_name", "Same thing?", {}))])
    assert not [problem for problem in verdict.problems if problem[1] == "a_tool"]


def test_an_argument_takes_no_name_of_another() -> None:
    spec = ToolSpec("t", "T.", {"properties": {"from": {"type": "string"}, "to": {"type": "string"}}})

    def found(first: str, second: str) -> list[str]:
        arguments = {"from": ArgumentRewrite(first, ""), "to": ArgumentRewrite(second, "")}
        return [reason for reason, _ in draft_problems(spec, Draft("u", "U.", arguments), Kept.of(spec))]

    assert found("start", "end") == []
    assert found("from", "end") == []  # an odd name may stay
    assert set(found("to", "from")) == {"argument_name_taken", "invalid_argument_name"}
    assert "argument_name_taken" in found("same", "Same")


KIND = {"type": "string", "description": "One of 'object_name' or identifier.", "enum": ["object_name", "identifier"]}
QUERY = ToolSpec(
    "query_objects",
    "Query objects by identifier; see `kind`.",
    {
        "type": "object",
        "properties": {"kind": KIND, "object_name": {"description": "Needed where kind is object_name."}, "n": {}},
    },
)


def query_problems(description: str, kind: str, *, object_name: str = "object_name", n: str = "m") -> set[str]:
    arguments = {
        "kind": ArgumentRewrite("sort", kind),
        "object_name": ArgumentRewrite(object_name, "Needed where sort is object_name."),
        "n": ArgumentRewrite(n, ""),
    }
    found = draft_problems(QUERY, Draft("objects_lookup", description, arguments), Kept.of(QUERY))
    return {f"{reason}: {what}" for reason, what in found}


def test_a_version_names_the_values_that_the_original_names() -> None:
    sound = "Objects by identifier; see `sort`."
    assert query_problems(sound, "'object_name' or identifier") == set()
    assert query_problems(sound, "'name_of_object' or identifier") == {"value_lost: object_name"}
    assert query_problems(sound, "'object_name' or ID") == {"value_lost: identifier"}
    assert query_problems("Objects by ID; see `sort`.", "'object_name' or identifier") == {"value_lost: identifier"}


def test_an_argument_that_is_named_like_a_value_keeps_its_name() -> None:
    found = query_problems("Objects by identifier.", "'object_name' or identifier", object_name="name_of_object")
    assert found == {"argument_name_fixed: object_name"}


BOUND = {"type": "object", "properties": {"drug": {"type": "string"}}, "propertyNames": {"enum": ["drug"]}}


def test_a_renaming_that_breaks_calls_is_refused() -> None:
    spec = ToolSpec("get_dose", "Dose.", BOUND)
    kept = Kept.of(spec)
    draft = Draft("dose_lookup", "A dose.", {"drug": ArgumentRewrite("remedy", "")})
    assert {reason for reason, _ in draft_problems(spec, draft, kept)} == {"argument_name_fixed", "schema_changed"}
    same = replace(draft, arguments={"drug": ArgumentRewrite("drug", "")})
    assert not list(draft_problems(spec, same, kept))


def test_calls_are_tried_whatever_is_known_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line of defence: were a keyword not known to bind names, sample calls would still show it."""
    monkeypatch.setattr("txagent_train.data.schema_names._FIXING", ())
    monkeypatch.setattr("txagent_train.data.schema_names._PLAIN", frozenset({*BOUND, "propertyNames", "enum"}))
    spec = ToolSpec("get_dose", "Dose.", BOUND)
    draft = Draft("dose_lookup", "A dose.", {"drug": ArgumentRewrite("remedy", "")})
    [(reason, found)] = draft_problems(spec, draft, Kept.of(spec))
    assert reason == "call_breaks" and json.loads(found) == {"drug": "a"}
