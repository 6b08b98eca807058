"""Preparation: traces -> samples -> tokens on disk, for every epoch, before any model is loaded.

Each epoch is its own folder (tools are shuffled anew), named after and keyed by everything that decides its content: a
folder that is there is taken, whoever made it. Rank 0 prepares; other ranks, and other jobs that need the same rows,
wait for the folder to appear, not in a barrier, whose timeout a long preparation would exceed (30 minutes for NCCL).
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from txagent_train.config.sft import DataSection, SftRecipe, SourceSection
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject
from txagent_train.data.importers import AUTO
from txagent_train.data.mixing import Guards, check_sources, format_of
from txagent_train.rendering.renderer import Renderer
from txagent_train.sft.parts import merge_parts
from txagent_train.sft.prepared import DROPPED, PreparedRows, PrepareReport
from txagent_train.sft.steps import steps_for
from txagent_train.sft.workers import PartJob, make_parts
from txagent_train.tracking.files import content_sha256
from txagent_train.tracking.lock import locked
from txagent_train.tracking.logging import rank
from txagent_train.tracking.run_dir import PREPARED
from txagent_train.tracking.sections import Table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)
_LAYOUT = 5
"""Counted up when the same input is prepared into other rows or files than before."""
_POLL_S = 0.5
_KEY_DIGITS = 16
_FREE = {"sources", "eval", "exclude", "frozen", "augment", "prepared_dir", "workers"}
"""Keys of the data section that are not hashed as they stand: files go by content, the rest changes no token."""
AUGMENTED: Mapping[str, str] = {
    "traces_augmented": "traces augmented",
    "traces_as_recorded": "traces left as recorded (data.augment.share)",
    "tools_renamed": "tools shown in a rewritten version",
    "kept_no_free_version": "tools left as they are: each version has a name that the trace has already",
    "kept_named_by_others": "tools left as they are: named by the user, the system prompt, a result or an argument",
    "kept_schema": "tools left as they are: a call of the trace does not fit any version",
    "kept_unlike_toolbox": "tools left as they are: the trace has another spec of them than the toolbox",
    "tools_hidden": "tools not shown: held out or outside tool_fraction, or naming such a one",
    "mentions_renamed": "mentions of tools and arguments in text, renamed",
    "mentions_ambiguous": "mentions left: an ordinary word, a value, or an argument of several tools",
    "distractors": "distractors added",
    "virtual_calls": "tools moved behind a Tool_RAG call",
    "virtual_unfit": "traces whose tools stay: Tool_RAG must be given other arguments than a text and a number",
}
"""What augmentation counts (data.augment.Augmented), in words."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is prepared and how. ``hashes`` are the SHA-256 of the data files by path."""

    data: DataSection
    renderer: Renderer
    hashes: Mapping[str, str]
    seed: int
    directory: Path
    guards: Guards

    @classmethod
    def of(cls, recipe: SftRecipe, renderer: Renderer) -> Preparation:
        """Hash the data files and read the lists that guard them.

        Raises:
            UserError: a file or list cannot be read, or two sources have the same content.
        """
        data, hashes = recipe.data, hash_sources(recipe.data)
        check_sources(data, hashes, recipe=recipe.name)
        directory = data.prepared_dir or recipe.output_dir / PREPARED
        return cls(data, renderer, hashes, recipe.seed, directory, Guards.of(data, recipe.seed))

    def key(self, sources: Sequence[SourceSection], epoch: int) -> str:
        """The hash of everything that decides the rows of an epoch."""
        value = {
            "layout": _LAYOUT,
            "sources": [
                # The name too: records without an id are named after their file, and ids seed call ids and the shuffle.
                [self.hashes[str(source.path)], source.path.name, source.format, source.kind, source.weight]
                for source in sources
            ],
            "guards": self.guards.fingerprint,
            "data": self.data.model_dump(mode="json", exclude=_FREE),
            "renderer": renderer_fingerprint(self.renderer),
            "seed": self.seed,
            "epoch": epoch,
        }
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()

    def epochs(self, count: int, *, traces_per_step: int, max_steps: int | None) -> list[PreparedRows]:
        """The rows of each epoch; epochs that lie wholly behind ``max_steps`` are not prepared.

        Raises:
            DataError: a record, call or sample is wrong and the recipe says error; or nothing is left to train on.
            EnvironmentFailure: the machine refused to write.
        """
        epochs: list[PreparedRows] = []
        steps = 0
        for epoch in range(count):
            if max_steps is not None and steps >= max_steps:
                break
            epochs.append(self._rows(f"epoch-{epoch:03d}", self.data.sources, epoch, training=True))
            steps += steps_for(epochs[-1].report.traces, traces_per_step)
        return epochs

    def evaluation(self, name: str = "eval") -> PreparedRows | None:
        """The held-out rows, or None where the recipe names none; their folder has ``name``. Raises as ``epochs``.

        Needs no epoch: a caller that asks for it first learns of faulty held-out data before all epochs are made.
        """
        return self._rows(name, self.data.eval, 0, training=False) if self.data.eval else None

    def _rows(self, name: str, sources: Sequence[SourceSection], epoch: int, *, training: bool) -> PreparedRows:
        key = self.key(sources, epoch)
        folder = self.directory / f"{name}-{key[:_KEY_DIGITS]}"
        rows = PreparedRows.open(folder, key)
        if rows is None and rank() == 0:
            with locked(self.directory, wait=True):
                rows = PreparedRows.open(folder, key)  # another job may have made it while this one waited
                if rows is None:
                    rows = self._make(name, sources, epoch, folder, key, training=training)
        while rows is None:
            rows = PreparedRows.open(folder, key)
            if rows is None:
                time.sleep(_POLL_S)
        return rows

    def _make(
        self, name: str, sources: Sequence[SourceSection], epoch: int, folder: Path, key: str, *, training: bool
    ) -> PreparedRows:
        parts = folder.with_name(f".{folder.name}.parts")
        for source in sources:
            if source.format == AUTO:
                _log.info("%s: format %s (guessed), kind %s", source.path, format_of(source), source.kind)
        job = PartJob(
            data=self.data,
            sources=tuple(sources),
            training=training,
            guards=self.guards,
            renderer=self.renderer,
            seed=self.seed,
            epoch=epoch,
            folder=parts,
        )
        try:
            rows = merge_parts(
                make_parts(job, name),
                folder,
                key=key,
                source_names=[str(source.path) for source in sources],
                kinds=[source.kind for source in sources],
            )
        except DataError:
            shutil.rmtree(parts, ignore_errors=True)  # with the fault mended, the key is another
            raise
        shutil.rmtree(parts, ignore_errors=True)
        _log.info("prepared %s: %s", name, describe(rows.report))
        return rows


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in counts.items())


def describe(report: PrepareReport) -> str:
    """A report in one line."""
    parts = [
        f"{report.rows} samples of {report.traces} traces, {report.tokens} tokens "
        f"({report.supervised_tokens} supervised), longest {report.longest}",
        f"dropped: {_listed(report.dropped) or 'none'}",
    ]
    if report.dropped_traces:
        parts.append(f"dropped traces: {_listed(report.dropped_traces)}")
    if report.shortened:
        parts.append(f"summarised to fit: {_listed({name: n for name, n in report.shortened.items()})}")
    if report.augmented:
        parts.append(f"augmented: {_listed(report.augmented)}")
    if report.untrained:
        parts.append(f"steps not trained on: {_listed(report.untrained)}")
    if report.untrained_traces:
        parts.append(f"traces without a step to train on: {report.untrained_traces}")
    if report.general_share:
        parts.append(f"general data: {report.general_share:.1%} of the loss's weight")
    if report.shared_calls:
        parts.append(f"traces that share a call with a frozen evaluation set: {report.shared_calls}")
    if report.neutralised:
        parts.append(
            f"control strings broken: {report.neutralised}, in the outputs of {report.neutralised_in_targets} samples"
        )
    return "; ".join(parts)


def report_table(report: PrepareReport, heading: str = "Prepared data") -> Table:
    """A report as a section of the run's report: what became of every step."""
    rows: list[tuple[str, str, int]] = [
        ("steps of the traces", "", report.steps),
        ("samples", "", report.rows),
        *(("step not trained on", reason, count) for reason, count in report.untrained.items()),
        *(("sample dropped", reason, count) for reason, count in report.dropped.items()),
        ("traces with samples", "", report.traces),
        ("traces without a step to train on", "", report.untrained_traces),
        *(("trace dropped", reason, count) for reason, count in report.dropped_traces.items()),
        *(("summarised to fit", what, count) for what, count in report.shortened.items()),
        *(("samples that were too long", f"up to {bound} tokens", count) for bound, count in report.overlong.items()),
        *(("augmentation", AUGMENTED[name], count) for name, count in report.augmented.items()),
        ("traces that share a call with a frozen set", "", report.shared_calls),
        ("tokens", "", report.tokens),
        ("tokens", "stored (steps of a trace share its beginning)", report.stored_tokens),
        ("tokens", "supervised", report.supervised_tokens),
        ("tokens", "of the longest sample", report.longest),
        ("control strings broken", "", report.neutralised),
        ("samples with one in the output", "", report.neutralised_in_targets),
        *(("samples", source, count) for source, count in report.rows_by_source.items()),
        *(("supervised tokens", source, count) for source, count in report.supervised_by_source.items()),
        *(("supervised tokens, kind", kind, count) for kind, count in report.supervised_by_kind.items()),
    ]
    note = "steps of the traces = samples + steps not trained on + samples dropped"
    if report.dropped or report.dropped_traces:
        note += f"; what was dropped is named in {DROPPED} beside the prepared rows"
    return Table(heading, ("what", "which", "number"), tuple(rows), note=note)


def hash_sources(data: DataSection) -> dict[str, str]:
    """SHA-256 of every data file or folder, by path as in the recipe."""
    return {str(source.path): content_sha256(source.path) for source in (*data.sources, *data.eval)}


def renderer_fingerprint(renderer: Renderer) -> JsonObject:
    """What of a renderer decides the tokens: tokenizer, template, wire format, seed of the call ids."""
    return {
        "tokenizer": tokenizer_hash(renderer.tokenizer),
        "call_id_seed": renderer.seed,
        "template": hashlib.sha256(renderer.chat_template.encode()).hexdigest(),
        "wire": list(astuple(renderer.wire)),
        "stop": renderer.stop_token_id,
        "pad": renderer.pad_token_id,
    }


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """The hash of a fast tokenizer's whole definition."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()
