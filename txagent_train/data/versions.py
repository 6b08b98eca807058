"""Which version of each tool a trace shows: one of its rewrites, or the original.

A version is taken only where the way back stays open and nothing is said of the tool under its old name: its name is
that of no other tool and stands nowhere in the trace, and no argument that a call adds has one of its new names. A tool
that is named where nothing may be changed (by the user, the system prompt, a result) stays as it is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from txagent_train.core.errors import DataError
from txagent_train.core.records import ToolSpec, Trace
from txagent_train.data.mentions import (
    SPECIAL_TOOLS,
    Word,
    agent_texts,
    count_mentions,
    is_identifier,
    joined,
    prompt_texts,
    replace_words,
    spec_text,
    world_texts,
)
from txagent_train.data.renaming import Change, Renaming, told
from txagent_train.data.rewrites import RewriteSet, ToolRewrite


@dataclass(slots=True)
class SpecCache:
    """Rewritten specs by tool and version: they are big, and the same few are shown again and again."""

    _known: dict[tuple[str, int], Change] = field(default_factory=dict)

    def change(self, spec: ToolSpec, rewrite: ToolRewrite) -> Change | None:
        """The change that a version makes; None where the spec is not the tool that was rewritten."""
        known = self._known.get((rewrite.tool, rewrite.version))
        if known is not None and known.old == spec:
            return known
        try:
            new = rewrite.spec(spec)
        except DataError:
            return None
        names = {old: argument.name for old, argument in rewrite.arguments.items()}
        made = Change(spec, new, names)
        self._known[rewrite.tool, rewrite.version] = made
        return made


def choose_versions(
    trace: Trace,
    rewrites: RewriteSet,
    cache: SpecCache,
    rng: random.Random,
    *,
    originals: bool,
    counts: Counter[str],
) -> Renaming:
    """The renaming of one trace.

    Args:
        originals: the original is one of the versions.
        counts: gets ``tools_renamed``, the tools that kept their version for want of one that fits (``kept_*``), and
            ``mentions_ambiguous``: mentions that were left because they may mean something else.
    """
    return _Choice(trace, rewrites, cache, rng, originals, counts).renaming()


class _Choice:
    """The choice for one trace; ``taken`` are the names that no tool may get any more."""

    def __init__(
        self,
        trace: Trace,
        rewrites: RewriteSet,
        cache: SpecCache,
        rng: random.Random,
        originals: bool,
        counts: Counter[str],
    ) -> None:
        self._rewrites, self._cache, self._rng, self._originals = rewrites, cache, rng, originals
        self._counts = counts
        self._tools: dict[str, ToolSpec] = {}
        self._unequal: set[str] = set()
        unequal: list[str] = []
        for spec in (*trace.initial_tools, *(spec for step in trace.steps for spec in step.tools_added)):
            first = self._tools.setdefault(spec.name, spec)
            if first is not spec and first != spec:
                self._unequal.add(spec.name)
                unequal += [spec_text(first), spec_text(spec)]
        self._arguments: dict[str, set[str]] = {}
        for step in trace.steps:
            for call in step.calls:
                self._arguments.setdefault(call.name, set()).update(call.arguments)
        self._taken = {*self._tools, *self._arguments, *SPECIAL_TOOLS}
        self._agent = joined(agent_texts(trace))
        # A result that is a name as a whole is renamed with it, so the name is free there.
        sure = {name for name in self._tools if is_identifier(name)}
        # A tool that has two specs has no version that both could become, so what they mention stays too.
        self._prompt = joined((*prompt_texts(trace), *unequal))
        self._world = joined(world_texts(trace, sure))
        self._texts = joined((self._agent, self._prompt, self._world, *map(spec_text, self._tools.values())))

    def renaming(self) -> Renaming:
        changes: dict[str, Change] = {}
        for name, spec in self._tools.items():
            change = self._change(name, spec)
            if change is not None:
                changes[name] = change
                self._taken.add(change.new.name)
        self._counts["tools_renamed"] += len(changes)
        if not changes:
            return Renaming()
        words = self._tool_words(changes)
        others = dict(self._argument_words(changes, words))
        return Renaming(changes | dict(self._mentioning(changes, words)), words | others)

    def _change(self, name: str, spec: ToolSpec) -> Change | None:
        versions = () if name in SPECIAL_TOOLS else self._rewrites.training(name)
        if not versions:
            return None
        count = len(versions) + self._originals
        first = self._rng.randrange(count)
        if name in self._unequal:
            self._counts["kept_unlike_toolbox"] += 1
            return None
        if self._is_named_by_others(name):
            self._counts["kept_named_by_others"] += 1
            return None
        reason = "kept_no_free_version"
        for offset in range(count):
            place = (first + offset) % count
            if place == len(versions):
                return None  # the original, by choice
            if self._is_free(versions[place]):
                change = self._cache.change(spec, versions[place])
                if change is not None:
                    return change
                reason = "kept_unlike_toolbox"
        self._counts[reason] += 1
        return None

    def _is_named_by_others(self, name: str) -> bool:
        if not is_identifier(name):  # in data, quotation marks make no name of a word
            return count_mentions(self._prompt, name, quoted=True) > 0
        return any(count_mentions(text, name, quoted=False) for text in (self._prompt, self._world))

    def _is_free(self, rewrite: ToolRewrite) -> bool:
        new = rewrite.name
        if new != rewrite.tool and (new in self._taken or count_mentions(self._texts, new, quoted=False)):
            return False
        added = self._arguments.get(rewrite.tool, set()) - rewrite.arguments.keys()
        return not added or added.isdisjoint(argument.name for argument in rewrite.arguments.values())

    def _tool_words(self, changes: Mapping[str, Change]) -> dict[str, Word]:
        words: dict[str, Word] = {}
        for name in self._tools:
            new = changes[name].new.name if name in changes else name
            if new != name:
                words[name] = Word(new, quoted=not is_identifier(name))
                if words[name].quoted:
                    every = count_mentions(self._agent, name, quoted=False)
                    self._counts["mentions_ambiguous"] += every - count_mentions(self._agent, name, quoted=True)
            elif not name.isidentifier():
                words[name] = Word(name, quoted=False)  # or the end of "get-dose" would be taken for "dose"
        return words

    def _mentioning(self, changes: Mapping[str, Change], words: Mapping[str, Word]) -> Iterator[tuple[str, Change]]:
        """The changes of tools, renamed or not, whose specs mention a tool that is renamed."""
        renamed = [name for name, word in words.items() if word.new != name]
        for name, spec in self._tools.items():
            change = changes.get(name) or Change(spec, spec, {})
            if name not in self._unequal and any(other in change.text for other in renamed):
                description, _ = replace_words(change.new.description, words)
                new = replace(change.new, description=description, parameters=told(change.new.parameters, words))
                yield name, Change(spec, new, change.arguments)

    def _argument_words(self, changes: Mapping[str, Change], words: Mapping[str, Word]) -> Iterator[tuple[str, Word]]:
        """Mentions of arguments that can mean one only. Plain words (``limit``) are no names of arguments in a text."""
        meanings: dict[str, set[str]] = {}
        for name, spec in self._tools.items():
            names = changes[name].arguments if name in changes else {}
            for argument in spec.parameters.get("properties") or ():
                meanings.setdefault(argument, set()).add(names.get(argument, argument))
        used = {word.new for word in words.values()}
        for argument, new in meanings.items():
            if new == {argument} or argument in words or argument not in self._agent or not is_identifier(argument):
                continue
            count = count_mentions(self._agent, argument, quoted=False)
            name = min(new)
            clear = len(new) == 1 and name not in used and name not in self._taken
            if count and clear and not count_mentions(self._agent, name, quoted=False):
                used.add(name)
                yield argument, Word(name, quoted=False)
            else:
                self._counts["mentions_ambiguous"] += count
