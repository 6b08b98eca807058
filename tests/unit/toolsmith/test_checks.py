from __future__ import annotations

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
        ({"name": "get_drug_names_by_storage"}, "name_taken"),
        ({"name": "tool_rag"}, "name_taken"),
        ({"name": "FINISH"}, "name_taken"),
        ({"description": "  "}, "no_description"),
        ({"description": "Retrieve warning information based on the drug name."}, "description_repeated"),
        ({"description": "Warnings as get_warnings_by_drug_name gives them."}, "names_the_original"),
        ({"description": "Warnings for drug_name."}, "names_the_original"),
        ({"arguments": {}}, "arguments_differ"),
        ({"arguments": argument("a") | {"b": ArgumentRewrite("b", "b")}}, "arguments_differ"),
        ({"arguments": argument("drug name")}, "invalid_argument_name"),
        ({"arguments": argument("class")}, "invalid_argument_name"),
        ({"arguments": argument("a", "")}, "no_argument_description"),
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
