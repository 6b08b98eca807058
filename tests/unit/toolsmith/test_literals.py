from __future__ import annotations

from typing import Any

import pytest

from txagent_train.core.records import ToolSpec
from txagent_train.toolsmith.literals import Literals


def literals(description: str, properties: dict[str, Any], **rest: Any) -> Literals:
    return Literals.of(ToolSpec("t", description, {"type": "object", "properties": properties} | rest))


KIND = {"type": "string", "enum": ["object_name", "identifier", "asc"], "default": "object_name"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("By 'object_name' or identifier.", {"object_name", "identifier"}),
        ("input_object_name, identifiers and ascending", set()),
        ("Identifier", set()),
        ("asc.", {"asc"}),
    ],
)
def test_a_value_is_named_as_a_whole(text: str, named: set[str]) -> None:
    assert literals("", {"kind": KIND}).named(text) == named


def test_values_are_those_of_the_whole_schema() -> None:
    found = literals(
        "",
        {
            "a": {"const": "c1", "examples": ["e1", {"k": ["e2"]}], "example": "e3"},
            "b": {"items": {"properties": {"x": {"default": 2.5}, "default": {"enum": ["e4", None, True, ""]}}}},
        },
        default={"a": "d1"},
        anyOf=[{"properties": {"a": {"enum": [7]}}}],
    )
    assert found.values == {"c1", "e1", "e2", "e3", "e4", "2.5", "d1", "7"}


@pytest.mark.parametrize(
    ("value", "text", "is_named"),
    [
        ("in", "found in it", False),
        ("in", "found 'in' it", True),
        (",", "a, b", False),
        (",", "split by ','", True),
        ("M", "M. Smith", False),
        ("M", '"M" or "F"', True),
        (5, "the first 5 of them", True),
        (5, "at 0.5 or 15 or 5.5", False),
        ("text/plain", "as text/plain here", True),
        ("C++", "in C++.", True),
    ],
)
def test_a_value_that_is_no_word_counts_in_quotation_marks(value: Any, text: str, is_named: bool) -> None:
    assert bool(literals("", {"a": {"default": value}}).named(text)) == is_named


def test_a_lost_value_is_found() -> None:
    found = literals("", {"kind": KIND})
    assert found.lost("Options: 'object_name', identifier", "Options: 'input_object_name', ID") == [
        "identifier", "object_name",
    ]  # fmt: skip
    assert found.lost("Options: 'object_name', identifier", "Identifier, or object_name.") == []


@pytest.mark.parametrize(
    ("description", "properties", "kept"),
    [
        ("By 'identifier' or 'x'.", {"kind": KIND, "identifier": {}, "x": {}}, {"identifier"}),
        ("By identifier.", {"kind": KIND, "identifier": {}}, set()),  # the word alone means no argument
        ("By object_name.", {"kind": KIND, "object_name": {}}, {"object_name"}),
        ("By name.", {"kind": KIND, "object_name": {}}, set()),  # no text says it
        ("A query like 'gene_id:7'.", {"gene_id": {}, "other_id": {}}, {"gene_id"}),
        ("See `gene_id`.", {"gene_id": {}}, set()),
        ("", {"gene_id": {}, "q": {"default": "gene_id:7"}}, {"gene_id"}),
        (
            "Pass citations, each with first_page and year.",
            {"first_page": {}, "year": {}, "citations": {"items": {"properties": {"first_page": {}, "year": {}}}}},
            {"first_page"},
        ),
        ("", {"": {}, " ": {}, "a_b": {}}, {"", " "}),
    ],
)
def test_an_argument_whose_name_is_a_literal_keeps_it(
    description: str, properties: dict[str, Any], kept: set[str]
) -> None:
    assert literals(description, properties).kept == kept


def test_all_arguments_keep_their_names_where_the_schema_binds_them() -> None:
    found = literals("", {"a": {}, "b": {}}, propertyNames={"enum": ["a", "b"]})
    assert found.kept == {"a", "b"} and "propertyNames" in found.fixed


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("By National Drug Code (NDC) number.", {"national drug code"}),
        ("Uses the mechanism of action (MOA) of it.", {"mechanism of action"}),
        ("Single-nucleotide polymorphisms (SNPs) of it.", {"single-nucleotide polymorphisms"}),
        ("From Online Mendelian Inheritance in Man.", {"online mendelian inheritance in man"}),
        ("Drug ID of the drug (an ID).", set()),
        ("Drug name (text).", set()),
        ("The drug label (FDA).", set()),
    ],
)
def test_proper_names_are_known(text: str, phrases: set[str]) -> None:
    found = literals(text, {}).phrases
    assert phrases <= found and (phrases or not found)
