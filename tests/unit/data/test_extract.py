from __future__ import annotations

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from tests.support.traces import json_values, texts
from txagent_train.data.extract import SUMMARY_CHARACTERS, extract

LABEL = {
    "meta": {"disclaimer": "Do not rely on openFDA to make decisions.", "total": 1},
    "results": [
        {
            "openfda": {"brand_name": ["Coumadin", "Jantoven"], "route": ["ORAL"]},
            "dosage": "Take once a day. The dose of warfarin in the elderly is 5 mg or less. Swallow it whole.",
            "storage": "Store at 20 degrees.",
        }
    ],
}


def test_the_leaf_that_was_asked_for_is_kept_under_its_key() -> None:
    summary = extract(LABEL, "Which dose of warfarin for the elderly?", limit=80)
    assert summary == "dosage: The dose of warfarin in the elderly is 5 mg or less."


def test_values_of_one_key_stand_together_in_the_order_of_the_result() -> None:
    assert extract({"openfda": {"brand_name": ["B", "A"], "n": None}, "total": 2}, "") == (
        "openfda.brand_name: B, A; total: 2"
    )


def test_a_word_that_few_sentences_hold_counts_more() -> None:
    text = "Warfarin is a drug. Warfarin is old. Warfarin was new. The half-life is 40 hours. Warfarin is cheap."
    assert extract(text, "half-life of warfarin", limit=30) == "The half-life is 40 hours."


def test_what_was_used_next_counts_more_than_what_repeats_the_question() -> None:
    result = {"count": "2", "idlist": ["616201", "609168"], "translation": "chronic[All] AND dysrhythmia[All]"}
    summary = extract(result, "chronic dysrhythmia", "616201,609168")
    assert summary == "idlist: 616201, 609168"


def test_json_in_a_text_is_read_as_json() -> None:
    assert extract(json.dumps({"dose": 5, "unit": "mg"}), "") == "dose: 5; unit: mg"
    assert extract("[not json", "") == "[not json"


def test_a_long_sentence_is_cut_and_says_so() -> None:
    summary = extract("word " * 1000, "word")
    assert len(summary) <= SUMMARY_CHARACTERS and summary.endswith("…")


def test_nesting_deeper_than_python_calls() -> None:
    deep: object = "bottom"
    for _ in range(100):
        deep = [deep]
    for _ in range(100):
        deep = {"k": deep}
    assert extract(deep, "") == "k.k: bottom"  # type: ignore[arg-type]


def test_a_large_result_takes_time_in_proportion() -> None:
    content = [{"name": f"drug {number}", "text": "a b c. " * 20} for number in range(10_000)]
    started = time.perf_counter()
    assert extract(content, "drug 77") == "name: drug 77"
    assert time.perf_counter() - started < 20


@given(st.one_of(json_values, texts), texts, st.integers(20, 300))
def test_never_longer_than_the_result_or_the_limit(content: object, about: str, limit: int) -> None:
    summary = extract(content, about, limit=limit)  # type: ignore[arg-type]
    original = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    assert len(summary) <= min(limit, len(original))
    assert summary == extract(content, about, limit=limit)  # type: ignore[arg-type]
