"""What is trained on is what the parser reads: no target is an output that the agent would call unparsable."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.invariants.test_template_parity import FORMATS, listed, normalized, renderer_for
from tests.support.traces import searching_traces
from txagent_train.core.errors import DataError
from txagent_train.core.records import Step, StepExample, StepStatus, ToolSpec, Trace, UserMessage
from txagent_train.data.decompose import decompose
from txagent_train.rendering.controls import well_formed
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import FinishStyle, SyntaxName, ToolDelivery

TOOL = ToolSpec("look_up", "Looks up.", {"type": "object", "properties": {}})


def check_targets(renderer: Renderer, trace: Trace) -> None:
    for example in decompose(trace):
        if not listed(renderer, example):
            check_plain(renderer, example)
            continue
        try:
            rendered = renderer.render(example)
        except DataError as error:
            assert error.reason == "step_without_call" and renderer.wire.finish == "call"
            assert not example.target.calls and not example.is_final and not example.is_reply
            continue
        parsed = renderer.parse(rendered.input_ids[rendered.loss_mask.index(True) :])
        assert parsed.step.status is StepStatus.OK and parsed.step.raw_output is None
        if example.is_reply and renderer.wire.finish == "call":
            expected, _ = renderer._foreign.clean(well_formed(example.target.thought).strip())
            assert parsed.answer == normalized(renderer, expected) and parsed.step.thought == ""


def check_plain(renderer: Renderer, example: StepExample) -> None:
    """Without tools there is no Finish: an answer or reply is the plain text that any chat model gives."""
    ids = renderer.render(example).input_ids
    assert renderer.parse(ids).step.calls == () or example.target.calls
    if not example.target.calls:
        text = renderer.tokenizer.decode(ids[ids.index(renderer.stop_token_id) :])
        assert "[FinalAnswer]" not in text and '"Finish"' not in renderer.tokenizer.decode(ids)


@pytest.mark.parametrize(("name", "syntax", "finish", "delivery"), FORMATS)
def test_no_target_is_unparsable(name: str, syntax: SyntaxName, finish: FinishStyle, delivery: ToolDelivery) -> None:
    renderer = renderer_for(name, syntax, finish, delivery)

    @settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(searching_traces())
    def check(trace: Trace) -> None:
        check_targets(renderer, trace)
        # The same without its answer: the last step may then be text for the user.
        if trace.steps[-1].thought.strip():
            check_targets(renderer, Trace(trace.id, trace.turns, initial_tools=trace.initial_tools))

    check()


@pytest.mark.parametrize("syntax", ["txagent", "hermes"])
def test_a_reply_is_written_as_an_answer_and_remembered_as_plain_text(syntax: SyntaxName) -> None:
    trace = Trace(
        "t",
        (UserMessage("q?"), Step("One."), UserMessage("And?"), Step("Sure.")),
        answer="Two.",
        initial_tools=(TOOL,),
    )
    renderer = renderer_for("smollm2", syntax, "call")
    first, last = (renderer.tokenizer.decode(renderer.render(example).input_ids) for example in decompose(trace))
    assert "<|im_start|>assistant\n[FinalAnswer] One." in first and '"Finish"' in first.split("assistant\n")[1]
    assert "<|im_start|>assistant\nOne.<|im_end|>" in last
    plain = renderer_for("smollm2", syntax, "text")
    assert plain.tokenizer.decode(plain.render(next(decompose(trace))).input_ids).endswith("assistant\nOne.<|im_end|>")


def test_text_before_another_step_of_the_model_has_no_words() -> None:
    turns = (UserMessage("q?"), Step("One."), Step("Two."), Step())
    trace = Trace("t", turns, answer="Three.", initial_tools=(TOOL,))
    renderer = renderer_for("smollm2", "txagent", "call")
    examples = list(decompose(trace))
    for example in examples[:2]:
        with pytest.raises(DataError, match="the model goes on after it") as caught:
            renderer.render(example)
        assert caught.value.reason == "step_without_call"
    assert renderer.render(examples[2])


@pytest.mark.parametrize("finish", ["call", "text"])
def test_an_output_of_nothing_is_no_sample(finish: FinishStyle) -> None:
    trace = Trace("t", (UserMessage("q?"), Step(raw_output="x"), UserMessage("?"), Step()), answer="a")
    with pytest.raises(DataError) as caught:
        renderer_for("smollm2", "hermes", finish).render(next(decompose(trace)))
    assert caught.value.reason == "empty_output"
