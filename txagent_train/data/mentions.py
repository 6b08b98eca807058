"""Names of tools in running text: where they stand in a trace, and how they are found and replaced.

A name is found only as a whole identifier: ``get_dose`` is in "I call get_dose." and not in "get_dose_form". A name
that is an ordinary word (``search``) is found only in quotation marks or backticks, since the word alone may mean no
tool.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from txagent_train.core.records import FINISH, TOOL_RAG, Json, Step, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.overlong import SUMMARIES

SPECIAL_TOOLS = frozenset({TOOL_RAG, FINISH, "CallAgent", "DirectResponse", "RequireClarification"})
"""Tools of the agent's loop: their names are part of how it works, so they are never renamed."""
_IDENTIFIER = re.compile(r"[_\d]|[a-z][A-Z]")


@dataclass(frozen=True, slots=True)
class Word:
    """What a name is replaced with; only in quotation marks where it is an ordinary word (``quoted``)."""

    new: str
    quoted: bool


def is_identifier(name: str) -> bool:
    """Whether a name can be told from an ordinary word: it has an underscore, a digit or a capital inside."""
    return _IDENTIFIER.search(name) is not None


def count_mentions(text: str, name: str, *, quoted: bool) -> int:
    """How often a name is in a text, as a whole; ``quoted``: only those in quotation marks."""
    return len(_pattern(((name, quoted),)).findall(text)) if name in text else 0


def replace_words(text: str, words: Mapping[str, Word]) -> tuple[str, int]:
    """The text with every word replaced at once, and how many were; of two that overlap, the longer one is meant."""
    found = [(name, word.quoted) for name, word in words.items() if name in text]
    if not found:
        return text, 0
    found.sort(key=lambda item: (-len(item[0]), item[0]))
    return _pattern(tuple(found)).subn(lambda match: words[match[0]].new, text)


@lru_cache(maxsize=4096)  # traces use the same few tools again and again
def _pattern(names: tuple[tuple[str, bool], ...]) -> re.Pattern[str]:
    parts = []
    for name, quoted in names:
        before, after = (r"(?<=[\"'`])", r"(?=[\"'`])") if quoted else (r"(?<!\w)", r"(?!\w)")
        parts.append(f"{before}{re.escape(name)}{after}")
    return re.compile("|".join(parts))


# ---- where names stand in a trace ----


def is_about_tools(step: Step, result: ToolResult) -> bool:
    """Whether a result speaks of tools and not of the world: Tool_RAG's, and an error that answers a call."""
    if result.call_index is None or result.is_error:
        return True
    return step.calls[result.call_index].name == TOOL_RAG


def own_texts(step: Step) -> Iterator[str]:
    """What the model wrote in a step, as far as it is text: also what it told the tools of the loop."""
    yield from (step.thought, step.reasoning, step.summary or "", step.raw_output or "")
    for call in step.calls:
        if call.name in SPECIAL_TOOLS:
            yield from strings(call.arguments)


def agent_texts(trace: Trace) -> Iterator[str]:
    """What the model wrote, and what its loop told it about tools: names in it are names of tools."""
    yield trace.answer or ""
    yield from strings(trace.metadata.get(SUMMARIES))
    for step in trace.steps:
        yield from own_texts(step)
        for result in step.results:
            if is_about_tools(step, result):
                yield from strings(result.content)


def prompt_texts(trace: Trace) -> Iterator[str]:
    """What the model is told: the system prompt, and what the user says."""
    yield trace.system or ""
    yield from (turn.content for turn in trace.turns if isinstance(turn, UserMessage))


def world_texts(trace: Trace, names: Collection[str]) -> Iterator[str]:
    """What ordinary tools are given and return.

    Where a text of a result is one of ``names`` as a whole, it is left out: it is known to be a name.
    """
    for step in trace.steps:
        for call in step.calls:
            if call.name not in SPECIAL_TOOLS:
                yield from strings(call.arguments)
        for result in step.results:
            if not is_about_tools(step, result):
                yield from (text for text in strings(result.content) if text not in names)


def spec_text(spec: ToolSpec) -> str:
    """All that a spec says: a tool may name another one."""
    return joined((spec.description, *strings(spec.parameters)))


def strings(value: Json) -> Iterator[str]:
    """Every text in a JSON value, and every key."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from strings(item)


def joined(texts: Iterable[str]) -> str:
    """Texts as one that can be searched at once: no name reaches over the border of two."""
    return "\n".join(texts)
