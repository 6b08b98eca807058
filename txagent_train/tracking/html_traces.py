"""Renders traces for browsing: folded up, one line each; open, everything that is on record for them."""

from __future__ import annotations

import json

from txagent_train.core.records import Json, Step, StepStatus, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.tracking.markup import count_of, fold, note, text
from txagent_train.tracking.sections import Traces

_RESULT_PREVIEW = 700
_QUESTION_PREVIEW = 160


def render_traces(section: Traces) -> str:
    """All traces of a section, under a box that filters them by words."""
    if not section.traces:
        return f'{note(section.note)}<p class="empty">No traces.</p>'
    labels = section.labels or ("",) * len(section.traces)
    box = '<input class="filter" type="search" placeholder="Filter: words in the trace" aria-label="Filter traces">\n'
    return (
        note(section.note)
        + box
        + "".join(_trace(trace, label) for trace, label in zip(section.traces, labels, strict=True))
    )


def _shorten(value: str, limit: int) -> str:
    return value if len(value) <= limit else value[:limit].rstrip() + "…"


def _pretty(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def _trace(trace: Trace, label: str) -> str:
    pill = f'<span class="pill">{text(label)}</span>' if label else ""
    question = text(_shorten(" ".join(trace.question.split()) or trace.id, _QUESTION_PREVIEW))
    count = f'<span class="count">{count_of(len(trace.steps), "step")}</span>'
    return f'<details class="trace"><summary>{pill}{question}{count}</summary><div>{_body(trace)}</div></details>\n'


def _body(trace: Trace) -> str:
    parts = [_facts(trace)]
    if trace.system:
        parts.append(fold("System prompt", f"<pre>{text(trace.system)}</pre>"))
    if trace.initial_tools:
        parts.append(
            fold(f"{count_of(len(trace.initial_tools), 'tool')} at the start", "".join(map(_tool, trace.initial_tools)))
        )
    number = 0
    for turn in trace.turns:
        if isinstance(turn, UserMessage):
            parts.append(f'<div class="step user"><div class="role">User</div>{_prose(turn.content)}</div>\n')
        else:
            number += 1
            parts.append(_step(turn, number))
    if trace.answer is not None:
        parts.append(f'<div class="step answer"><div class="role">Answer</div>{_prose(trace.answer)}</div>\n')
    return "".join(parts)


def _facts(trace: Trace) -> str:
    facts = [f"id {trace.id}"]
    named = (("question", trace.question_id), ("source", trace.source), ("teacher", trace.teacher))
    facts += [f"{name} {value}" for name, value in named if value]
    if trace.entities:
        facts.append(f"entities {', '.join(trace.entities)}")
    if not trace.is_complete:
        facts.append("no answer")
    return f'<div class="facts">{text(" · ".join(facts))}</div>\n'


def _tool(tool: ToolSpec) -> str:
    schema = f"<pre>{text(_pretty(tool.parameters))}</pre>"
    return fold(f"<code>{text(tool.name)}</code>", f'<p class="prose">{text(tool.description)}</p>{schema}')


def _prose(value: str) -> str:
    return f'<div class="prose">{text(value.strip())}</div>'


def _step(step: Step, number: int) -> str:
    marks = ""
    if step.status is not StepStatus.OK:
        marks += f' <span class="pill bad">{step.status}</span>'
    if not step.train:
        marks += ' <span class="pill">not trained on</span>'
    elif step.weight != 1.0:
        marks += f' <span class="pill">weight {step.weight:g}</span>'
    parts = [f'<div class="role">Step {number}{marks}</div>']
    if step.reasoning:
        parts.append(fold("Reasoning", _prose(step.reasoning)))
    if step.thought.strip():
        parts.append(_prose(step.thought))
    if step.raw_output:
        parts.append(f"<pre>{text(step.raw_output)}</pre>")
    results = {result.call_index: result for result in step.results}
    for index, call in enumerate(step.calls):
        parts.append(_call(call))
        if index in results:
            parts.append(_result(results[index]))
    parts += [_result(result) for result in step.results if result.call_index is None]
    if step.summary is not None:
        parts.append(f'<div class="role">Summary of the results</div>{_prose(step.summary)}')
    if step.tools_added:
        parts.append(fold(f"{count_of(len(step.tools_added), 'tool')} added", "".join(map(_tool, step.tools_added))))
    return f'<div class="step">{"".join(parts)}</div>\n'


def _call(call: ToolCall) -> str:
    return f"<pre><b>{text(call.name)}</b> {text(_pretty(call.arguments))}</pre>"


def _result(result: ToolResult) -> str:
    content = _pretty(result.content)
    marks = [word for word, applies in (("error", result.is_error), ("shortened", result.truncated)) if applies]
    role = f'<div class="role">{", ".join(["Result", *marks])}</div>'
    whole = f"<pre>{text(content)}</pre>"
    if len(content) > _RESULT_PREVIEW:
        more = f"<span>show or hide all {len(content):,} characters</span>"
        whole = fold(f"<pre>{text(_shorten(content, _RESULT_PREVIEW))}</pre>{more}", whole, "long")
    nested = "" if result.sub_trace is None else fold("Trace of the called agent", _body(result.sub_trace))
    return f'<div class="{"error" if result.is_error else "result"}">{role}{whole}{nested}</div>'
