"""Which version of each tool a trace shows: one of its rewrites, or the original.

A version is taken only where the way back stays open and nothing is said of the tool under its old name: its name is
that of no other tool and stands nowhere in the trace, no argument that a call adds has one of its new names, and each
call that fits the tool fits the version. A tool that is named where nothing may be changed stays as it is: by the user,
the system prompt or a result, among the values that an argument may have, or in another letter case.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping

from txagent_train.core.records import ToolCall, ToolSpec, Trace
from txagent_train.data.mentions import (
    SPECIAL_TOOLS,
    Word,
    count_mentions,
    is_identifier,
    is_in_other_case,
    joined,
    key_of,
    model_texts,
    prompt_texts,
    reads_alike,
    runs,
    spec_text,
    strings,
    told_about_tools,
    without_keys,
    world_texts,
)
from txagent_train.data.renaming import Change, Renaming
from txagent_train.data.rewrites import RewriteSet, ToolRewrite
from txagent_train.data.specs import SpecCache, with_words


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
            if not reads_alike(first, spec):
                self._unequal.add(spec.name)
                unequal += [spec_text(first), spec_text(spec)]
        self._facts = {name: cache.facts(spec) for name, spec in self._tools.items()}
        self._calls: dict[str, list[ToolCall]] = {}
        for step in trace.steps:
            for call in step.calls:
                self._calls.setdefault(call.name, []).append(call)
        self._taken = {*self._tools, *self._calls, *SPECIAL_TOOLS}
        self._own = joined(model_texts(trace))
        told = list(told_about_tools(trace))
        # Descriptions that results tell: with one of them as a new description, the way back would change it.
        self._told_whole = set(told)
        # A name as a whole text of a result is renamed with its tool: it is no mention that others make.
        self._told = joined(text for text in told if text not in self._tools)
        self._world = joined(world_texts(trace, {name for name in self._tools if is_identifier(name)}))
        self._trace = trace
        # A tool that has two specs has no version that both could become, so what they mention stays too.
        values = (value for facts in self._facts.values() for value in facts.values)
        self._fixed = joined((*prompt_texts(trace), *unequal, *values))
        self._said = joined((self._own, self._told, self._world, self._fixed))
        self._said_runs = {"", *runs(self._said)}
        self._runs = self._said_runs.union(*(facts.runs for facts in self._facts.values()))
        self._argument_names = {name for facts in self._facts.values() for name in facts.arguments}

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
            if not self._is_free(versions[place]):
                continue
            change = self._cache.change(spec, versions[place])
            if change is None:
                reason = "kept_unlike_toolbox"
            elif not self._fits_calls(change):
                reason = "kept_schema"
            elif self._cache.may_show(change.new):
                return change
        self._counts[reason] += 1
        return None

    def _is_named_by_others(self, name: str) -> bool:
        if key_of(name) not in self._runs:
            return False
        if name in self._argument_names and key_of(name) in self._said_runs:
            return True  # what is said of it may be said of the argument
        if not is_identifier(name):
            kept = (self._fixed, without_keys(self._world))
            alone = name in world_texts(self._trace, keys=False)
            return alone or any(count_mentions(text, name, quoted=True) for text in kept)
        if any(count_mentions(text, name, quoted=False) for text in (self._fixed, self._world)):
            return True
        return any(is_in_other_case(text, name) for text in (self._said, *self._specs_with(name)))

    def _specs_with(self, name: str) -> Iterator[str]:
        """What the specs of other tools say, as far as it may name one."""
        key = key_of(name)
        return (facts.text for other, facts in self._facts.items() if (other != name and key in facts.runs) or not key)

    def _is_free(self, rewrite: ToolRewrite) -> bool:
        new = rewrite.name
        if new != rewrite.tool and (new in self._taken or self._is_said(new)):
            return False
        told = {rewrite.description, *(argument.description for argument in rewrite.arguments.values())}
        if not self._told_whole.isdisjoint(told - self._facts[rewrite.tool].described):
            return False
        given = {name for call in self._calls.get(rewrite.tool, ()) for name in call.arguments}
        added = given - rewrite.arguments.keys()
        return not added or added.isdisjoint(argument.name for argument in rewrite.arguments.values())

    def _is_said(self, name: str) -> bool:
        if key_of(name) not in self._runs:
            return False
        return any(count_mentions(text, name, quoted=False) for text in (self._said, *self._specs_with(name)))

    def _fits_calls(self, change: Change) -> bool:
        """Whether each call that fits the tool as it was fits the version."""
        calls = self._calls.get(change.old.name, ())
        if not calls:
            return True
        old, new = self._facts[change.old.name], self._cache.facts(change.new)
        return all(new.fits(change.arguments_of(call)) or not old.fits(call.arguments) for call in calls)

    def _tool_words(self, changes: Mapping[str, Change]) -> dict[str, Word]:
        words: dict[str, Word] = {}
        for name in self._tools:
            new = changes[name].new.name if name in changes else name
            if new != name:
                words[name] = Word(new, quoted=not is_identifier(name))
                if words[name].quoted and key_of(name) in self._runs:
                    for text, listed in ((self._own, False), (self._told, True)):
                        every = count_mentions(text, name, quoted=False)
                        meant = count_mentions(text, name, quoted=True, listed=listed)
                        self._counts["mentions_ambiguous"] += every - meant
            elif not name.isidentifier():
                words[name] = Word(name, quoted=False)  # or the end of "get-dose" would be taken for "dose"
        return words

    def _mentioning(self, changes: Mapping[str, Change], words: Mapping[str, Word]) -> Iterator[tuple[str, Change]]:
        """The changes of tools, renamed or not, whose specs mention a tool that is renamed."""
        keys = {key_of(name) for name, word in words.items() if word.new != name}
        for name, spec in self._tools.items():
            change = changes.get(name) or Change(spec, spec, {})
            facts = self._cache.facts(change.new) if name in changes else self._facts[name]
            if name not in self._unequal and not keys.isdisjoint(facts.runs):
                new = with_words(change.new, words)
                if new != change.new:
                    yield name, Change(spec, new, change.arguments)

    def _argument_words(self, changes: Mapping[str, Change], words: Mapping[str, Word]) -> Iterator[tuple[str, Word]]:
        """Mentions of arguments that can mean one only. Plain words (``limit``) are no names of arguments in a text."""
        meanings: dict[str, set[str]] = {}
        for name, facts in self._facts.items():
            names = changes[name].arguments if name in changes else {}
            for argument in facts.arguments:
                meanings.setdefault(argument, set()).add(names.get(argument, argument))
        used = {word.new for word in words.values()}
        agent = joined((self._own, self._told))
        for argument, new in meanings.items():
            if new == {argument} or argument in words or argument not in agent or not is_identifier(argument):
                continue
            count = count_mentions(agent, argument, quoted=False)
            name = min(new)
            clear = len(new) == 1 and name not in used and name not in self._taken and not self._is_value(argument)
            if count and clear and not count_mentions(agent, name, quoted=False):
                used.add(name)
                yield argument, Word(name, quoted=False)
            else:
                self._counts["mentions_ambiguous"] += count

    def _is_value(self, name: str) -> bool:
        """Whether a name is also what an argument may be, or is in a call."""
        if any(name in facts.values for facts in self._facts.values()):
            return True
        given = (value for calls in self._calls.values() for call in calls for value in call.arguments.values())
        return any(name == text for value in given for text in strings(value))
