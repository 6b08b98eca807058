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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from txagent_train.config.sft import DataSection, SourceSection
from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject, RenderedExample, StepExample, Trace
from txagent_train.data.decompose import decompose, untrained_reason
from txagent_train.data.loading import fault_to_json, load_numbered
from txagent_train.rendering.renderer import Renderer
from txagent_train.sft.prepared import DROPPED, PreparedRows, PrepareReport, RowWriter
from txagent_train.sft.steps import steps_for
from txagent_train.tracking.files import file_sha256
from txagent_train.tracking.logging import progress, rank
from txagent_train.tracking.sections import Table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_log = logging.getLogger(__name__)
_LAYOUT = 2
"""Counted up when the same input is prepared into other rows or files than before."""
_POLL_S = 0.5
_ALWAYS_DROPPED = ("step_without_call", "empty_output")
"""What no setting of a recipe could make a sample of; told apart from bad input, it is counted and not an error."""


@dataclass(slots=True)
class _TooLong:
    """The samples of one file that are too long: all of them are told at once."""

    first: DataError | None = None
    count: int = 0
    longest: int = 0

    def add(self, fault: DataError, length: int) -> None:
        self.first = self.first or fault
        self.count += 1
        self.longest = max(self.longest, length)

    def check(self) -> None:
        """Raise the first fault, with what all of them need; nothing where there is none."""
        first = self.first
        if first is None:
            return
        samples = "1 sample of the file is" if self.count == 1 else f"{self.count} samples of the file are"
        raise DataError(
            f"{first.problem}; {samples} too long, the longest has {self.longest}",
            reason=first.reason,
            path=first.path,
            line=first.line,
            trace_id=first.trace_id,
            step=first.step,
            fix=f"set data.max_length={self.longest} or more, or data.overlong=drop",
        )


@dataclass(slots=True)
class _Counts:
    """What becomes of the steps that are no rows; ``side`` is the file that names what is dropped.

    ``too_long`` is of the present source, where that is an error.
    """

    side: TextIO
    steps: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_traces: Counter[str] = field(default_factory=Counter)
    untrained: Counter[str] = field(default_factory=Counter)
    untrained_traces: int = 0
    too_long: _TooLong = field(default_factory=_TooLong)

    def drop_trace(self, fault: DataError) -> None:
        self.dropped_traces[fault.reason] += 1
        self._name(fault)

    def drop_sample(self, fault: DataError) -> None:
        self.dropped[fault.reason] += 1
        self._name(fault)

    def _name(self, fault: DataError) -> None:
        self.side.write(json.dumps(fault_to_json(fault)) + "\n")

    def add_trace(self, trace: Trace) -> None:
        """Count the steps of a trace, and those of them that are not meant to be trained on."""
        reasons = [reason for step in trace.steps if (reason := untrained_reason(step)) is not None]
        self.steps += len(trace.steps)
        self.untrained.update(reasons)
        self.untrained_traces += len(reasons) == len(trace.steps)


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
        """The held-out rows, or None where the recipe names none. Raises as ``epochs``.

        Needs no epoch: a caller that asks for it first learns of faulty held-out data before all epochs are made.
        """
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
        names = tuple(str(source.path) for source in sources)
        with RowWriter(folder, key=key, source_names=names) as writer, progress(f"preparing {folder.name}") as bar:
            with writer.dropped_file.open("w", encoding="utf-8") as side:
                counts = _Counts(side)
                for number, source in enumerate(sources):
                    traces = load_numbered(
                        source.path,
                        source.format,
                        invalid_calls=self.data.invalid_calls,
                        on_drop=counts.drop_trace,
                    )
                    for line, trace in traces:
                        counts.add_trace(trace)
                        self._add_trace(writer, trace, line, number, source, epoch, counts)
                        bar.advance()
                    counts.too_long.check()
            if not writer.row_count:
                gone = _listed(counts.dropped_traces + counts.dropped) or "no step is trained on"
                raise DataError(f"no sample is left: {gone}", reason="no_samples", path=", ".join(names))
            return writer.commit(
                counts.dropped,
                steps=counts.steps,
                untrained=dict(counts.untrained),
                untrained_traces=counts.untrained_traces,
                dropped_traces=dict(counts.dropped_traces),
            )

    def _add_trace(
        self,
        writer: RowWriter,
        trace: Trace,
        line: int,
        number: int,
        source: SourceSection,
        epoch: int,
        counts: _Counts,
    ) -> None:
        started = False
        for example in decompose(trace, seed=self.seed, epoch=epoch, shuffle_tools=self.data.shuffle_tools):
            length = 0
            try:
                rendered = self.renderer.render(example)
                length = len(rendered.input_ids)
                self._check(example, rendered)
            except DataError as error:
                fault = error.at(path=str(source.path), line=line)
                if fault.reason == "overlong" and self.data.overlong == "error":
                    counts.too_long.add(fault, length)
                elif fault.reason in ("overlong", *_ALWAYS_DROPPED):
                    counts.drop_sample(fault)
                else:
                    raise fault from None
                continue
            if not started:
                writer.start_trace(trace.id)
                started = True
            writer.add(rendered, source=number, weight=source.weight)

    def _check(self, example: StepExample, rendered: RenderedExample) -> None:
        """Raise DataError where a sample cannot be trained on; it is never cut."""
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
            return
        raise DataError(problem, reason=reason, trace_id=example.trace.id, step=example.step_index, fix=fix)


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
    if report.untrained:
        parts.append(f"steps not trained on: {_listed(report.untrained)}")
    if report.untrained_traces:
        parts.append(f"traces without a step to train on: {report.untrained_traces}")
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
        ("tokens", "", report.tokens),
        ("tokens", "supervised", report.supervised_tokens),
        ("tokens", "of the longest sample", report.longest),
        ("control strings broken", "", report.neutralised),
        ("samples with one in the output", "", report.neutralised_in_targets),
        *(("samples", source, count) for source, count in report.rows_by_source.items()),
    ]
    note = "steps of the traces = samples + steps not trained on + samples dropped"
    if report.dropped or report.dropped_traces:
        note += f"; what was dropped is named in {DROPPED} beside the prepared rows"
    return Table(heading, ("what", "which", "number"), tuple(rows), note=note)


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
