"""Names of tools in running text: where they stand in a trace, and how they are found and replaced.

A name is found only as a whole: ``get_dose`` is in "I call get_dose." and not in "get_dose_form". A name that may be an
ordinary word (``search``) is found only where it stands as a tool, since the word alone may mean none: in quotation
marks or backticks, as a call ("search(q)"), in a list of tools; with a capital (``Search``) also inside a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from txagent_train.core.records import FINISH, TOOL_RAG, Json, Step, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.overlong import SUMMARIES
from txagent_train.data.toollists import told_texts

SPECIAL_TOOLS = frozenset({TOOL_RAG, FINISH, "CallAgent", "DirectResponse", "RequireClarification"})
"""Tools of the agent's loop: their names are part of how it works, so they are never renamed."""
_ORDINARY = re.compile(r"[A-Za-z][a-z]*|[A-Z]+")
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts without spaces, or that write endings on to foreign words: a name ends where their letters begin."""
_CURLED = "\u2018\u2019\u201c\u201d\u00ab\u00bb"
_RARE = re.compile(f"[{_UNSPACED}{_CURLED}]")
_ENTRY = r"(?:^|(?<=[\n,])|(?<=[,:;|*\u2022] )|(?<=\n- )|(?<=^- )|(?<=\d[.)] ))"
_ENTRY_END = r"(?=\s*(?:[,:;|\n(]|\.?\s*$|\.\n)| [-\u2013\u2014] )"
_RUN = re.compile(r"(?:\\[nrt])?([a-z0-9_]+)")


@dataclass(frozen=True, slots=True)
class Word:
    """What a name is replaced with; only where it stands as a tool if it may be an ordinary word (``quoted``)."""

    new: str
    quoted: bool


def is_identifier(name: str) -> bool:
    """Whether a name can be told from an ordinary word: that has ASCII letters alone, none, one or all capital."""
    return _ORDINARY.fullmatch(name) is None


def count_mentions(text: str, name: str, *, quoted: bool, listed: bool = False, any_case: bool = False) -> int:
    """How often a name is in a text, as a whole.

    Args:
        quoted: only where it stands as a tool.
        listed: the text may be a list of tools.
        any_case: in other letter case too.
    """
    if not any_case and name not in text:
        return 0
    return sum(1 for _ in _pattern(((name, quoted),), _is_rare(text), listed, any_case).finditer(text))


def is_in_other_case(text: str, name: str) -> bool:
    """Whether a text has a name in other letters, large or small, than it is written in."""
    if text.casefold().count(name.casefold()) == text.count(name):
        return False
    counts = (count_mentions(text, name, quoted=False, any_case=any_case) for any_case in (True, False))
    return next(counts) > next(counts)


def replace_words(text: str, words: Mapping[str, Word], *, listed: bool = False) -> tuple[str, int]:
    """The text with every word replaced at once, and how many were; of two that overlap, the longer one is meant."""
    found = [(name, word.quoted) for name, word in words.items() if name in text]
    if not found:
        return text, 0
    found.sort(key=lambda item: (-len(item[0]), item[0]))
    pattern = _pattern(tuple(found), _is_rare(text), listed, any_case=False)
    return pattern.subn(lambda match: words[match[0]].new, text)


def _is_rare(text: str) -> bool:
    return not text.isascii() and _RARE.search(text) is not None


@lru_cache(maxsize=4096)  # traces use the same few tools again and again
def _pattern(names: tuple[tuple[str, bool], ...], rare: bool, listed: bool, any_case: bool) -> re.Pattern[str]:
    # Large sets of letters take milliseconds to compile, so only texts that have such letters meet them.
    letter, quotes = (rf"[^\W{_UNSPACED}]", rf"\"'`{_CURLED}") if rare else (r"\w", "\"'`")
    begin = rf"(?:(?<!{letter})|(?<=\\[nrt]))"  # "\n" as JSON has it in a text is no letter of a name either
    parts = []
    for name, quoted in names:
        exact = re.escape(name)
        free = f"(?i:{exact})" if any_case else exact
        if not quoted:
            parts.append(f"{begin}{free}(?!{letter})")
            continue
        parts.append(rf"(?<=[{quotes}]){free}(?=[{quotes}\\])")
        parts.append(rf"{begin}{free}(?=\((?!e?s\)))")  # a call, but not "dose(s)"
        if name.isupper() and len(name) > 1:
            parts.append(f"{begin}{exact}(?!{letter})")
        elif name[0].isupper():
            parts.append(rf"(?<=[\w,;)] ){exact}(?!{letter})")
        if listed:
            parts.append(f"{_ENTRY}{free}{_ENTRY_END}")
    return re.compile("|".join(parts))


_KEY_END = re.compile(r"\\*\"\s*:")


def without_keys(text: str) -> str:
    """The text with the keys of JSON objects in it out of their quotation marks: there an ordinary word is no tool."""
    return _KEY_END.sub(":", text)


# ---- many names at once ----


def runs(text: str) -> list[str]:
    """The small letters, digits and underscores of a text as they stand together; what is no name is soon told."""
    return _RUN.findall(text.casefold())


@lru_cache(maxsize=65536)
def key_of(name: str) -> str:
    """A run that every text has which names this, in any letter case; "" where there is none."""
    return max(re.findall(r"[a-z0-9_]+", name.casefold()), key=len, default="")


class Names:
    """Finds any of many names in a text, in any letter case, in a time that does not grow with their number."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_key: dict[str, list[str]] = {}
        for name in sorted(names):
            self._by_key.setdefault(key_of(name), []).append(name)

    def may_be_in(self, text: str) -> bool:
        """Whether a text may have one of them: a quick look, which only its No is sure of."""
        return "" in self._by_key or not self._by_key.keys().isdisjoint(runs(text))

    def first(self, text: str, *, words: bool = True) -> str | None:
        """One of the names that the text has; ``words``: also of those that may be ordinary words."""
        for key in sorted(self._by_key.keys() & {"", *runs(text)}):
            for name in self._by_key[key]:
                if is_identifier(name):
                    found = count_mentions(text, name, quoted=False, any_case=True)
                else:
                    found = words and count_mentions(without_keys(text), name, quoted=True, any_case=True)
                if found:
                    return name
        return None


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


def model_texts(trace: Trace) -> Iterator[str]:
    """What the model wrote, and summaries of what tools told it."""
    yield trace.answer or ""
    yield from strings(trace.metadata.get(SUMMARIES))
    for step in trace.steps:
        yield from own_texts(step)


def told_about_tools(trace: Trace) -> Iterator[str]:
    """What the loop told the model about tools, text by text: names in it are names of tools."""
    for step in trace.steps:
        for result in step.results:
            if is_about_tools(step, result):
                yield from told_texts(result.content)


def prompt_texts(trace: Trace) -> Iterator[str]:
    """What the model is told: the system prompt, and what the user says."""
    yield trace.system or ""
    yield from (turn.content for turn in trace.turns if isinstance(turn, UserMessage))


def world_texts(trace: Trace, names: Collection[str] = (), *, keys: bool = True) -> Iterator[str]:
    """What ordinary tools are given and return, text by text.

    Where a text of a result is one of ``names`` as a whole, it is left out: it is known to be a name.
    """
    for step in trace.steps:
        for call in step.calls:
            if call.name not in SPECIAL_TOOLS:
                for value in call.arguments.values():
                    yield from strings(value, keys=keys)
        for result in step.results:
            if not is_about_tools(step, result):
                yield from (text for text in strings(result.content, keys=keys) if text not in names)


def spec_text(spec: ToolSpec) -> str:
    """All that a spec says: a tool may name another one."""
    return joined((spec.description, *strings(spec.parameters)))


def reads_alike(one: ToolSpec, other: ToolSpec) -> bool:
    """Whether two specs are the same to a model, wherever they were read from."""
    return one is other or (
        (one.name, one.description) == (other.name, other.description) and one.parameters == other.parameters
    )


def strings(value: Json, *, keys: bool = True) -> Iterator[str]:
    """Every text in a JSON value, and every key."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item, keys=keys)
    elif isinstance(value, dict):
        if keys:
            yield from value
        for item in value.values():
            yield from strings(item, keys=keys)


def joined(texts: Iterable[str]) -> str:
    """Texts as one that can be searched at once: no name reaches over the border of two."""
    return "\n".join(texts)
