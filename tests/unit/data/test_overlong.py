"""Which results give way, in which order, and that the sample then fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tokenizers import small_llama3
from tests.support.traces import traces
from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, Step, StepExample, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.decompose import decompose
from txagent_train.data.overlong import Fitter, bucket
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import WireFormat

LONG = "The dose is 5 mg. " + "Nothing of interest is said here at all. " * 30
TOOL = ToolSpec("get_dose", "The dose.", {"type": "object", "properties": {}})


def _step(result: ToolResult, name: str = "get_dose", **fields: object) -> Step:
    return Step(thought="Look.", calls=(ToolCall(name, {"drug": "x"}),), results=(result,), **fields)  # type: ignore[arg-type]


def _trace(*steps: Step, **fields: object) -> Trace:
    turns = (UserMessage("Which dose?"), *steps, Step())
    return Trace(id="t", turns=turns, answer="5 mg", initial_tools=(TOOL,), **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(small_llama3(), WireFormat("llama3", "txagent", "call"))


def _last(trace: Trace) -> StepExample:
    return list(decompose(trace))[-1]


def _length(renderer: Renderer, trace: Trace) -> int:
    return len(renderer.render(_last(trace)).input_ids)


def _text(renderer: Renderer, ids: tuple[int, ...]) -> str:
    return renderer.tokenizer.decode(list(ids))


def test_a_sample_that_fits_is_what_it_was(renderer: Renderer) -> None:
    example = _last(_trace(_step(ToolResult(0, LONG))))
    plain = renderer.render(example)
    fitter = Fitter(renderer.render, len(plain.input_ids))
    assert fitter.fit(example) == (plain, None)
    assert fitter.report.summarized == 0 and not fitter.report.lengths


def test_the_earliest_results_give_way_and_no_more_than_needed(renderer: Renderer) -> None:
    trace = _trace(*[_step(ToolResult(0, LONG)) for _ in range(4)])
    whole = _length(renderer, trace)
    fitter = Fitter(renderer.render, whole - 1)
    rendered, made = fitter.fit(_last(trace))
    assert made is not None and made.steps == (0,) and (made.before, made.after) == (whole, len(rendered.input_ids))
    text = _text(renderer, rendered.input_ids)
    assert text.count("Nothing of interest") == 3 * 30 and "The dose is 5 mg." in text.partition("Nothing")[0]
    again, _ = Fitter(renderer.render, made.after - 1).fit(_last(trace))
    assert _text(renderer, again.input_ids).count("Nothing of interest") == 2 * 30
    assert fitter.report.to_json() == {
        "summarized": 1, "too_long": 0, "longest": 0, "steps": 1, "tokens_saved": whole - made.after, 
        "lengths": {str(bucket(whole)): 1},
    }  # fmt: skip


def test_the_results_that_the_target_answers_to_stay(renderer: Renderer) -> None:
    trace = _trace(_step(ToolResult(0, "5 mg")), _step(ToolResult(0, LONG)))
    with pytest.raises(DataError, match="tokens, over 10") as caught:
        Fitter(renderer.render, 10).fit(_last(trace))
    assert (caught.value.reason, caught.value.trace_id, caught.value.step) == ("overlong", "t", 2)


@pytest.mark.parametrize(
    "kept",
    [
        _step(ToolResult(0, LONG), TOOL_RAG, tools_added=(replace(TOOL, name="other"),)),
        _step(ToolResult(0, LONG), TOOL_RAG),
        _step(ToolResult(0, LONG, is_error=True)),
        _step(ToolResult(0, LONG), summary="The teacher's own summary, as it was recorded."),
        _step(ToolResult(0, "ok")),
    ],
)
def test_what_is_never_touched(renderer: Renderer, kept: Step) -> None:
    trace = _trace(kept, _step(ToolResult(0, LONG)), _step(ToolResult(0, "5 mg")))
    fitter = Fitter(renderer.render, _length(renderer, trace) - 1)
    rendered, made = fitter.fit(_last(trace))
    assert made is not None and made.steps == (1,)
    mine = renderer.prompt_ids(trace_id="t", system=None, tools=_last(trace).tools, turns=trace.turns[:2])
    assert rendered.input_ids[: len(mine)] == tuple(mine)


def test_stored_summaries_are_taken(renderer: Renderer) -> None:
    trace = _trace(
        _step(ToolResult(0, LONG)), _step(ToolResult(0, "5 mg")), metadata={"summaries": {"0": "Stored: 5 mg."}}
    )
    rendered, _ = Fitter(renderer.render, _length(renderer, trace) - 1).fit(_last(trace))
    assert "Stored: 5 mg." in _text(renderer, rendered.input_ids)
    with pytest.raises(DataError, match=r"metadata\.summaries"):
        Fitter(renderer.render, 10).fit(_last(replace(trace, metadata={"summaries": ["Stored"]})))


def test_parallel_results_are_summarised_one_by_one_and_errors_stay(renderer: Renderer) -> None:
    step = Step(
        calls=(ToolCall("get_dose", {"drug": "x"}), ToolCall("get_dose", {"drug": "y"})),
        results=(ToolResult(0, LONG), ToolResult(1, "no such drug y", is_error=True)),
    )
    trace = _trace(step, _step(ToolResult(0, "5 mg")))
    rendered, _ = Fitter(renderer.render, _length(renderer, trace) - 1).fit(_last(trace))
    text = _text(renderer, rendered.input_ids)
    assert "get_dose: The dose is 5 mg." in text and "get_dose: no such drug y" in text


@settings(max_examples=60, deadline=None)
@given(traces(), st.integers(50, 400))
def test_samples_fit_or_are_named_and_later_ones_keep_what_gave_way(trace: Trace, limit: int) -> None:
    renderer = Renderer(small_llama3(), WireFormat("llama3", "txagent", "text"))
    fitter = Fitter(renderer.render, limit)
    gone: set[int] = set()
    for example in decompose(trace):
        plain = renderer.render(example)
        try:
            rendered, made = fitter.fit(example)
        except DataError as fault:
            assert fault.reason == "overlong" and len(plain.input_ids) > limit
            continue
        assert len(rendered.input_ids) <= limit and rendered.loss_mask.count(True) == plain.loss_mask.count(True)
        if made is None:
            assert rendered == plain
            continue
        assert made.before == len(plain.input_ids) and made.after == len(rendered.input_ids) < made.before
        assert gone <= set(made.steps) and max(made.steps) < example.step_index - 1
        gone = set(made.steps)


def test_a_trace_takes_as_many_renderings_as_samples_and_summaries(renderer: Renderer) -> None:
    count = 0

    def counting(render: Callable[[StepExample], object]) -> Callable[[StepExample], object]:
        def rendered(example: StepExample) -> object:
            nonlocal count
            count += 1
            return render(example)

        return rendered

    trace = _trace(*[_step(ToolResult(0, LONG)) for _ in range(20)])
    fitter = Fitter(counting(renderer.render), 3000)  # type: ignore[arg-type]
    for example in decompose(trace):
        fitter.fit(example)
    assert fitter.report.summarized > 10 and count == 21 + fitter.report.steps
