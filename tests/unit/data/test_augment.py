from __future__ import annotations

import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.augmentation import GET_DOSE, TOOLBOX, TOOLS, augmenter, rewrite_set, tool, traces
from txagent_train.config.sft import AugmentSection, DataSection
from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, Step, ToolCall, ToolResult, Trace, UserMessage
from txagent_train.data.augment import Augmenter, held_out_tools
from txagent_train.data.candidates import Neighbours
from txagent_train.data.checks import check_calls
from txagent_train.data.decompose import decompose
from txagent_train.data.mentions import (
    count_mentions,
    is_identifier,
    joined,
    model_texts,
    prompt_texts,
    spec_text,
    strings,
    told_about_tools,
    without_keys,
)
from txagent_train.data.rewrites import RewriteSet, ToolRewrite
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.variation import Variation
from txagent_train.data.virtual import RAG_TOOL
from txagent_train.sft.prepare import AUGMENTED

TRACE = Trace(
    "t",
    (
        UserMessage("What is the dose?"),
        Step(
            "I call get_dose.",
            calls=(ToolCall("get_dose", {"drug_name": "a", "limit": 1}),),
            results=(ToolResult(0, 1),),
        ),
        Step("Known."),
    ),
    answer="One.",
    initial_tools=(GET_DOSE, RAG_TOOL),
)
EVERYTHING = {"n_random": 2, "n_hard": 1, "virtual_share": 0.5, "originals": True}


@settings(max_examples=150, deadline=None)
@given(trace=traces(), epoch=st.integers(0, 3))
def test_undoing_gives_the_original(trace: Trace, epoch: int) -> None:
    made = augmenter().augment(trace, seed=0, epoch=epoch)
    back = made.undo()
    assert json.dumps(trace_to_json(back)) == json.dumps(trace_to_json(trace))
    assert made.trace == trace or made.renamed


@settings(max_examples=150, deadline=None)
@given(trace=traces(), epoch=st.integers(0, 3))
def test_no_original_name_of_a_renamed_tool_is_left(trace: Trace, epoch: int) -> None:
    made = augmenter(**EVERYTHING).augment(trace, seed=0, epoch=epoch)
    whole = joined(strings(trace_to_json(replace(made.trace, metadata={"s": made.trace.metadata["summaries"]}))))
    whole = whole.replace("v1-get_dose", "")  # a tool of its own, which keeps its name here or lost it
    told = (*model_texts(made.trace), *told_about_tools(made.trace), *prompt_texts(made.trace))
    words = joined((*told, *map(spec_text, made.trace.tools())))
    for old in made.renamed:
        if is_identifier(old):
            assert not count_mentions(whole, old, quoted=False), old
        else:  # in data, a word is a word
            assert not count_mentions(words, old, quoted=True), old


@settings(max_examples=150, deadline=None)
@given(trace=traces(), epoch=st.integers(0, 3))
def test_each_call_names_one_tool_that_its_step_sees_and_fits_its_schema(trace: Trace, epoch: int) -> None:
    check_calls(trace)
    made = augmenter(**EVERYTHING).augment(trace, seed=0, epoch=epoch)
    check_calls(made.trace)
    assert made.counts.keys() <= AUGMENTED.keys(), "each count has words in the reports"
    for example in decompose(made.trace, seed=0, epoch=epoch):
        seen = Counter(spec.name for spec in example.tools)
        assert set(seen.values()) <= {1}
        assert all(seen[call.name] == 1 for call in example.target.calls)


@settings(max_examples=50, deadline=None)
@given(trace=traces())
def test_the_same_draw_gives_the_same_trace_in_any_process(trace: Trace) -> None:
    one = augmenter(**EVERYTHING)
    other = pickle.loads(pickle.dumps(one))
    other.augment(TRACE, seed=0, epoch=0)  # what was done before does not matter
    assert one.augment(trace, seed=5, epoch=1).trace == other.augment(trace, seed=5, epoch=1).trace


@settings(max_examples=50, deadline=None)
@given(trace=traces())
def test_without_a_share_nothing_changes(trace: Trace) -> None:
    made = augmenter(**EVERYTHING, share=0.0).augment(trace, seed=0, epoch=0)
    assert made.trace is trace and not made.renamed and made.counts == {"traces_as_recorded": 1}


def test_epochs_and_seeds_show_other_versions() -> None:
    one = augmenter(**EVERYTHING)
    ways = {(seed, epoch): one.augment(TRACE, seed=seed, epoch=epoch) for seed in range(2) for epoch in range(12)}
    names = {made.renamed.get("get_dose", "get_dose") for made in ways.values()}
    assert names == {"get_dose", "find_strength", "find_strength_2"}, "held-out versions are never shown"
    assert len({json.dumps(trace_to_json(made.trace)) for made in ways.values()}) > 12


def test_a_share_of_the_traces_is_augmented() -> None:
    one = augmenter(share=0.25)
    made = [one.augment(replace(TRACE, id=f"t{number}"), seed=0, epoch=0) for number in range(400)]
    assert 70 < sum(bool(item.renamed) for item in made) < 130
    counts = sum((item.counts for item in made), Counter[str]())
    assert counts["traces_augmented"] + counts["traces_as_recorded"] == 400


def test_the_right_tool_is_anywhere_among_the_candidates() -> None:
    """Chi-squared over 10,000 draws: five places, 4 degrees of freedom, 18.5 has a probability of 0.001."""
    one = augmenter(n_random=2, n_hard=1, originals=True)
    places: Counter[int] = Counter()
    for number in range(10_000):
        made = one.augment(replace(TRACE, id=f"t{number}"), seed=3, epoch=0)
        first = next(decompose(made.trace, seed=3, epoch=0))
        places[[spec.name for spec in first.tools].index(first.target.calls[0].name)] += 1
    assert sorted(places) == [0, 1, 2, 3, 4]
    assert sum((count - 2000) ** 2 / 2000 for count in places.values()) < 18.5


def test_chat_stays_as_it_is() -> None:
    chat = Trace("c", (UserMessage("Hello, get_dose?"), Step("Hi.")))
    assert augmenter(**EVERYTHING).augment(chat, seed=0, epoch=0).trace is chat


def test_a_call_to_a_tool_in_no_toolbox_is_told_by_name_where_it_is_trained_on() -> None:
    call = Step("x", calls=(ToolCall("none_such", {}),), results=(ToolResult(0, "error", True),))
    trace = replace(TRACE, turns=(TRACE.turns[0], replace(call, train=False), *TRACE.turns[1:]))
    one = augmenter()
    one.check_known(trace)
    with pytest.raises(DataError, match=r"trace t, step 0: the call names none_such") as caught:
        one.check_known(replace(TRACE, turns=(TRACE.turns[0], call, *TRACE.turns[1:])))
    assert caught.value.reason == "tool_not_in_toolbox"


def test_held_out_tools_are_neither_used_nor_shown() -> None:
    one = augmenter(held_out=frozenset({"checkPair"}), n_random=4)
    shown = replace(TRACE, initial_tools=(*TRACE.initial_tools, TOOLS[4]))
    one.check_shown(shown)
    made = one.augment(shown, seed=0, epoch=0)
    assert made.counts["tools_hidden"] == 1 and made.counts["distractors"] == 4
    originals = {spec.name for spec in made.undo().initial_tools}
    assert originals == {spec.name for spec in (*TOOLS, RAG_TOOL)} - {"checkPair"}
    used = Step(calls=(ToolCall("checkPair", {"drugA": "a", "drugB": "b"}),), results=(ToolResult(0, 1),))
    with pytest.raises(DataError, match="the trace uses checkPair, which is held out") as caught:
        one.check_shown(replace(shown, turns=(shown.turns[0], used, *shown.turns[1:])))
    assert caught.value.reason == "held_out_tool" and caught.value.step == 0


HELD_OUT = frozenset({"get_dose_form", "v1-get_dose", "search"})


@settings(max_examples=200, deadline=None)
@given(trace=traces(), epoch=st.integers(0, 3))
def test_no_held_out_tool_is_named_in_what_training_shows(trace: Trace, epoch: int) -> None:
    one = augmenter(held_out=HELD_OUT, **EVERYTHING)
    try:
        one.check_shown(trace)
    except DataError as error:
        assert error.reason == "held_out_tool"
        whole = joined(strings(trace_to_json(replace(trace, metadata={"s": trace.metadata["summaries"]}))))
        assert any(name in whole for name in HELD_OUT)
        return
    made = one.augment(trace, seed=0, epoch=epoch).trace
    check_calls(made)
    assert not HELD_OUT & {spec.name for spec in made.tools()}
    whole = json.dumps(trace_to_json(replace(made, metadata={"s": made.metadata["summaries"]})))
    for name in HELD_OUT - {"search"}:
        assert not count_mentions(whole, name, quoted=False, any_case=True)
    assert '"search"' not in without_keys(whole) and "`search`" not in whole


LIKES = tool("likes", "Like checkPair, but for one drug.", drug_name="string")


def _naming(*versions: ToolRewrite, **settings: Any) -> Augmenter:
    """An augmenter over tools of which one is held out, and another one names it."""
    toolbox = Toolbox((GET_DOSE, TOOLS[4], LIKES, replace(RAG_TOOL, description="Not checkPair.")))
    rewrites = RewriteSet(toolbox.hash, frozenset({"checkPair"}), {"get_dose": versions} if versions else {})
    section = AugmentSection.model_validate({"toolbox": "t", "originals": False, **settings})
    return Augmenter(toolbox, rewrites, Neighbours(), section, (held_out_tools(rewrites),))


def test_what_names_a_held_out_tool_is_not_chosen() -> None:
    version = ToolRewrite("get_dose", 1, "dose_of", "Unlike checkPair, the dose.", {})
    made = _naming(version, n_random=9, virtual_share=1.0).augment(
        replace(TRACE, initial_tools=(GET_DOSE,)), seed=0, epoch=0
    )
    assert made.counts["virtual_calls"] and not made.renamed and made.counts["kept_no_free_version"]
    assert not made.counts["distractors"]
    assert "checkPair" not in json.dumps(trace_to_json(made.trace))


def test_general_data_names_no_held_out_tool() -> None:
    variation = Variation(DataSection.model_validate({"sources": [{"path": "x"}]}), _naming(), 0)
    chat = Trace("c", (UserMessage("What is it?"), Step("A thing.")))
    variation.check(chat)
    for turns in ((UserMessage("What is checkPair?"), Step("A tool.")), (UserMessage("?"), Step("CheckPair."))):
        with pytest.raises(DataError) as caught:
            variation.check(replace(chat, turns=turns))
        assert variation.drops(caught.value.reason)


def _files(folder: Path) -> AugmentSection:
    TOOLBOX.write(folder / "toolbox.json")
    rewrite_set(held_out_tools=frozenset({"search"})).write(folder / "rewrites.jsonl")
    near = {"toolbox_hash": TOOLBOX.hash, "neighbours": {"get_dose": ["get_dose_form"]}}
    (folder / "near.json").write_text(json.dumps(near))
    names = {"toolbox": "toolbox.json", "rewrites": "rewrites.jsonl", "neighbours": "near.json"}
    return AugmentSection.model_validate({key: str(folder / name) for key, name in names.items()} | {"n_hard": 1})


def test_the_files_of_a_recipe(tmp_path: Path) -> None:
    section = _files(tmp_path)
    one = Augmenter.of(section)
    made = one.augment(TRACE, seed=0, epoch=0)
    assert [spec.name for spec in made.undo().initial_tools] == ["get_dose", TOOL_RAG, "get_dose_form"]
    assert [len(item.names) for item in one.withheld] == [1, 0]
    assert len(Augmenter.of(section, tool_fraction=0.5).withheld[1].names) == 3
    (tmp_path / "near.json").write_text(json.dumps({"toolbox_hash": TOOLBOX.hash, "neighbours": {}}))
    assert Augmenter.of(section).fingerprint != one.fingerprint


@pytest.mark.parametrize("name", ["rewrites.jsonl", "near.json"])
def test_files_of_another_toolbox_are_refused(tmp_path: Path, name: str) -> None:
    section = _files(tmp_path)
    Toolbox(TOOLBOX.tools[:-1]).write(tmp_path / "toolbox.json", overwrite=True)
    if name == "near.json":
        section = section.model_copy(update={"rewrites": None})
    with pytest.raises(DataError, match=rf"{name}: .*another toolbox") as caught:
        Augmenter.of(section)
    assert caught.value.reason == "other_toolbox"
