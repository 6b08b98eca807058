"""What a version of a tool must keep. Only what passes all checks is written to the file."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.mentions import count_mentions, is_identifier
from txagent_train.data.rewrites import ArgumentRewrite, ToolRewrite
from txagent_train.data.spelling import is_valid_name, text_fault
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.drafts import Draft, Job
from txagent_train.toolsmith.embedding import Embedder
from txagent_train.toolsmith.literals import Literals
from txagent_train.toolsmith.namewords import NameWords
from txagent_train.toolsmith.reserved import reserved_names
from txagent_train.toolsmith.samples import SampleCalls
from txagent_train.toolsmith.synonyms import argument_description, properties
from txagent_train.toolsmith.words import one_line

_BLOCK = 512
"""Versions embedded at once; bounds the memory."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checks say of a draft: ``rewrite`` where it passed, else ``problems``.

    A problem is a short, stable identifier, and what was met: ``("name_taken", "get_dose")``.
    """

    rewrite: ToolRewrite | None
    problems: tuple[tuple[str, str], ...] = ()


class Checker:
    """Checks the versions of a toolbox, and remembers what passed: names and texts must not come twice.

    Problems: ``invalid_name``, ``name_taken``, ``no_description``, ``description_repeated``, ``names_the_original``,
    ``arguments_differ``, ``invalid_argument_name``, ``argument_name_taken``, ``argument_name_fixed``,
    ``no_argument_description``, ``unprintable_text``, ``name_lost_words``, ``value_lost``, ``word_doubled``,
    ``schema_changed``, ``call_breaks``, ``closer_to_another_tool``.
    """

    def __init__(self, toolbox: Toolbox, embedder: Embedder) -> None:
        self._embedder = embedder
        self._names = set(reserved_names(toolbox))
        self._texts: dict[str, set[str]] = defaultdict(set)
        for tool in toolbox.tools:
            self._texts[tool.name].add(tool.description)
        self._tools = tuple(tool.name for tool in toolbox.tools)
        self._place = {name: index for index, name in enumerate(self._tools)}
        self._originals = embedder.embed(toolbox.tools)  # [tools, D]
        self._kept: dict[str, Kept] = {}

    def check(self, drafts: Sequence[tuple[Job, Draft]]) -> list[Verdict]:
        """One verdict for each draft; of two that clash, the first passes."""
        found = [(job, draft, list(draft_problems(job.spec, draft, self._of(job.spec)))) for job, draft in drafts]
        sound = [(job, draft) for job, draft, problems in found if not problems]
        nearest = iter(self._nearer_tools(sound))
        verdicts = []
        for job, draft, problems in found:
            other = "" if problems else next(nearest)
            if other:
                problems.append(("closer_to_another_tool", other))
            problems += self._clashes(job.spec, draft)
            verdicts.append(self._verdict(job, draft, problems))
        return verdicts

    def _of(self, spec: ToolSpec) -> Kept:
        return self._kept.get(spec.name) or self._kept.setdefault(spec.name, Kept.of(spec))

    def _verdict(self, job: Job, draft: Draft, problems: list[tuple[str, str]]) -> Verdict:
        if problems:
            return Verdict(None, tuple(problems))
        self._names.add(draft.name.casefold())
        self._texts[job.spec.name].add(draft.description)
        return Verdict(rewrite_of(job.spec, job.version, draft))

    def _clashes(self, spec: ToolSpec, draft: Draft) -> Iterator[tuple[str, str]]:
        if draft.name.casefold() in self._names:
            yield "name_taken", draft.name
        if draft.description in self._texts[spec.name]:
            yield "description_repeated", draft.description

    def _nearer_tools(self, drafts: Sequence[tuple[Job, Draft]]) -> list[str]:
        """For each draft the other tool that it is closer to than to its own, or "".

        Tools that nothing tells apart are equally close; that is not the fault of a version.
        """
        found: list[str] = []
        for start in range(0, len(drafts), _BLOCK):
            block = drafts[start : start + _BLOCK]
            specs = [rewrite_of(job.spec, job.version, draft).spec(job.spec) for job, draft in block]
            near = self._embedder.embed(specs) @ self._originals.T  # [block, tools]
            own = near[np.arange(len(block)), [self._place[job.spec.name] for job, _ in block]]
            best = near.argmax(axis=1)
            closer = near[np.arange(len(block)), best] > own + 1e-5
            found += [self._tools[other] if is_closer else "" for other, is_closer in zip(best, closer, strict=True)]
        return found


def rewrite_of(spec: ToolSpec, version: int, draft: Draft) -> ToolRewrite:
    """The record of a draft."""
    return ToolRewrite(spec.name, version, draft.name, draft.description, draft.arguments)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a version of a tool has to keep."""

    words: NameWords
    literals: Literals
    calls: SampleCalls

    @classmethod
    def of(cls, spec: ToolSpec) -> Kept:
        return cls(NameWords.of(spec), Literals.of(spec), SampleCalls(spec))


def draft_problems(spec: ToolSpec, draft: Draft, kept: Kept) -> Iterator[tuple[str, str]]:
    """What is wrong with a draft, whatever other versions there are."""
    fault = next(filter(None, map(text_fault, _texts(draft))), "")
    if fault:
        yield "unprintable_text", fault
        return
    if not is_valid_name(draft.name):
        yield "invalid_name", draft.name
    elif lost := kept.words.lost(draft.name):
        yield "name_lost_words", ", ".join(lost)
    if not draft.description.strip():
        yield "no_description", ""
    old = properties(spec)
    if set(draft.arguments) != set(old):
        differ = sorted(set(draft.arguments) ^ set(old))
        yield "arguments_differ", ", ".join(differ)
        return
    yield from _argument_problems(old, draft, kept.literals)
    yield from _mentions(spec, draft, kept.literals)
    yield from (("value_lost", value) for value in _lost_values(spec, draft, kept.literals))
    yield from (("word_doubled", word) for word in _doubled_words(spec, draft))
    try:
        yield from _schema_problems(spec, rewrite_of(spec, 1, draft), kept.calls)
    except DataError as error:
        yield "schema_changed", error.problem


def _argument_problems(old: JsonObject, draft: Draft, literals: Literals) -> Iterator[tuple[str, str]]:
    taken = [argument.name.casefold() for argument in draft.arguments.values()]
    for name, argument in draft.arguments.items():
        if argument.name != name and not is_valid_name(argument.name):
            yield "invalid_argument_name", argument.name
        if argument.name != name and name in literals.kept:
            yield "argument_name_fixed", name
        # The name of another old argument would make a call by the old names mean something else.
        if taken.count(argument.name.casefold()) > 1 or (argument.name != name and argument.name in old):
            yield "argument_name_taken", argument.name
        if one_line(argument_description(old[name])) and not argument.description.strip():
            yield "no_argument_description", name


def _texts(draft: Draft) -> Iterator[str]:
    yield from (draft.name, draft.description)
    for old, argument in draft.arguments.items():
        yield from (old, argument.name, argument.description)


def _mentions(spec: ToolSpec, draft: Draft, literals: Literals) -> Iterator[tuple[str, str]]:
    texts = [draft.description, *(argument.description for argument in draft.arguments.values())]
    # A value may be spelt like a name.
    shown = [literals.without(text) for text in texts]
    for name in (spec.name, *draft.arguments):
        # A name that is kept, or is an ordinary word, gives nothing away.
        kept = name in draft.arguments and draft.arguments[name].name == name
        if is_identifier(name) and not kept and any(count_mentions(text, name, quoted=False) for text in shown):
            yield "names_the_original", name


def _lost_values(spec: ToolSpec, draft: Draft, literals: Literals) -> list[str]:
    lost = set(literals.lost(spec.description, draft.description))
    for name, schema in properties(spec).items():
        lost.update(literals.lost(argument_description(schema), draft.arguments[name].description))
    return sorted(lost)


_DOUBLED = re.compile(r"\b([^\W\d_]{3,}) \1\b", re.IGNORECASE)


def _doubled_words(spec: ToolSpec, draft: Draft) -> Iterator[str]:
    """Words that stand twice in a row, as a synonym put beside itself does, and not in the original."""
    old = properties(spec)
    pairs = [(spec.description, draft.description)]
    pairs += [(argument_description(old[name]), argument.description) for name, argument in draft.arguments.items()]
    for before, after in pairs:
        known = {match[1].casefold() for match in _DOUBLED.finditer(before)}
        yield from (match[1] for match in _DOUBLED.finditer(after) if match[1].casefold() not in known)


def _schema_problems(spec: ToolSpec, rewrite: ToolRewrite, calls: SampleCalls) -> Iterator[tuple[str, str]]:
    """Only names and descriptions have changed: the way back gives the original, and calls are as valid as before."""
    old = properties(spec)
    given_back = {
        argument.name: ArgumentRewrite(name, argument_description(old[name]))
        for name, argument in rewrite.arguments.items()
    }
    back = ToolRewrite(rewrite.name, 1, spec.name, spec.description, given_back)
    shown = rewrite.spec(spec)
    if json.dumps(back.spec(shown).parameters) != json.dumps(spec.parameters):
        yield "schema_changed", ""
    broken = calls.broken_by(rewrite, shown)
    if broken is not None:
        yield "call_breaks", json.dumps(broken)
