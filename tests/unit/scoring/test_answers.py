from __future__ import annotations

import pytest

from txagent_train.scoring.answers import answer_matches, answer_tokens


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("The answer is Hypertension.", "hypertension"),
        ("It treats  Type-2\n diabetes,  among others", "type 2 diabetes"),
        ("Give 500mg twice", "500 mg"),
        ("Give 500 milligrams twice", "500 mg"),
        ("Give 0.5 g twice", "500mg"),
        ("up to 1,000 mg a day", "1000 mg/day"),
        ("0.50 mL", "0.5 ml"),
        ("75 µg", "75 mcg"),
        ("75 μg", "0.075 mg"),
        ("12%", "12 percent"),
        ("5 mg/kg", "5 mg per kg"),
        ("a half-life of 6 hours", "6 h"),
        ("the CYP3A4 enzyme", "CYP3A4"),
        ("Crohn\u2019s disease", "crohn's disease"),
        ("5\u201310 mg", "10 mg"),
        ("\u22125 degrees", "-5"),
        ("Yes, it is: no dose is safe", "yes"),
        ("No.", "No"),
        ("\uff37arfarin", "warfarin"),
        ("about 5 mg.", "5 mg"),
        ("version 2.0.", "2"),
        ("take .5 mg", "0.5 mg"),
        ("is a beta blocker", "A beta blocker"),
        ("vitamin A deficiency", "vitamin a"),
        ("1 tablet twice a day", "twice per day"),
    ],
)
def test_matches(answer: str, gold: str) -> None:
    assert answer_matches(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("15 mg", "5 mg"),
        ("5 mg", "15 mg"),
        ("0.5 mg", "5 mg"),
        ("5 g", "5 mg"),
        ("prehypertension", "hypertension"),
        ("type 1 diabetes", "type 2 diabetes"),
        ("No, not yes", "yes"),
        ("It is unknown", "no"),
        ("CYP2D6", "CYP3A4"),
        ("vitamin K", "vitamin A"),
        ("hepatitis B", "hepatitis A"),
        ("take .5 mg", "5 mg"),
        ("-5 degrees", "5"),
        ("", "warfarin"),
        ("1,0000", "10000"),
    ],
)
def test_does_not_match(answer: str, gold: str) -> None:
    assert not answer_matches(answer, gold)


def test_any_spelling_is_enough() -> None:
    assert answer_matches("acetaminophen", ["paracetamol", "acetaminophen"])
    assert not answer_matches("ibuprofen", ["paracetamol", "acetaminophen"])


def test_an_empty_gold_answer_is_an_error() -> None:
    with pytest.raises(ValueError, match="no word"):
        answer_matches("x", " . ")


def test_tokens() -> None:
    assert answer_tokens("The dose: 2.50 g (max 1,200.0).") == ["dose", "2500", "mg", "max", "1200"]
