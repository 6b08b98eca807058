"""Records a trace while its calls are really made: no result is ever written by hand."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Sequence

from txagent_train.agent.tools import ToolExecutor
from txagent_train.core.records import (
    TOOL_RAG,
    Json,
    JsonObject,
    Step,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trace,
    UserMessage,
)
from txagent_train.demo.formulary import formulary_notice
from txagent_train.demo.tools import BRAND_NAMES_TOOL, GENERIC_NAME_TOOL, RAG_SPEC, TOOL_SPECS

SYSTEM_PROMPT = (
    "You are a helpful assistant that will solve problems through detailed, step-by-step reasoning and actions based "
    "on your reasoning. Typically, your actions will use the provided functions. You have access to the following "
    "functions."
)
"""The system prompt of TxAgent, word for word: released models were trained with it."""

_SIZES, _SIZE_WEIGHTS = (2, 3, 4), (6, 3, 1)  # tools shown at first; each costs about 67 tokens in every sample
_RAG_SHARE = 0.1  # of the traces that do not need Tool_RAG and show it nevertheless

_POPULATION = "get_population_use_info_by_drug_name"
ALTERNATIVES: dict[str, frozenset[str]] = {
    GENERIC_NAME_TOOL: frozenset({BRAND_NAMES_TOOL}),
    BRAND_NAMES_TOOL: frozenset({GENERIC_NAME_TOOL}),
    _POPULATION: frozenset(
        {
            "get_pregnancy_effects_info_by_drug_name",
            "get_pediatric_use_info_by_drug_name",
            "get_geriatric_use_info_by_drug_name",
        }
    ),
    "get_pregnancy_effects_info_by_drug_name": frozenset({_POPULATION}),
    "get_pediatric_use_info_by_drug_name": frozenset({_POPULATION}),
    "get_geriatric_use_info_by_drug_name": frozenset({_POPULATION}),
}
"""Tools that could pass for a needed one: never shown beside it, so that one choice is right."""

_SPECS = {spec.name: spec for spec in (RAG_SPEC, *TOOL_SPECS)}


def pick_candidates(
    needed: Collection[str], rng: random.Random, *, absent: Collection[str] = (), most: int = max(_SIZES)
) -> tuple[ToolSpec, ...]:
    """The initial tools of a trace: the needed ones and distractors, shuffled.

    ``absent`` are tools that Tool_RAG will bring later; ``most`` bounds the distractors. Tool_RAG is no distractor
    where nothing is needed: there, searching the toolbox would be right.
    """
    alternatives = [ALTERNATIVES.get(name, frozenset()) for name in (*needed, *absent)]
    excluded = {*needed, *absent}.union(*alternatives)
    pool = [spec.name for spec in TOOL_SPECS if spec.name not in excluded]
    size = max(rng.choices(_SIZES, _SIZE_WEIGHTS)[0], len(needed) + 1)
    distractors = rng.sample(pool, min(size - len(needed), most))
    if needed and TOOL_RAG not in needed and rng.random() < _RAG_SHARE:
        distractors[0] = TOOL_RAG
    names = [*needed, *distractors]
    rng.shuffle(names)
    return tuple(_SPECS[name] for name in names)


class Recorder:
    """One trace in the making. ``step`` runs calls and returns what they gave; ``finish`` returns the trace."""

    def __init__(self, kind: str, question: str, executor: ToolExecutor, initial_tools: Sequence[ToolSpec]) -> None:
        self._kind = kind
        self._question = question
        self._executor = executor
        self._initial_tools = tuple(initial_tools)
        self._steps: list[Step] = []

    def step(self, thought: str, *calls: ToolCall) -> list[Json]:
        """Run the calls of one step, in parallel as far as the trace is concerned."""
        outcomes = [self._executor.call(call) for call in calls]
        assert not any(outcome.is_error for outcome in outcomes), [outcome.content for outcome in outcomes]
        self._steps.append(
            Step(
                thought=thought,
                calls=calls,
                results=tuple(ToolResult(index, outcome.content) for index, outcome in enumerate(outcomes)),
                tools_added=tuple(spec for outcome in outcomes for spec in outcome.tools_added),
            )
        )
        return [outcome.content for outcome in outcomes]

    def finish(self, thought: str, answer: str, *, gold: str, entities: Sequence[str]) -> Trace:
        """The trace, without its number (see demo_traces)."""
        metadata: JsonObject = {"kind": self._kind, "gold": gold, "notice": formulary_notice()}
        digest = hashlib.sha256(self._question.encode()).hexdigest()[:12]
        return Trace(
            id=f"draft-{digest}",
            turns=(UserMessage(self._question), *self._steps, Step(thought=thought)),
            answer=answer,
            system=SYSTEM_PROMPT,
            initial_tools=self._initial_tools,
            question_id=f"demo-{digest}",
            entities=tuple(dict.fromkeys(entities)),
            source="demo",
            teacher="scripted",
            license="Apache-2.0",
            metadata=metadata,
        )
