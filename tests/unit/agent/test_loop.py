from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, replace

import pytest

from tests.support.scripted import ScriptedBackend
from tests.support.tokenizers import small_llama3, smollm2
from txagent_train.agent.loop import FORCED_BEGINNING, INVALID_CALL, AgentSettings, AgentTask, run_agent, run_agents
from txagent_train.agent.tools import PythonTools, ToolOutcome
from txagent_train.core.codec import trace_from_json, trace_to_json
from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, Json, Step, StepStatus, ToolCall, ToolResult, ToolSpec, Trace
from txagent_train.data.decompose import decompose
from txagent_train.rendering.renderer import Renderer
from txagent_train.rendering.wire import WireFormat

WIRES = [
    WireFormat("chatml", "txagent", "call"),
    WireFormat("llama3", "txagent", "call"),
    WireFormat("chatml", "hermes", "text"),
    WireFormat("llama3", "txagent", "call", "result"),
    WireFormat("chatml", "hermes", "text", "result"),
]


def _spec(name: str, *parameters: str) -> ToolSpec:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return ToolSpec(name, f"The {name}.", {"type": "object", "properties": properties, "required": list(parameters)})


DOSE, PAIR, RAG = _spec("get_dose", "drug"), _spec("check_pair", "a", "b"), _spec(TOOL_RAG, "description")
TOOLS = PythonTools(
    [DOSE, PAIR, RAG],
    {
        "get_dose": lambda drug: {"drug": drug, "mg": len(drug)},
        "check_pair": lambda a, b: f"{a} and {b} do not go together",
        TOOL_RAG: lambda description: ToolOutcome(["get_dose", "check_pair"], tools_added=(DOSE, PAIR, PAIR)),
    },
)
SETTINGS = AgentSettings(max_steps=4, max_new_tokens=64)


@pytest.fixture(params=WIRES, ids=lambda wire: "-".join(astuple(wire)))
def renderer(request: pytest.FixtureRequest) -> Renderer:
    tokenizer = small_llama3() if request.param.frame == "llama3" else smollm2()
    return Renderer(tokenizer, request.param)


def said(renderer: Renderer, thought: str, *calls: tuple[str, dict[str, Json]]) -> str:
    """The text of a step with calls, as a trained model writes it."""
    objects = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    if renderer.wire.syntax == "txagent":
        return f"{thought}[TOOL_CALLS][{', '.join(objects)}]"
    return thought + "".join(f"\n<tool_call>\n{item}\n</tool_call>" for item in objects)


def answered(renderer: Renderer, thought: str, answer: str) -> str:
    if renderer.wire.finish == "text":
        return answer
    return f'{thought}[FinalAnswer]{answer}[TOOL_CALLS][{{"name": "Finish", "arguments": {{}}}}]'


def run(
    renderer: Renderer,
    outputs: Sequence[str],
    *,
    tools: tuple[ToolSpec, ...] = (RAG, DOSE),
    context_length: int = 8192,
    settings: AgentSettings = SETTINGS,
) -> tuple[Trace, ScriptedBackend]:
    backend = ScriptedBackend(renderer, {"QUESTION": outputs}, context_length)
    task = AgentTask("t", "QUESTION?", system="Be right.", initial_tools=tools, question_id="q", entities=("warfarin",))
    trace = run_agent(task, backend=backend, renderer=renderer, executor=TOOLS, settings=settings, model_name="m")
    assert trace_from_json(trace_to_json(trace)) == trace
    return trace, backend


def test_parallel_calls_then_an_answer(renderer: Renderer) -> None:
    calls: list[tuple[str, dict[str, Json]]] = [("get_dose", {"drug": "abc"}), ("get_dose", {"drug": "de"})]
    trace, backend = run(renderer, [said(renderer, "Both.", *calls), answered(renderer, "So.", "3 and 2 mg")])
    first, last = trace.steps
    assert first.calls == tuple(ToolCall(*call) for call in calls) and first.thought == "Both."
    assert first.results == (ToolResult(0, {"drug": "abc", "mg": 3}), ToolResult(1, {"drug": "de", "mg": 2}))
    assert trace.answer == "3 and 2 mg" and last.calls == () and last.status is StepStatus.OK
    assert (trace.teacher, trace.source, trace.question_id, trace.entities) == ("m", "agent", "q", ("warfarin",))
    assert trace.metadata["stop_reason"] == "answer" and trace.metadata["cut_steps"] == []
    assert trace.metadata["generated_tokens"] > 0 and len(trace.metadata["prompt_tokens"]) == 2
    assert "QUESTION?" in backend.prompts[1] and "abc" in backend.prompts[1]


def test_retrieved_tools_are_seen_later_and_once(renderer: Renderer) -> None:
    search = said(renderer, "Search.", (TOOL_RAG, {"description": "pairs"}))
    pair = said(renderer, "Use.", ("check_pair", {"a": "x", "b": "y"}))
    trace, backend = run(renderer, [search, search, pair, answered(renderer, "", "no")])
    assert [step.tools_added for step in trace.steps] == [(PAIR,), (), (), ()]
    listed = [prompt.count('"name": "check_pair"') for prompt in backend.prompts]
    assert listed[:3] == [0, 1, 1]
    head = backend.prompts[2].partition("QUESTION?")[0]
    assert ('"name": "check_pair"' in head) == (renderer.wire.tool_delivery == "prompt")
    assert trace.steps[2].results == (ToolResult(0, "x and y do not go together"),)


def test_training_sees_the_prompts_that_the_agent_saw(renderer: Renderer) -> None:
    """The recorded trace, cut into samples without shuffling, gives the prompts of the run."""
    search = said(renderer, "Search.", (TOOL_RAG, {"description": "pairs"}))
    use = said(renderer, "Use.", ("check_pair", {"a": "x", "b": "y"}), ("get_doze", {"drug": "x"}))
    trace, backend = run(renderer, [search, use, answered(renderer, "Done.", "no")])
    samples = [renderer.render(example) for example in decompose(trace, shuffle_tools=False)]
    prompts = [renderer.tokenizer.decode(sample.input_ids[: sample.loss_mask.index(True)]) for sample in samples]
    assert prompts == backend.prompts


def test_an_unparsable_output_is_answered_and_kept(renderer: Renderer) -> None:
    broken = said(renderer, "Hm.", ("get_dose", {"drug": "x"})).replace('"arguments"', "arguments")
    trace, backend = run(renderer, [broken, "", answered(renderer, "", "5")])
    first, second, _ = trace.steps
    assert first.status is StepStatus.UNPARSABLE and first.raw_output == broken
    assert first.results == (ToolResult(None, INVALID_CALL, is_error=True),) == second.results
    assert second.status is StepStatus.UNPARSABLE and second.raw_output == ""
    assert backend.prompts[1].count(INVALID_CALL) == 1 and backend.prompts[2].count(INVALID_CALL) == 2
    assert trace.answer == "5"


def test_wrong_calls_get_error_results_and_the_others_run(renderer: Renderer) -> None:
    output = said(renderer, "", ("get_doze", {}), ("get_dose", {"drug": 1}), ("get_dose", {"drug": "x"}))
    trace, backend = run(renderer, [output, answered(renderer, "", "1")])
    assert [result.is_error for result in trace.steps[0].results] == [True, True, False]
    assert "There is no tool named get_doze" in backend.prompts[1]


def test_at_the_step_limit_an_answer_is_forced(renderer: Renderer) -> None:
    call = said(renderer, "Again.", ("get_dose", {"drug": "x"}))
    rest = 'it is 7[TOOL_CALLS][{"name": "Finish", "arguments": {}}]' if renderer.wire.finish == "call" else "it is 7"
    trace, backend = run(renderer, [call] * 4 + [rest])
    assert trace.answer == "it is 7" and trace.steps[-1].status is StepStatus.FORCED and len(trace.steps) == 5
    assert trace.metadata["stop_reason"] == trace.metadata["forced_because"] == "step_limit"
    marker = "[FinalAnswer]" if renderer.wire.finish == "call" else ""
    assert backend.prompts[4].endswith(FORCED_BEGINNING + marker)
    kept = renderer.wire.tool_delivery == "result"  # that list never changes
    assert "The get_dose." in backend.prompts[3] and ("The get_dose." in backend.prompts[4]) == kept
    assert backend.prompts[4].startswith(backend.prompts[3]) == kept
    assert ('"Finish"' in backend.prompts[4]) == (renderer.wire.finish == "call")


def test_unreadable_outputs_in_a_row_force_an_answer(renderer: Renderer) -> None:
    call = said(renderer, "Again.", ("get_dose", {"drug": "x"}))
    bad = "[TOOL_CALLS]{"
    settings = replace(SETTINGS, max_steps=9, max_unparsable=2)
    trace, _ = run(renderer, [bad, call, bad, bad, answered(renderer, "", "5")], settings=settings)
    assert len(trace.steps) == 5 and trace.steps[-1].status is StepStatus.FORCED
    assert trace.metadata["forced_because"] == "unparsable"


def test_a_forced_output_without_an_answer_is_kept(renderer: Renderer) -> None:
    call = said(renderer, "Again.", ("get_dose", {"drug": "x"}))
    trace, _ = run(renderer, [*[call] * 4, "" if renderer.wire.finish == "call" else call])
    assert trace.answer is None and trace.metadata["stop_reason"] == "no_answer"
    last = trace.steps[-1]
    assert last.status is StepStatus.FORCED and last.raw_output is not None and FORCED_BEGINNING in last.raw_output


def test_a_cut_output_shows(renderer: Renderer) -> None:
    broken = said(renderer, "On and on", ("get_dose", {"drug": "x"}))[:-16] + ScriptedBackend.CUT
    trace, _ = run(renderer, [broken, answered(renderer, "", "5")])
    assert trace.steps[0].status is StepStatus.UNPARSABLE and trace.metadata["cut_steps"] == [0]


def test_a_full_context_forces_an_answer(renderer: Renderer) -> None:
    tools = (DOSE, *(_spec(f"tool_{number}") for number in range(12)))
    outputs = [said(renderer, "Again.", ("get_dose", {"drug": "long " * 20})), answered(renderer, "", "done")]
    free, _ = run(renderer, outputs, tools=tools)
    context_length = free.metadata["prompt_tokens"][1] + SETTINGS.max_new_tokens
    fitting, _ = run(renderer, outputs, tools=tools, context_length=context_length)
    assert fitting.metadata["stop_reason"] == "answer"
    forced, backend = run(renderer, [outputs[0], "done"], tools=tools, context_length=context_length - 1)
    assert forced.answer == "done" and forced.metadata["stop_reason"] == "context_full"
    assert "The tool_0." not in backend.prompts[1]


def test_what_fits_in_no_way_ends_without_an_answer(renderer: Renderer) -> None:
    call = said(renderer, "Again.", ("get_dose", {"drug": "long " * 20}))
    free, _ = run(renderer, [call, answered(renderer, "", "done")], tools=())
    context_length = free.metadata["prompt_tokens"][0] + SETTINGS.max_new_tokens
    ended, _ = run(renderer, [call], tools=(), context_length=context_length)
    assert ended.answer is None and len(ended.steps) == 1 and ended.steps[0].results
    assert (ended.metadata["stop_reason"], ended.metadata["forced_because"]) == ("no_answer", "context_full")
    with pytest.raises(DataError, match="context holds 80"):
        run(renderer, [], context_length=80)


def test_many_questions_advance_together_and_give_what_each_gives_alone(renderer: Renderer) -> None:
    call = said(renderer, "Look.", ("get_dose", {"drug": "x"}))
    scripts = {
        "QUESTION-A": [call, call, answered(renderer, "", "a")],
        "QUESTION-B": [answered(renderer, "", "b")],
        "QUESTION-C": ["" if renderer.wire.finish == "text" else "no call", call, answered(renderer, "", "c")],
    }
    tasks = [AgentTask(f"t-{name}", f"{name}?", initial_tools=(DOSE,)) for name in scripts]
    together = ScriptedBackend(renderer, scripts)
    traces = run_agents(tasks, backend=together, renderer=renderer, executor=TOOLS, settings=SETTINGS)
    assert together.batches == [3, 2, 2]
    alone = []
    for task in tasks:
        backend = ScriptedBackend(renderer, scripts)
        alone.append(run_agent(task, backend=backend, renderer=renderer, executor=TOOLS, settings=SETTINGS))
    assert [untimed(trace) for trace in traces] == [untimed(trace) for trace in alone]
    assert [trace.answer for trace in traces] == ["a", "b", "c"]


def untimed(trace: Trace) -> Trace:
    kept = {key: value for key, value in trace.metadata.items() if not key.endswith("seconds")}
    return replace(trace, metadata=kept)


def test_steps_hold_what_the_parser_read(renderer: Renderer) -> None:
    trace, _ = run(renderer, [answered(renderer, "Known.", "5")])
    expected = Step("Known." if renderer.wire.finish == "call" else "")
    assert trace.steps == (expected,) and trace.is_complete
