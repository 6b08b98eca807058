"""Questions with a short gold answer, answered by the whole agent with its tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txagent_train.agent.loop import AgentSettings, AgentTask, run_agents
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, StepStatus, Trace
from txagent_train.scoring.answers import answer_matches, answer_tokens
from txagent_train.scoring.intervals import Rate, rate, rate_to_json

if TYPE_CHECKING:
    from txagent_train.agent.backends import Backend
    from txagent_train.agent.tools import ToolExecutor
    from txagent_train.rendering.renderer import Renderer


@dataclass(frozen=True, slots=True)
class GoldQuestion:
    """A task for the agent, and the spellings of its right answer (one is enough)."""

    task: AgentTask
    gold: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.gold or not all(answer_tokens(spelling) for spelling in self.gold):
            raise DataError("a gold answer is missing or empty", reason="no_gold_answer", trace_id=self.task.id)


def gold_question(trace: Trace) -> GoldQuestion:
    """The question of a recorded trace, with what the agent had at its start.

    ``trace.metadata["gold"]`` is the answer, or a list of its spellings.

    Raises:
        DataError: the trace has no gold answer, or one that is not text.
    """
    gold = trace.metadata.get("gold")
    spellings: list[object] = gold if isinstance(gold, list) else [gold]
    texts = tuple(spelling for spelling in spellings if isinstance(spelling, str))
    if len(texts) != len(spellings):
        raise DataError(
            f"metadata.gold is {gold!r}",
            reason="no_gold_answer",
            trace_id=trace.id,
            fix="give text, or a list of texts",
        )
    task = AgentTask(
        id=trace.id,
        question=trace.question,
        system=trace.system,
        initial_tools=trace.initial_tools,
        question_id=trace.question_id,
        entities=trace.entities,
    )
    return GoldQuestion(task, texts)


@dataclass(frozen=True, slots=True)
class QuestionItem:
    """One question and the agent's trace on it."""

    gold: tuple[str, ...]
    trace: Trace
    correct: bool

    def to_json(self) -> JsonObject:
        return {
            "id": self.trace.id,
            "question": self.trace.question,
            "gold": list(self.gold),
            "answer": self.trace.answer,
            "correct": self.correct,
            "stop_reason": self.trace.metadata["stop_reason"],
            "steps": len(self.trace.steps),
        }


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The items, in the order of the questions."""

    items: tuple[QuestionItem, ...]

    @property
    def accuracy(self) -> Rate:
        """Share of questions whose answer gives the gold answer; no answer is a wrong answer."""
        return rate([item.correct for item in self.items])

    @property
    def traces(self) -> tuple[Trace, ...]:
        return tuple(item.trace for item in self.items)

    def outcomes(self) -> Mapping[str, Mapping[str, bool]]:
        """For each metric whether each item, by id, is right: what evaluation.comparison compares."""
        return {"answer": {item.trace.id: item.correct for item in self.items}}

    def to_json(self) -> JsonObject:
        """Figures and items, without the traces."""
        steps = [step for trace in self.traces for step in trace.steps]
        results = [result for step in steps for result in step.results if result.call_index is not None]
        return {
            "accuracy": rate_to_json(self.accuracy),
            "stop_reasons": dict(Counter(trace.metadata["stop_reason"] for trace in self.traces)),
            "steps": len(steps),
            "unparsable_steps": sum(step.status is StepStatus.UNPARSABLE for step in steps),
            "cut_steps": sum(len(trace.metadata["cut_steps"]) for trace in self.traces),
            "calls": len(results),
            "failed_calls": sum(result.is_error for result in results),
            "items": [item.to_json() for item in self.items],
        }


def evaluate_questions(
    questions: Sequence[GoldQuestion],
    *,
    backend: Backend,
    renderer: Renderer,
    executor: ToolExecutor,
    settings: AgentSettings,
    model_name: str = "",
) -> QuestionResult:
    """Run the agent on every question and score its answers.

    Raises:
        DataError: two questions have the same id, or a question does not fit into the model's context.
    """
    tasks = [question.task for question in questions]
    if len({task.id for task in tasks}) != len(tasks):
        raise DataError("two questions of the evaluation have the same id", reason="duplicate_id")
    traces = run_agents(
        tasks, backend=backend, renderer=renderer, executor=executor, settings=settings, model_name=model_name
    )
    return QuestionResult(
        tuple(
            QuestionItem(question.gold, trace, trace.answer is not None and answer_matches(trace.answer, question.gold))
            for question, trace in zip(questions, traces, strict=True)
        )
    )
