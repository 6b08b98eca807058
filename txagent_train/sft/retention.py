"""Retention: whether a model still answers general instructions after it was trained on tool use.

A few dozen short instructions with their answers come with the package (retention.jsonl, written for it and under its
licence): everyday questions, arithmetic, rewriting, translation, code. Before and after training, the mean of -log p
over the tokens of the answers is measured, rendered as any chat data is and with the evaluation's own exact loss.

    perplexity ratio = exp(after - before)        1: nothing lost; 2: twice as unsure of each token

A fresh adapter changes nothing, so "before" is the base model; where training starts from an adapter (init_from), it is
the model with that. The ratio compares a model with itself: the two losses say little about any other model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from txagent_train.config.sft import SourceSection
from txagent_train.core.records import JsonObject
from txagent_train.sft.prepare import Preparation
from txagent_train.sft.prepared import PreparedRows
from txagent_train.tracking.files import file_sha256
from txagent_train.tracking.sections import Cell, Table

INSTRUCTIONS = Path(__file__).with_name("retention.jsonl")
"""Rows of kind qa."""
BEFORE, AFTER, RATIO = "retention_before", "retention_after", "retention_perplexity_ratio"


@dataclass(slots=True)
class Retention:
    """What is measured. ``before`` is the loss before training, by this process or by the one that it resumes."""

    rows: PreparedRows
    before: float | None = None

    @classmethod
    def of(cls, preparation: Preparation, records: Sequence[JsonObject]) -> Retention:
        """Prepare the instructions as held-out data of a run; ``records`` are the metrics it has so far."""
        source = SourceSection(path=INSTRUCTIONS, kind="qa")
        data = preparation.data.model_copy(update={"eval": (source,)})
        rows = replace(preparation, data=data, hashes={str(INSTRUCTIONS): file_sha256(INSTRUCTIONS)}).evaluation(
            "retention"
        )
        assert rows is not None
        return cls(rows, _values(records).get(BEFORE))

    def measured(self, done: int, loss: float) -> JsonObject:
        """The record of a loss that was measured after ``done`` optimizer steps: 0, or all of them."""
        if done == 0:
            self.before = loss
            return {BEFORE: loss}
        return {AFTER: loss} if self.before is None else {AFTER: loss, RATIO: math.exp(loss - self.before)}


def _values(records: Sequence[JsonObject]) -> dict[str, float]:
    return {
        name: record[name]
        for record in records
        if record["kind"] == "retention"
        for name in (BEFORE, AFTER, RATIO)
        if name in record
    }


def retention_words(records: Sequence[JsonObject]) -> str:
    """The losses before and after in one line, or "" where they were not measured."""
    values = _values(records)
    if AFTER not in values:
        return ""
    before = f"{values[BEFORE]:.4f} -> " if BEFORE in values else ""
    return f"retention loss {before}{values[AFTER]:.4f}"


def retention_table(records: Sequence[JsonObject], *, start: str) -> Table:
    """The section of a run's report; ``start`` says what model it started from."""
    values = _values(records)
    losses = [(f"before: {start}", values.get(BEFORE)), ("after training", values.get(AFTER))]
    rows: list[tuple[Cell, ...]] = [(model, loss, None if loss is None else math.exp(loss)) for model, loss in losses]
    note = "Mean of -log p per token of the answers to general instructions that come with the package."
    if RATIO in values:
        note += f" Perplexity after / before: {values[RATIO]:.3f} (1: nothing lost)."
    return Table("Retention of general abilities", ("model", "loss per token", "perplexity"), tuple(rows), note)
