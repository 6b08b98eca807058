"""What the prompt looks like, in words; call ids; saving."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer, GenerationConfig

from tests.support.tokenizers import small_llama3, smollm2
from tests.support.traces import odd_trace
from txagent_train.core.errors import ModelError
from txagent_train.core.records import TOOL_RAG, Step, ToolCall, ToolResult, ToolSpec, Trace, Turn, UserMessage
from txagent_train.data.decompose import decompose
from txagent_train.rendering import renderer as renderer_module
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import SyntaxName, ToolDelivery, WireFormat, wire_format_for

TOOL = ToolSpec("f", "Finds.", {"type": "object", "properties": {}})


def test_txagent_prompt_and_target_word_by_word() -> None:
    renderer = Renderer(small_llama3(), WireFormat("llama3", "txagent", "call"), seed=3)
    examples = list(decompose(odd_trace(), shuffle_tools=False))
    first = renderer.render(examples[0])
    cut = first.loss_mask.index(True)
    assert renderer.tokenizer.decode(first.input_ids[cut:]) == (
        "Two things < tool_call>[TOOL_CALLS]["
        '{"name": "get_dose", "arguments": {"drug": "\\u003ctool_call> \\u00e9", "n": 1.0}}, '
        '{"name": "Tool_RAG", "arguments": {"description": "pairs"}}]<|eot_id|>'
    )
    last = renderer.render(examples[-1])
    text = renderer.tokenizer.decode(last.input_ids)
    system = text[: text.index("<|eot_id|>")]
    names = [json.loads(line)["name"] for line in system.splitlines()[3:]]
    assert names == ["Finish", "Tool_RAG", "get_dose", "check_pair"]
    assert text.startswith(
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nAnswer, and end with [FinalAnswer].\n{"
    )
    assert '"call_id": "' in text and text.count("<|start_header_id|>ipython<|end_header_id|>\n\n") == 4
    assert '\n\n{"content": {"dose": [1, "< |im_start|>"]}, "call_id": "' not in text  # <|im_start|> is no token here
    assert text.endswith(
        "hidden\n</think>\n\nAll is known.\n\n[FinalAnswer] 42 < think>"
        '[TOOL_CALLS][{"name": "Finish", "arguments": {}}]<|eot_id|>'
    )
    assert "One line." in text and '"  text' not in text  # the summary stands for the result


def test_call_ids_are_in_the_history_and_not_in_the_target() -> None:
    renderer = Renderer(smollm2(), WireFormat("chatml", "txagent", "call"))
    for example in decompose(odd_trace()):
        rendered = renderer.render(example)
        target = [token for token, trained in zip(rendered.input_ids, rendered.loss_mask, strict=True) if trained]
        assert "call_id" not in renderer.tokenizer.decode(target)
    other = Renderer(smollm2(), WireFormat("chatml", "txagent", "call"), seed=1)
    example = list(decompose(odd_trace()))[1]
    assert renderer.render(example).input_ids != other.render(example).input_ids
    assert renderer.render(example) == Renderer(smollm2(), renderer.wire).render(example)


def test_hermes_puts_results_of_one_step_into_one_turn() -> None:
    renderer = Renderer(smollm2(), WireFormat("chatml", "hermes", "text"))
    text = renderer.tokenizer.decode(renderer.render(list(decompose(odd_trace()))[1]).input_ids)
    assert "<|im_start|>user\n<tool_response>\n" in text
    assert (
        '</tool_response>\n<tool_response>\n["check_pair"]\n</tool_response><|im_end|>\n<|im_start|>assistant\n' in text
    )
    assert "Finish" not in text and text.endswith("<|im_end|>")


def test_neutralised_text_is_counted() -> None:
    renderer = Renderer(smollm2(), WireFormat("chatml", "hermes", "text"))
    trace = Trace(
        "t",
        (UserMessage("hi <|im_end|> <|im_end|>"), Step("a", calls=(ToolCall("f", {"x": "<think>"}),))),
        initial_tools=(TOOL,),
    )
    assert renderer.render(next(decompose(trace))).neutralised == 3
    assert renderer.render(next(decompose(trace))).neutralised_in_target == 1
    clean = replace(trace, turns=(UserMessage("hi"), Step("a", calls=(ToolCall("f", {}),))))
    assert renderer.render(next(decompose(clean))).neutralised == 0


def test_the_cache_of_texts_is_bounded_by_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Renderer(smollm2(), WireFormat("chatml", "txagent", "call"))
    monkeypatch.setattr(renderer_module, "_CACHED_IDS", 50)
    texts = [f"text {number} " * 3 for number in range(20)]
    expected = [renderer.tokenizer.encode(text, add_special_tokens=False) for text in texts]
    for _ in range(2):
        for text, ids in zip(texts, expected, strict=True):
            assert renderer.text_ids(text) == ids
            assert sum(map(len, renderer._cache.values())) == renderer._cached_ids <= 50


@pytest.mark.parametrize("delivery", ["prompt", "result"])
def test_saved_folder_renders_and_stops_the_same(tmp_path: Path, delivery: ToolDelivery) -> None:
    renderer = Renderer(smollm2(), WireFormat("chatml", "txagent", "call", delivery))
    renderer.save(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    example = list(decompose(odd_trace()))[-1]
    rendered = renderer.render(example)
    ids = tokenizer.apply_chat_template(
        renderer.messages(trace_id="odd", system=example.trace.system, turns=example.history),
        tools=renderer.template_tools(renderer.wire.listed_tools(example.tools, example.history)),
        add_generation_prompt=True,
        return_dict=False,
    )
    assert ids == list(rendered.input_ids[: rendered.loss_mask.index(True)])
    # Nothing else in the folder says how the model was trained.
    says = "{#- txagent-train: frame chatml, syntax txagent, finish call, tool_delivery " + f"{delivery} -#}}"
    assert tokenizer.chat_template.splitlines()[0] == says
    config = GenerationConfig.from_pretrained(tmp_path)
    assert config.eos_token_id == [renderer.stop_token_id] and config.pad_token_id == renderer.pad_token_id
    assert tokenizer.eos_token_id == renderer.stop_token_id != tokenizer.pad_token_id


def test_messages_of_other_clients_are_understood() -> None:
    """The original client's JSON strings, an OpenAI client's string arguments, content parts, null content."""
    renderer = Renderer(smollm2(), WireFormat("chatml", "txagent", "call"))

    def text(*messages: dict[str, object]) -> str:
        return str(
            renderer.tokenizer.apply_chat_template(list(messages), chat_template=renderer.chat_template, tokenize=False)
        )

    call = '{"name": "f", "arguments": {"x": 1}, "call_id": "a1"}'
    openai = {"id": "a1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    assert text({"role": "assistant", "content": None, "tool_calls": [openai]}) == text(
        {"role": "assistant", "content": "", "tool_calls": f"[{call}]"}
    )
    assert text({"role": "assistant", "content": "x", "tool_calls": "null"}) == text(
        {"role": "assistant", "content": "x"}
    )
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert text({"role": "user", "content": parts}) == text({"role": "user", "content": "ab"})
    assert text({"role": "tool", "tool_call_id": "a1", "content": "ok"}) == text(
        {"role": "tool", "content": '{"content": "ok", "call_id": "a1"}'}
    )


def test_frame_is_found_and_checked() -> None:
    assert wire_format_for(smollm2(), syntax="txagent", finish="call").frame == "chatml"
    assert wire_format_for(small_llama3(), syntax="hermes", finish="text").frame == "llama3"
    for frame in ("auto", "chatml"):
        made = wire_format_for(smollm2(), frame=frame, syntax="hermes", finish="text", tool_delivery="result")
        assert made == WireFormat("chatml", "hermes", "text", "result")
    with pytest.raises(ModelError, match="lacks"):
        wire_format_for(smollm2(), frame="llama3", syntax="txagent", finish="call")


def small_renderer(syntax: SyntaxName = "txagent") -> Renderer:
    return Renderer(small_llama3(), WireFormat("llama3", syntax, "call"))


def _asked(renderer: Renderer, *turns: Turn, trace_id: str = "t", tools: tuple[ToolSpec, ...] = ()) -> str:
    ids = renderer.prompt_ids(trace_id=trace_id, system="s", tools=tools, turns=turns)
    return renderer.tokenizer.decode(ids, skip_special_tokens=False)


def test_what_is_kept_of_a_trace_is_never_shown_for_another_content() -> None:
    """The same id, but other tools that count as equal, or the same step after other turns."""

    def tool(default: object) -> ToolSpec:
        return ToolSpec("f", "", {"type": "object", "properties": {"x": {"default": default}}})

    first = Step("a", calls=(ToolCall("f", {}),), results=(ToolResult(0, "r"),))
    last = Step("b", calls=(ToolCall("f", {}),), results=(ToolResult(0, "r"),))
    question, other = UserMessage("q"), UserMessage("other")
    cases: list[tuple[tuple[Turn, ...], tuple[ToolSpec, ...]]] = [
        ((question,), (tool(1),)),
        ((question,), (tool(True),)),
        ((question, first, last), ()),
        ((question, other, last), ()),
    ]
    shared = small_renderer()
    for turns, tools in cases:
        assert _asked(shared, *turns, tools=tools) == _asked(small_renderer(), *turns, tools=tools)


@pytest.mark.parametrize("syntax", ["txagent", "hermes"])
def test_results_stand_in_the_order_of_their_calls(syntax: SyntaxName) -> None:
    step = Step(
        calls=(ToolCall("f", {"x": 1}), ToolCall("f", {"x": 2})),
        results=(ToolResult(1, "of the second"), ToolResult(0, "of the first")),
    )
    text = _asked(small_renderer(syntax), UserMessage("q"), step)
    assert text.index("of the first") < text.index("of the second")


@pytest.mark.parametrize("syntax", ["txagent", "hermes"])
def test_a_found_tool_reads_the_same_wherever_it_stands(syntax: SyntaxName) -> None:
    """The name in its spec is the one that a call must have, also where it holds a control string."""
    found = ToolSpec("find<think>", "Finds <|eot_id|>.", {"type": "object", "properties": {"<think>": {}}})
    step = Step(calls=(ToolCall(TOOL_RAG, {}),), results=(ToolResult(0, "<think>"),), tools_added=(found,))
    trace = Trace("t", (UserMessage("q"), step, Step(calls=(ToolCall("find<think>", {}),))), initial_tools=(TOOL,))
    example = list(decompose(trace))[1]
    neutralised = set()
    for delivery in ("prompt", "result"):
        rendered = Renderer(small_llama3(), WireFormat("llama3", syntax, "call", delivery)).render(example)
        text = small_llama3().decode(list(rendered.input_ids))
        assert text.count('"name": "find\\u003cthink>"') == 2  # the spec, and the call
        assert '"description": "Finds \\u003c|eot_id|>.", "parameters": {"type": "object", ' in text
        neutralised.add(rendered.neutralised)
    assert neutralised == {5}
