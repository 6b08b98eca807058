"""The multi-step loop: the model thinks and calls, the executor answers, until there is an answer.

Many questions go through it together. In each round every unfinished one gives its next prompt, the back end
generates for all of them at once, and each takes its output: runs a step's calls, or ends. One question is the
case of one.

A run always ends in one of these ways, and its trace says in which (``metadata["stop_reason"]``):

    answer        the model gave its answer
    step_limit    after max_steps outputs the answer was forced (paper's inference code)
    unparsable    max_unparsable outputs in a row held no readable call, and the answer was forced
    context_full  the next prompt left no room in the context, and the answer was forced
    no_answer     the forced output held no answer, or not even its prompt found room; the trace has no answer
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from txagent_train.core.errors import DataError
from txagent_train.core.records import (
    JsonObject,
    Step,
    StepStatus,
    ToolResult,
    ToolSpec,
    Trace,
    Turn,
    UserMessage,
)
from txagent_train.rendering.wire import FINAL_ANSWER_MARKER, FINISH_TOOL

if TYPE_CHECKING:
    from txagent_train.agent.backends import Backend, Generation
    from txagent_train.agent.tools import ToolExecutor
    from txagent_train.rendering.renderer import Renderer

INVALID_CALL = "Not a valid function call, please check the function call format."
"""What the model is told after an output without a readable call (TxAgent's own words)."""

FORCED_BEGINNING = (
    "Since I cannot continue reasoning, I will provide the final answer based on the current information and general "
    "knowledge.\n\n"
)
"""How a forced answer begins (TxAgent's own words); the model goes on from here."""


class StopReason(StrEnum):
    """How a run ended; see the module."""

    ANSWER = "answer"
    STEP_LIMIT = "step_limit"
    UNPARSABLE = "unparsable"
    CONTEXT_FULL = "context_full"
    NO_ANSWER = "no_answer"


@dataclass(frozen=True, slots=True)
class AgentTask:
    """One question, and what the agent has at its start."""

    id: str
    question: str
    system: str | None = None
    initial_tools: tuple[ToolSpec, ...] = ()
    question_id: str = ""
    entities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Limits of a run. An answer is forced after ``max_steps`` outputs, or ``max_unparsable`` unreadable in a row."""

    max_steps: int = 20
    max_unparsable: int = 5
    max_new_tokens: int = 1024
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.max_steps, self.max_unparsable, self.max_new_tokens) < 1:
            raise ValueError("max_steps, max_unparsable and max_new_tokens must be 1 or more")


@dataclass(slots=True)
class _Run:
    """A trace in the making."""

    task: AgentTask
    turns: list[Turn]
    tools: list[ToolSpec]
    started: float
    steps: int = 0
    unparsable_in_a_row: int = 0
    answer: str | None = None
    forced_because: StopReason | None = None
    stop_reason: StopReason | None = None
    generated_tokens: int = 0
    prompt_tokens: list[int] = field(default_factory=list)
    cut_steps: list[int] = field(default_factory=list)
    tool_seconds: float = 0.0
    seconds: float = 0.0


class _Loop:
    """What all runs share."""

    def __init__(
        self, backend: Backend, renderer: Renderer, executor: ToolExecutor, settings: AgentSettings, model_name: str
    ) -> None:
        self.backend = backend
        self.renderer = renderer
        self.executor = executor
        self.settings = settings
        self.model_name = model_name
        marker = FINAL_ANSWER_MARKER if renderer.wire.finish == "call" else ""
        self.forced_ids = renderer.text_ids(FORCED_BEGINNING + marker)

    def next_prompt(self, run: _Run) -> list[int] | None:
        """The ids to go on from; None where nothing fits any more and the run has ended."""
        if run.steps >= self.settings.max_steps:
            run.forced_because = StopReason.STEP_LIMIT
        elif run.unparsable_in_a_row >= self.settings.max_unparsable:
            run.forced_because = StopReason.UNPARSABLE
        else:
            prompt = self._prompt(run, run.tools)
            if self._fits(prompt):
                return prompt
            run.forced_because = StopReason.CONTEXT_FULL
        for tools in self._forced_tools(run):
            prompt = [*self._prompt(run, tools), *self.forced_ids]
            if self._fits(prompt):
                return prompt
        if not run.steps:
            raise DataError(
                f"the question takes {len(prompt)} tokens with its answer's beginning, and the answer may take "
                f"{self.settings.max_new_tokens}; the model's context holds {self.backend.context_length}",
                reason="context_full",
                trace_id=run.task.id,
                fix="shorten the question or lower max_new_tokens",
            )
        self._end(run, StopReason.NO_ANSWER)
        return None

    def take(self, run: _Run, prompt: Sequence[int], generation: Generation) -> None:
        """Put one output into its run."""
        run.prompt_tokens.append(len(prompt))
        run.generated_tokens += len(generation.ids)
        if not generation.stopped:
            run.cut_steps.append(run.steps)
        if run.forced_because is not None:
            self._take_forced(run, generation)
            return
        parsed = self.renderer.parse(generation.ids)
        if parsed.answer is not None:
            self._add(run, parsed.step)
            run.answer = parsed.answer
            self._end(run, StopReason.ANSWER)
        elif parsed.step.status is StepStatus.UNPARSABLE:
            self._add(run, replace(parsed.step, results=(ToolResult(None, INVALID_CALL, is_error=True),)))
        else:
            self._add(run, self._execute(run, parsed.step))

    def trace(self, run: _Run) -> Trace:
        task = run.task
        metadata: JsonObject = {
            "stop_reason": str(run.stop_reason),
            "seconds": round(run.seconds, 3),
            "tool_seconds": round(run.tool_seconds, 3),
            "generated_tokens": run.generated_tokens,
            "prompt_tokens": run.prompt_tokens,
            "cut_steps": run.cut_steps,
        }
        if run.forced_because is not None:
            metadata["forced_because"] = str(run.forced_because)
        return Trace(
            id=task.id,
            turns=tuple(run.turns),
            answer=run.answer,
            system=task.system,
            initial_tools=task.initial_tools,
            question_id=task.question_id,
            entities=task.entities,
            source="agent",
            teacher=self.model_name,
            metadata=metadata,
        )

    def _prompt(self, run: _Run, tools: Sequence[ToolSpec]) -> list[int]:
        return self.renderer.prompt_ids(trace_id=run.task.id, system=run.task.system, tools=tools, turns=run.turns)

    def _forced_tools(self, run: _Run) -> Iterator[Sequence[ToolSpec]]:
        """The tools that a forced answer may be given with; those that come first are taken where they fit.

        A list that never changes (wire.tool_delivery) does not change for the last prompt either.
        """
        if self.renderer.wire.tool_delivery == "result":
            yield run.tools
        # The wire format adds Finish, which is then the only tool listed. That also makes the prompt much shorter.
        yield (FINISH_TOOL,)

    def _fits(self, prompt: Sequence[int]) -> bool:
        return len(prompt) + self.settings.max_new_tokens <= self.backend.context_length

    def _take_forced(self, run: _Run, generation: Generation) -> None:
        # With finish "call" the marker in the beginning tells the parser where the answer starts; with finish
        # "text" the whole message is the answer, and the beginning is not part of it.
        beginning = self.forced_ids if self.renderer.wire.finish == "call" else []
        parsed = self.renderer.parse([*beginning, *generation.ids])
        if parsed.answer is not None:
            self._add(run, replace(parsed.step, status=StepStatus.FORCED))
            run.answer = parsed.answer
            self._end(run, run.forced_because)
            return
        text = self.renderer.tokenizer.decode([*self.forced_ids, *generation.ids], skip_special_tokens=False)
        self._add(run, Step(thought=parsed.step.thought, raw_output=text, status=StepStatus.FORCED))
        self._end(run, StopReason.NO_ANSWER)

    def _execute(self, run: _Run, step: Step) -> Step:
        """Run the calls in order. The tools that they add are seen from the next step on, each name once."""
        started = time.perf_counter()
        results: list[ToolResult] = []
        added: list[ToolSpec] = []
        for index, call in enumerate(step.calls):
            outcome = self.executor.call(call)
            results.append(ToolResult(index, outcome.content, outcome.is_error, outcome.truncated))
            for spec in outcome.tools_added:
                if all(spec.name != known.name for known in (*run.tools, *added)):
                    added.append(spec)
        run.tools.extend(added)
        run.tool_seconds += time.perf_counter() - started
        return replace(step, results=tuple(results), tools_added=tuple(added))

    def _add(self, run: _Run, step: Step) -> None:
        run.turns.append(step)
        run.steps += 1
        run.unparsable_in_a_row = run.unparsable_in_a_row + 1 if step.status is StepStatus.UNPARSABLE else 0

    def _end(self, run: _Run, reason: StopReason | None) -> None:
        run.stop_reason = reason
        run.seconds = time.perf_counter() - run.started


def run_agents(
    tasks: Sequence[AgentTask],
    *,
    backend: Backend,
    renderer: Renderer,
    executor: ToolExecutor,
    settings: AgentSettings,
    model_name: str = "",
) -> list[Trace]:
    """Run the agent on every task; one trace a task, in their order.

    Each trace's ``metadata``: stop_reason; forced_because (where an answer was forced); seconds (from the start of
    the batch to the end of this run) and tool_seconds; generated_tokens; prompt_tokens of each output; cut_steps
    (the steps whose output hit max_new_tokens).

    Raises:
        DataError: a question alone does not fit into the model's context (reason ``context_full``).
    """
    loop = _Loop(backend, renderer, executor, settings, model_name)
    started = time.perf_counter()
    runs = [_Run(task, [UserMessage(task.question)], list(task.initial_tools), started) for task in tasks]
    while unfinished := [run for run in runs if run.stop_reason is None]:
        pairs = [(run, prompt) for run in unfinished if (prompt := loop.next_prompt(run)) is not None]
        generations = backend.generate(
            [prompt for _, prompt in pairs],
            max_new_tokens=settings.max_new_tokens,
            temperature=settings.temperature,
            seed=settings.seed,
        )
        for (run, prompt), generation in zip(pairs, generations, strict=True):
            loop.take(run, prompt, generation)
    return [loop.trace(run) for run in runs]


def run_agent(
    task: AgentTask,
    *,
    backend: Backend,
    renderer: Renderer,
    executor: ToolExecutor,
    settings: AgentSettings,
    model_name: str = "",
) -> Trace:
    """Run the agent on one task; see run_agents."""
    (trace,) = run_agents(
        [task], backend=backend, renderer=renderer, executor=executor, settings=settings, model_name=model_name
    )
    return trace
