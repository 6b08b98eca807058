"""One trace becomes another sample of the same skill: other tools beside it, other names, tools to be found first.

    trace ──withheld──> ──virtual──> Tool_RAG calls ──candidates──> distractors ──versions──> new names ──> Augmented

Nothing that is added names a withheld tool, for specs and versions that do are not chosen: a trace that passed
``check_shown`` names none when it is augmented. All is drawn from (seed, epoch, trace id), so it is the same whichever
process does it, and another one in every epoch. Chat has no tools and stays as it is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from txagent_train.config.sft import AugmentSection
from txagent_train.core.errors import DataError
from txagent_train.core.records import TOOL_RAG, DataKind, JsonObject, Step, ToolSpec, Trace
from txagent_train.data.ablation import tools_left_out
from txagent_train.data.candidates import Neighbours, Pool, distractors
from txagent_train.data.checks import kind_of
from txagent_train.data.decompose import is_trained
from txagent_train.data.mentions import SPECIAL_TOOLS
from txagent_train.data.renaming import Renaming
from txagent_train.data.rewrites import RewriteSet
from txagent_train.data.specs import SpecCache
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.versions import choose_versions
from txagent_train.data.virtual import RAG_TOOL, with_virtual_calls
from txagent_train.data.withheld import Withheld
from txagent_train.tracking.files import file_sha256

HELD_OUT = "held_out_tool"
"""The reason under which traces are counted that use a tool that rewrites hold out of training."""
OUTSIDE_FRACTION = "tool_outside_fraction"
"""The same for tools that data.ablation.tool_fraction leaves out."""
NOT_IN_TOOLBOX = "tool_not_in_toolbox"
"""The same for tools that are in no toolbox."""


def held_out_tools(rewrites: RewriteSet) -> Withheld:
    """The tools that rewrites hold out of training."""
    return Withheld(rewrites.held_out_tools, HELD_OUT, "which is held out of training")


@dataclass(frozen=True, slots=True)
class Augmented:
    """A trace as it is trained on in one epoch.

    ``renamed`` is the name here of each tool that was renamed, by its own name. ``counts``: what was done, and what was
    left as it was and why.
    """

    trace: Trace
    renamed: Mapping[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    renaming: Renaming = field(default_factory=Renaming)

    def undo(self) -> Trace:
        """The trace under the original names; what was added to it stays."""
        return self.renaming.inverse.apply(self.trace)


@dataclass(frozen=True, slots=True)
class Augmenter:
    """Augments the traces of a recipe. Can be sent to other processes.

    ``withheld`` are tools that training must not show. ``fingerprint`` is of the settings and the contents of the
    files: prepared rows depend on it.
    """

    toolbox: Toolbox
    rewrites: RewriteSet
    neighbours: Neighbours
    settings: AugmentSection
    withheld: tuple[Withheld, ...] = ()
    fingerprint: JsonObject = field(default_factory=dict)
    _pool: Pool = field(init=False, repr=False, compare=False)
    _rag: ToolSpec = field(init=False, repr=False, compare=False)
    _specs: SpecCache = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        specs = SpecCache(tuple(item for item in self.withheld if item.names))
        shown = {name: spec for name, spec in self.toolbox.by_name.items() if specs.may_show(spec)}
        tools = {name: spec for name, spec in shown.items() if name not in SPECIAL_TOOLS}
        object.__setattr__(self, "_specs", specs)
        object.__setattr__(self, "_pool", Pool(tools, self.neighbours))
        object.__setattr__(self, "_rag", shown.get(TOOL_RAG, RAG_TOOL))

    @classmethod
    def of(cls, section: AugmentSection, *, tool_fraction: float = 1.0, seed: int = 0) -> Self:
        """Read the files of a recipe.

        Args:
            tool_fraction: the share of the toolbox that exists (config.sft.AblationSection), drawn with ``seed``.

        Raises:
            DataError: a file cannot be read, or is of another toolbox.
        """
        toolbox = Toolbox.read(section.toolbox)
        rewrites = RewriteSet(toolbox.hash, frozenset(), {})
        if section.rewrites is not None:
            rewrites = RewriteSet.read(section.rewrites)
            try:
                rewrites.check_fits(toolbox)
            except DataError as error:
                raise error.at(path=str(section.rewrites)) from None
        near = Neighbours() if section.neighbours is None else Neighbours.read(section.neighbours, toolbox)
        outside = tools_left_out(toolbox.by_name, tool_fraction, seed)
        withheld = (
            held_out_tools(rewrites),
            Withheld(outside, OUTSIDE_FRACTION, "which data.ablation.tool_fraction leaves out"),
        )
        files = {"toolbox": section.toolbox, "rewrites": section.rewrites, "neighbours": section.neighbours}
        contents = {name: None if path is None else file_sha256(path) for name, path in files.items()}
        return cls(toolbox, rewrites, near, section, withheld, section.model_dump(mode="json") | contents)

    def check_known(self, trace: Trace) -> None:
        """Raise DataError (reason ``tool_not_in_toolbox``) where a step that is trained on calls an unknown tool."""
        trained = ((index, step) for index, step in enumerate(trace.steps) if is_trained(step))
        fix = (
            "add it to data.augment.toolbox (tools import), map its old name with tools migrate, or "
            "leave such traces out with data.invalid_calls=drop"
        )
        check_in_toolbox(trace, trained, self.toolbox, fix=fix)

    def check_shown(self, trace: Trace) -> None:
        """Raise DataError (reason ``held_out_tool`` or ``tool_outside_fraction``) where a withheld tool is used.

        Also where one is named in a way that cannot be hidden; chat may name what can be an ordinary word.
        """
        hidden = self._hidden(trace)
        for withheld in self.withheld:
            withheld.check(hidden, words=kind_of(trace) is not DataKind.CHAT)

    def _hidden(self, trace: Trace) -> Trace:
        for withheld in self.withheld:
            trace = withheld.hide(trace)
        return trace

    def augment(self, trace: Trace, *, seed: int, epoch: int) -> Augmented:
        """The trace as it is trained on in an epoch; it must have passed ``check_shown``."""
        hidden = self._hidden(trace)
        counts: Counter[str] = Counter()
        if hidden is not trace:
            counts["tools_hidden"] = sum(1 for _ in trace.tools()) - sum(1 for _ in hidden.tools())
            trace = hidden
        rng = random.Random(f"augment:{seed}:{epoch}:{trace.id}")
        has_tools = bool(trace.initial_tools) or any(step.calls or step.tools_added for step in trace.steps)
        if not has_tools or rng.random() >= self.settings.share:
            counts["traces_as_recorded"] += has_tools
            return Augmented(trace, counts=+counts)
        counts["traces_augmented"] += 1
        trace = self._with_tools(trace, rng, counts)
        renaming = choose_versions(
            trace, self.rewrites, self._specs, rng, originals=self.settings.originals, counts=counts
        )
        renamed = renaming.apply(trace, counts)
        return Augmented(renamed, renaming.names, +counts, renaming)

    def _with_tools(self, trace: Trace, rng: random.Random, counts: Counter[str]) -> Trace:
        """The trace with virtual calls and distractors."""
        settings = self.settings
        if rng.random() < settings.virtual_share:
            trace = with_virtual_calls(trace, self._pool, rng, rag=self._rag, counts=counts)
        added = distractors(trace, self._pool, rng, n_random=settings.n_random, n_hard=settings.n_hard)
        counts["distractors"] = len(added)
        return replace(trace, initial_tools=(*trace.initial_tools, *added)) if added else trace


def check_in_toolbox(trace: Trace, steps: Iterable[tuple[int, Step]], toolbox: Toolbox, *, fix: str = "") -> None:
    """Raise DataError (reason ``tool_not_in_toolbox``) where one of the numbered steps calls an unknown tool."""
    for index, step in steps:
        for call in step.calls:
            if call.name not in toolbox.by_name and call.name not in SPECIAL_TOOLS:
                raise DataError(
                    f"the call names {call.name}, which is not in the toolbox",
                    reason=NOT_IN_TOOLBOX,
                    trace_id=trace.id,
                    step=index,
                    fix=fix,
                )
