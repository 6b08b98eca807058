"""How many tokens a run computes, before it runs: what is shared, what is repeated, what is padded. No torch.

naive      every sample by itself: the sum of the lengths
computed   what goes through the model: tries share beginnings, a trace that was split repeats some
padding    computed for nothing: what stands behind shorter rows, and rows that keep ranks in step (fillers)

A GPU's kernel for tries takes rows of whole blocks of 128 tokens; what it adds for that is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from txagent_train.core.records import JsonObject
from txagent_train.sft.layout import Packing, RowLayout, split_trace, traces_in, trie_size
from txagent_train.sft.plan import RunPlan
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.steps import Forward


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Sums over optimizer steps; tokens but for ``traces``, ``samples``, ``steps``, ``rows``, ``fillers``.

    ``rows`` are those of tokens that count; ``fillers`` rows with weight 0 besides. ``split_tries`` are traces that
    were longer than a row, and ``repeated`` what their tries repeat. ``longest_row`` is the most of one row.
    """

    steps: int = 0
    traces: int = 0
    samples: int = 0
    naive: int = 0
    computed: int = 0
    supervised: int = 0
    rows: int = 0
    fillers: int = 0
    padding: int = 0
    longest_row: int = 0
    split_tries: int = 0
    repeated: int = 0

    @property
    def sharing_ratio(self) -> float:
        """How many tokens of the samples one computed token stands for."""
        return self.naive / self.computed if self.computed else 1.0

    def to_json(self) -> JsonObject:
        return asdict(self) | {"sharing_ratio": self.sharing_ratio}


def _sum(parts: Iterable[TokenCounts]) -> TokenCounts:
    values = [asdict(part) for part in parts]
    total = {name: sum(value[name] for value in values) for name in asdict(TokenCounts())}
    return TokenCounts(**total | {"longest_row": max((value["longest_row"] for value in values), default=0)})


@dataclass(frozen=True, slots=True)
class TokenPlan:
    """The counts of each epoch that is (partly) trained, and of the run."""

    packing: Packing
    row_tokens: int
    ranks: int
    epochs: tuple[TokenCounts, ...]

    @classmethod
    def of(cls, plan: RunPlan, layout: RowLayout, *, ranks: int) -> TokenPlan:
        """Count what the ranks of a run will compute in all of its steps.

        Raises:
            UserError: a sample is longer than a row.
        """
        layout.check(plan.epochs)
        steps: list[list[TokenCounts]] = [[] for _ in plan.epochs]
        for number, step in enumerate(plan.steps):
            steps[step.epoch].append(_count(plan, number, layout, ranks))
        return cls(layout.packing, layout.row_tokens, ranks, tuple(_sum(parts) for parts in steps))

    @property
    def total(self) -> TokenCounts:
        return _sum(self.epochs)

    def to_json(self) -> JsonObject:
        return {
            "packing": self.packing,
            "row_tokens": self.row_tokens,
            "ranks": self.ranks,
            "epochs": [epoch.to_json() for epoch in self.epochs],
            "total": self.total.to_json(),
        }


def _count(plan: RunPlan, number: int, layout: RowLayout, ranks: int) -> TokenCounts:
    step, rows = plan.steps[number], plan.rows_of(number)
    forwards = [forward for dealt in plan.forwards(number, layout, world_size=ranks) for forward in dealt]
    widths = [(forward, _row_lengths(rows, forward, layout.packing)) for forward in forwards]
    computed = sum(sum(lengths) for forward, lengths in widths if not forward.filler)
    split_tries = repeated = 0
    if layout.packing == "trie":
        for trace in traces_in(rows, step.rows):
            tries = split_trace(rows, trace, layout.row_tokens)
            split_tries += len(tries) > 1
            repeated += sum(int(rows.shared[trie.start]) for trie in tries[1:])
    return TokenCounts(
        steps=1,
        traces=len(step.traces),
        samples=len(step.rows),
        naive=int(rows.length[list(step.rows)].sum()),
        computed=computed,
        supervised=int(rows.supervised[list(step.rows)].sum()),
        rows=sum(len(lengths) for forward, lengths in widths if not forward.filler),
        fillers=sum(forward.filler for forward in forwards),
        padding=sum(len(lengths) * max(lengths) for _, lengths in widths) - computed,
        longest_row=max(max(lengths) for _, lengths in widths),
        split_tries=split_tries,
        repeated=repeated,
    )


def _row_lengths(rows: PreparedRows, forward: Forward, packing: Packing) -> list[int]:
    """Tokens of each row of a forward pass."""
    if packing == "none":
        return [int(length) for length in rows.length[list(forward.rows)]]
    return [sum(trie_size(rows, trie)[0] for trie in traces_in(rows, forward.rows))]
