"""Training ids = inference ids, for every frame, syntax, ending and delivery of tools, whatever the text holds."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jinja2
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.tokenizers import FRAMES, TOKENIZERS
from tests.support.traces import odd_trace, searching_traces
from txagent_train.core.errors import DataError
from txagent_train.core.records import StepExample, ToolSpec, Trace
from txagent_train.data.decompose import decompose
from txagent_train.rendering.controls import tokenizer_controls, well_formed_json
from txagent_train.rendering.messages import tool_message
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import FinishStyle, SyntaxName, ToolDelivery, WireFormat

FORMATS = list(itertools.product(TOKENIZERS, ["txagent", "hermes"], ["call", "text"], ["prompt", "result"]))
"""Tokenizer, call syntax, ending and delivery of tools: what ``renderer_for`` takes."""
_RENDERERS: dict[tuple[str, str, str, str], Renderer] = {}


def renderer_for(name: str, syntax: SyntaxName, finish: FinishStyle, delivery: ToolDelivery = "prompt") -> Renderer:
    key = (name, syntax, finish, delivery)
    if key not in _RENDERERS:
        _RENDERERS[key] = Renderer(TOKENIZERS[name](), WireFormat(FRAMES[name], syntax, finish, delivery), seed=3)
    return _RENDERERS[key]


def listed(renderer: Renderer, example: StepExample) -> tuple[ToolSpec, ...]:
    """The tools that a client gives beside the messages."""
    return renderer.wire.listed_tools(example.tools, example.history)


def template_ids(renderer: Renderer, example: StepExample) -> list[int]:
    """The prompt of a step as a server makes it: messages and tools through the saved chat template."""
    trace = example.trace
    ids = renderer.tokenizer.apply_chat_template(
        renderer.messages(trace_id=trace.id, system=trace.system, turns=example.history),
        tools=[tool_message(tool) for tool in listed(renderer, example)],  # the template places the special ones
        chat_template=renderer.chat_template,
        add_generation_prompt=True,
        return_dict=False,
    )
    return list(ids)


def normalized(renderer: Renderer, text: str) -> str:
    """A text as the tokenizer leaves it: Qwen's composes letters and accents (NFC)."""
    normalizer = renderer.tokenizer.backend_tokenizer.normalizer
    return text if normalizer is None else str(normalizer.normalize_str(text))


def check_parity(renderer: Renderer, trace: Trace) -> None:
    control_ids = {
        token_id for token_id, token in renderer.tokenizer.added_tokens_decoder.items() if token.content.strip()
    }
    structure = {renderer.tokenizer.convert_tokens_to_ids(token) for token in renderer.frame.control_tokens}
    syntax = {
        renderer.tokenizer.convert_tokens_to_ids(token)
        for token in ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
    }

    def read(value: Any) -> Any:
        """A value as the tokenizer leaves it where it is not written in escapes."""
        value = well_formed_json(value)
        if renderer.wire.syntax == "txagent":
            return value
        return json.loads(normalized(renderer, json.dumps(value, ensure_ascii=False)))

    for example in decompose(trace, seed=1, epoch=0):
        try:
            rendered = renderer.render(example)
        except DataError as error:
            assert error.reason == "step_without_call"  # no sample: test_targets_parse.py
            continue
        cut = rendered.loss_mask.index(True)
        assert all(rendered.loss_mask[cut:]) and not any(rendered.loss_mask[:cut])
        assert list(rendered.input_ids[:cut]) == template_ids(renderer, example)
        assert rendered.input_ids[-1] == renderer.stop_token_id
        output = rendered.input_ids[cut:-1]
        assert not structure.intersection(output)
        assert control_ids.intersection(rendered.input_ids) <= structure | syntax
        parsed = renderer.parse(rendered.input_ids[cut:])
        assert [(call.name, call.arguments) for call in parsed.step.calls] == [
            (read(call.name), read(call.arguments)) for call in example.target.calls
        ]
        if listed(renderer, example) or renderer.wire.finish == "text":
            assert (parsed.answer is not None) == (
                example.is_final or example.is_reply or (renderer.wire.finish == "text" and not parsed.step.calls)
            )


@pytest.mark.parametrize(("name", "syntax", "finish", "delivery"), FORMATS)
def test_the_odd_trace(name: str, syntax: SyntaxName, finish: FinishStyle, delivery: ToolDelivery) -> None:
    trace = odd_trace()
    check_parity(renderer_for(name, syntax, finish, delivery), trace)
    assert len(list(decompose(trace))) == 3  # the unparsable output is no target


@pytest.mark.parametrize(("name", "syntax", "finish", "delivery"), FORMATS)
def test_any_trace(name: str, syntax: SyntaxName, finish: FinishStyle, delivery: ToolDelivery) -> None:
    renderer = renderer_for(name, syntax, finish, delivery)

    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(searching_traces())
    def check(trace: Trace) -> None:
        check_parity(renderer, trace)

    check()


@pytest.mark.parametrize(("name", "syntax", "finish", "delivery"), FORMATS)
def test_bare_jinja_differs_in_tojson_alone(
    name: str, syntax: SyntaxName, finish: FinishStyle, delivery: ToolDelivery
) -> None:
    """With the ``tojson`` of transformers, an environment that trims no blocks gives the same text."""
    renderer = renderer_for(name, syntax, finish, delivery)
    environment = jinja2.Environment()
    environment.filters["tojson"] = lambda value, ensure_ascii=False: json.dumps(value, ensure_ascii=ensure_ascii)
    example = list(decompose(odd_trace()))[-1]
    values = {
        "messages": renderer.messages(trace_id="odd", system=example.trace.system, turns=example.history),
        "tools": renderer.template_tools(listed(renderer, example)),
        "add_generation_prompt": True,
    }
    text = environment.from_string(renderer.chat_template).render(**values)
    ids = renderer.tokenizer.encode(text, add_special_tokens=False)
    assert ids == template_ids(renderer, example)


def test_control_strings_of_the_tokenizers_are_known() -> None:
    small = tokenizer_controls(TOKENIZERS["llama3"]())
    assert "<|eot_id|>" in small and "<|reserved_special_token_" in small
    assert not any(
        text.startswith("<|reserved_special_token_") and text != "<|reserved_special_token_" for text in small
    )
