from __future__ import annotations

import re
from dataclasses import fields

from txagent_train.demo.formulary import Drug, formulary_notice, join_words, load_formulary, split_drugs

LONGEST_FIELD = 15  # words


def test_there_are_enough_drugs_and_every_name_is_its_own() -> None:
    drugs = load_formulary()
    names = [name.casefold() for drug in drugs for name in drug.names]
    assert len(drugs) >= 64
    assert len(set(names)) == len(names)
    assert formulary_notice() == "for demonstration, not for medical use"


def test_fields_are_short_phrases() -> None:
    for drug in load_formulary():
        for item in fields(Drug):
            text = drug.text(item.name)
            assert text == text.strip() and not text.endswith("."), (drug.generic_name, item.name)
            assert 0 < len(text.split()) <= LONGEST_FIELD, (drug.generic_name, item.name)


def test_no_field_names_another_drug_of_the_formulary() -> None:
    drugs = load_formulary()
    for drug in drugs:
        text = " | ".join(drug.text(item.name) for item in fields(Drug))
        others = [name for other in drugs if other is not drug for name in other.names]
        pattern = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in others), re.IGNORECASE)
        assert not pattern.search(text), drug.generic_name


def test_the_split_is_disjoint_complete_and_decided_by_the_seed() -> None:
    train, held_out = split_drugs(0)
    assert len(held_out) >= 16 and len(train) == 3 * len(held_out)
    assert sorted((*train, *held_out), key=lambda drug: drug.generic_name) == list(load_formulary())
    assert split_drugs(0) == (train, held_out)
    assert split_drugs(1) != (train, held_out)


def test_a_missing_boxed_warning_is_said_in_words() -> None:
    by_name = {drug.generic_name: drug for drug in load_formulary()}
    assert by_name["cetirizine"].text("boxed_warning") == "no boxed warning"
    assert by_name["cetirizine"].entries("boxed_warning") == ()
    assert by_name["losartan"].text("boxed_warning") == "fetal toxicity"


def test_an_interaction_is_found_by_drug_class() -> None:
    by_name = {drug.generic_name: drug for drug in load_formulary()}
    assert by_name["lisinopril"].interaction_with(by_name["ibuprofen"]) == "NSAIDs"
    assert by_name["lisinopril"].interaction_with(by_name["cetirizine"]) is None


def test_join_words() -> None:
    assert [join_words(list(letters)) for letters in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
