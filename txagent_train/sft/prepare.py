"""Preparation: traces -> samples -> tokens on disk, for every epoch, before any model is loaded.

Each epoch is its own folder (tools are shuffled anew), keyed by everything that decides its content. Rank 0
prepares; other ranks wait for the folders to appear, not in a barrier, whose timeout a long preparation would
exceed (30 minutes for NCCL).
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from txagent_train.config.sft import DataSection, SourceSection
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, RenderedExample, StepExample, Trace
from txagent_train.data.decompose import decompose
from txagent_train.data.loading import load_traces
from txagent_train.rendering.renderer import Renderer
from txagent_train.sft.prepared import PreparedRows, PrepareReport, RowWriter
from txagent_train.sft.steps import steps_for
from txagent_train.tracking.files import file_sha256
from txagent_train.tracking.logging import progress, rank

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)
_LAYOUT = 1
"""Counted up when the same input is prepared into other rows or files than before."""
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Preparation:
    """What is prepared and how. ``hashes`` are the SHA-256 of the data files by path."""

    data: DataSection
    renderer: Renderer
    hashes: Mapping[str, str]
    seed: int
    directory: Path

    def key(self, sources: Sequence[SourceSection], epoch: int) -> str:
        """The hash of everything that decides the rows of an epoch."""
        data = self.data.model_dump(mode="json", exclude={"sources", "eval"})
        value = {
            "layout": _LAYOUT,
            "sources": [
                [self.hashes[str(source.path)], source.format, source.kind, source.weight] for source in sources
            ],
            "data": data,
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
            epochs.append(self._rows(f"epoch-{epoch:03d}", self.data.sources, epoch))
            steps += steps_for(epochs[-1].report.traces, traces_per_step)
        return epochs

    def evaluation(self) -> PreparedRows | None:
        """The held-out rows, or None where the recipe names none. Raises as ``epochs``."""
        return self._rows("eval", self.data.eval, 0) if self.data.eval else None

    def _rows(self, name: str, sources: Sequence[SourceSection], epoch: int) -> PreparedRows:
        folder, key = self.directory / name, self.key(sources, epoch)
        rows = PreparedRows.open(folder, key)
        if rows is None and rank() == 0:
            report = self._write(folder, key, sources, epoch)
            _log.info("prepared %s: %s", name, describe(report))
        while rows is None:
            rows = PreparedRows.open(folder, key)
            if rows is None:
                time.sleep(_POLL_S)
        return rows

    def _write(self, folder: Path, key: str, sources: Sequence[SourceSection], epoch: int) -> PrepareReport:
        dropped: Counter[str] = Counter()
        names = tuple(str(source.path) for source in sources)
        with RowWriter(folder, key=key, source_names=names) as writer, progress(f"preparing {folder.name}") as bar:
            for number, source in enumerate(sources):
                traces = load_traces(
                    source.path,
                    source.format,
                    invalid_calls=self.data.invalid_calls,
                    on_drop=lambda error: dropped.update([error.reason]),
                )
                for trace in traces:
                    self._add_trace(writer, trace, number, source, epoch, dropped)
                    bar.advance()
            if not writer.row_count:
                reasons = ", ".join(f"{count} {reason}" for reason, count in dropped.items()) or "no step is trained on"
                raise DataError(f"no sample is left: {reasons}", reason="no_samples", path=", ".join(names))
            return writer.commit(dropped)

    def _add_trace(
        self, writer: RowWriter, trace: Trace, number: int, source: SourceSection, epoch: int, dropped: Counter[str]
    ) -> None:
        started = False
        for example in decompose(trace, seed=self.seed, epoch=epoch, shuffle_tools=self.data.shuffle_tools):
            rendered = self.renderer.render(example)
            problem = self._problem(example, rendered, source)
            if problem is not None:
                if problem.reason != "overlong" or self.data.overlong == "error":
                    raise problem
                dropped[problem.reason] += 1
                continue
            if not started:
                writer.start_trace(trace.id)
                started = True
            writer.add(rendered, source=number, weight=source.weight)

    def _problem(self, example: StepExample, rendered: RenderedExample, source: SourceSection) -> DataError | None:
        """Why a sample cannot be trained on; it is never cut."""
        length, limit = len(rendered.input_ids), self.data.max_length
        fix = ""
        if length > limit:
            problem, reason = f"the sample has {length} tokens, over {limit}", "overlong"
            fix = f"set data.max_length={length} or more, or data.overlong=drop"
        elif not any(rendered.loss_mask):
            problem, reason = "the sample has no supervised token", "no_supervised_token"
        elif rendered.loss_mask[0]:
            problem, reason = "the first token is supervised, but nothing predicts it", "no_prompt"
        else:
            return None
        return DataError(
            problem,
            reason=reason,
            path=str(source.path),
            trace_id=example.trace.id,
            step=example.step_index,
            fix=fix,
        )


def describe(report: PrepareReport) -> str:
    """A report in one line."""
    dropped = ", ".join(f"{count} {reason}" for reason, count in report.dropped.items()) or "none"
    return (
        f"{report.rows} samples of {report.traces} traces, {report.tokens} tokens "
        f"({report.supervised_tokens} supervised), longest {report.longest}; dropped: {dropped}"
    )


def hash_sources(data: DataSection) -> dict[str, str]:
    """SHA-256 of every data file, by path as in the recipe."""
    return {str(source.path): file_sha256(source.path) for source in (*data.sources, *data.eval)}


def renderer_fingerprint(renderer: Renderer) -> JsonObject:
    """What of a renderer decides the tokens: tokenizer, template, wire format, seed of the call ids."""
    return {
        "tokenizer": tokenizer_hash(renderer.tokenizer),
        "call_id_seed": renderer.seed,
        "template": hashlib.sha256(renderer.chat_template.encode()).hexdigest(),
        "wire": [renderer.wire.frame, renderer.wire.syntax, renderer.wire.finish],
        "stop": renderer.stop_token_id,
        "pad": renderer.pad_token_id,
    }


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """The hash of a fast tokenizer's whole definition."""
    return hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest()
