"""Generated traces: TxAgent's shape, at lengths scaled to the model."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from packing_arms import save_tokenizer
from scaled_traces import HIDDEN_8B, Proportions, TraceMaker, small_tokenizer, vocabulary_size

from txagent_train.config.sft import ModelSection, WireSection
from txagent_train.core.records import TOOL_RAG
from txagent_train.data.decompose import decompose
from txagent_train.rendering.renderer import Renderer
from txagent_train.sft.rendering import renderer_for

HIDDEN = 512
SCALE = HIDDEN / HIDDEN_8B
TOKENIZER = small_tokenizer(vocabulary_size(HIDDEN, 2))


def maker() -> TraceMaker:
    return TraceMaker(TOKENIZER, Proportions(), SCALE)


@pytest.fixture(params=["prompt", "result"])
def renderer(request: pytest.FixtureRequest, tmp_path: Path) -> Renderer:
    save_tokenizer(TOKENIZER, tmp_path)
    return renderer_for(ModelSection(name_or_path=str(tmp_path)), WireSection(tool_delivery=request.param), 0)


def lengths(renderer: Renderer, samples: int, calls: int) -> list[int]:
    trace = maker().trace(samples, calls, "t")
    return [len(renderer.render(example).input_ids) for example in decompose(trace)]


@pytest.mark.parametrize("samples", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_trace_has_the_samples_and_searches_that_were_asked_for(samples: int, calls: int) -> None:
    if samples == 1 and calls:
        pytest.skip("the one step of such a trace answers")
    trace = maker().trace(samples, calls, "t")
    searches = [call for step in trace.steps for call in step.calls if call.name == TOOL_RAG]
    assert (len(trace.steps), len(searches)) == (samples, calls)
    assert len({spec.name for spec in trace.tools()}) == 1 + Proportions().tools + calls * Proportions().returned


def test_rendered_lengths_are_those_of_the_proportions(renderer: Renderer) -> None:
    parts, found = Proportions(), lengths(renderer, 4, 0)
    head = parts.system + parts.question + (parts.tools + 1) * parts.spec
    assert found[0] / SCALE == pytest.approx(head + parts.output, rel=0.15)
    for before, after in pairwise(found[:-1]):
        # With headers and call ids, which are not scaled down.
        assert (after - before) / SCALE == pytest.approx(parts.output + parts.result, rel=0.25)


def test_found_tools_cost_what_tools_cost(renderer: Renderer) -> None:
    parts = Proportions()
    searched, plain = lengths(renderer, 4, 1), lengths(renderer, 4, 0)
    grown = (searched[-1] - plain[-1]) / SCALE + parts.result  # a search has no other result
    # And their names, of which scaled-down specs have as many as real ones.
    assert 1 < grown / (parts.returned * parts.spec) < 1.7


def test_the_same_traces_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        maker().write(tmp_path / name / "t.jsonl", 2, 3, 1)
    assert (tmp_path / "a/t.jsonl").read_bytes() == (tmp_path / "b/t.jsonl").read_bytes()
