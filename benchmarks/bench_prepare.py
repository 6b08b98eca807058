"""Preparation against TRL's own tokenisation of the same step-wise samples, and how it grows with the data.

    python benchmarks/bench_prepare.py --json

Both get the demo traces, every text of them made different in each copy, so that no cache of texts helps. Ours reads
the JSONL file, checks the traces, decomposes, renders and writes the rows, in one process. TRL's ``SFTTrainer`` gets
the samples decomposed and in memory, with our chat template, also in one process; its time is that of its
``_prepare_dataset`` alone. The two are interleaved, and which begins alternates.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

PAPER_TRACES = 85_340
"""Traces of TxAgent-Instruct."""
MODEL = "embedded:smollm2-135m-instruct"


def write_traces(path: Path, count: int, *, result_words: int = 0) -> None:
    """Write ``count`` traces. ``result_words`` lengthens every tool result: real ones are longer than the demo's."""
    from txagent_train.core.codec import trace_to_json
    from txagent_train.demo.formulary import split_drugs
    from txagent_train.demo.teacher import demo_traces

    drugs, _ = split_drugs(0)
    traces = demo_traces(drugs, n=400, seed=0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            trace = _varied(traces[number % len(traces)], number, result_words)
            file.write(json.dumps(trace_to_json(trace)) + "\n")


def _varied(trace: Any, number: int, result_words: int) -> Any:
    from txagent_train.core.records import Step

    mark = f" (record {number})"
    words = " ".join(f"word{number * 7919 % 9973 + at}" for at in range(result_words))
    turns = []
    for turn in trace.turns:
        if isinstance(turn, Step):
            results = tuple(
                replace(result, content={"result": result.content, "note": mark + words}) for result in turn.results
            )
            turns.append(replace(turn, thought=turn.thought + mark, results=results))
        else:
            turns.append(replace(turn, content=turn.content + mark))
    return replace(trace, id=f"{trace.id}-{number}", turns=tuple(turns), metadata={})


def prepare(path: Path, out: Path, **data: Any) -> Any:
    """Prepare one epoch of a file; its report."""
    from txagent_train.config.sft import SftRecipe
    from txagent_train.sft.prepare import Preparation
    from txagent_train.sft.rendering import renderer_for

    recipe = SftRecipe.model_validate(
        {
            "kind": "sft",
            "name": "bench",
            "output_dir": str(out),
            "model": {"name_or_path": MODEL},
            "data": {"sources": [{"path": str(path)}], "workers": 1, **data},
        }
    )
    preparation = Preparation.of(recipe, renderer_for(recipe.model, recipe.wire, recipe.seed))
    start = time.perf_counter()
    (rows,) = preparation.epochs(1, traces_per_step=1, max_steps=None)
    return rows.report, time.perf_counter() - start


class TrlTokenizer:
    """TRL's tokenisation of step-wise samples, as prompt and completion with tools."""

    def __init__(self, path: Path, folder: Path) -> None:
        import datasets
        from transformers import LlamaConfig, LlamaForCausalLM
        from trl import SFTConfig, SFTTrainer

        from txagent_train.data.decompose import decompose
        from txagent_train.data.loading import load_traces
        from txagent_train.models.loading import load_tokenizer
        from txagent_train.rendering.renderer import Renderer
        from txagent_train.rendering.wire import wire_format_for

        datasets.disable_progress_bars()
        tokenizer = load_tokenizer(MODEL)
        renderer = Renderer(tokenizer, wire_format_for(tokenizer, syntax="txagent", finish="call"))
        samples = [sample for trace in load_traces(path) for sample in map(_row(renderer), decompose(trace))]
        file = folder / "samples.jsonl"
        file.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        self._dataset = datasets.Dataset.from_list(samples, on_mixed_types="use_json")
        config = LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
        )
        arguments = SFTConfig(
            output_dir=str(folder / "trl"),
            max_length=None,
            report_to=[],
            use_cpu=True,
            bf16=False,
            dataset_num_proc=None,
        )
        self._trainer = SFTTrainer(
            LlamaForCausalLM(config), arguments, train_dataset=self._dataset.select([0, 1]), processing_class=tokenizer
        )

    def run(self) -> tuple[int, float]:
        """Samples and seconds."""
        import datasets

        datasets.disable_caching()
        trainer = self._trainer
        start = time.perf_counter()
        out = trainer._prepare_dataset(self._dataset, trainer.processing_class, trainer.args, False, None, "train")
        return len(out), time.perf_counter() - start


def _row(renderer: Any) -> Any:
    def row(example: Any) -> dict[str, Any]:
        trace = example.trace
        turns = (*example.history, example.target)
        messages = renderer.messages(trace_id=trace.id, system=trace.system, turns=turns)
        steps = len(renderer.messages(trace_id=trace.id, system=trace.system, turns=example.history))
        completion = messages[steps]
        if example.is_final:
            completion = completion | {"content": f"{completion['content']}\n\n[FinalAnswer] {trace.answer}"}
        tools = renderer.template_tools(example.tools)
        return {"prompt": messages[:steps], "completion": [completion], "tools": json.dumps(tools)}

    return row


def compare(traces: int, rounds: int, result_words: int) -> Iterator[dict[str, Any]]:
    """One record a round: samples per second of both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "traces.jsonl"
        write_traces(path, traces, result_words=result_words)
        trl = TrlTokenizer(path, folder)
        for number in range(rounds + 1):
            order = ("ours", "trl") if number % 2 else ("trl", "ours")
            found: dict[str, float] = {}
            for side in order:
                if side == "ours":
                    report, seconds = prepare(path, folder / f"round-{number}")
                    found[side] = report.rows / seconds
                    samples = report.rows
                else:
                    rows, seconds = trl.run()
                    found[side] = rows / seconds
                    assert rows == samples if "ours" in found else True
            if number:  # the first round warms up
                yield {"ours": found["ours"], "trl": found["trl"], "ratio": found["ours"] / found["trl"]}


def grow(counts: list[int], workers: int, result_words: int) -> list[dict[str, float]]:
    """Seconds and peak memory of a preparation, each in a process of its own."""
    out = []
    with tempfile.TemporaryDirectory() as name:
        for count in counts:
            path = Path(name) / f"{count}.jsonl"
            write_traces(path, count, result_words=result_words)
            command = [sys.executable, __file__, "--one", str(path), "--workers", str(workers)]
            answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            out.append({"traces": count, **json.loads(answer.splitlines()[-1])})
            path.unlink()
    return out


def one(path: Path, workers: int) -> dict[str, float]:
    """Prepare a file: seconds, and the peak memory of this process."""
    with tempfile.TemporaryDirectory() as name:
        report, seconds = prepare(path, Path(name), workers=workers)
    # Not ru_maxrss: a process starts with the one of its parent.
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024
    return {
        "seconds": seconds,
        "peak_mib": peak,
        "samples": report.rows,
        "tokens_per_sample": report.tokens / report.rows,
        "stored_share": report.stored_tokens / report.tokens,
    }


def slope(points: list[dict[str, float]]) -> float:
    """Seconds a trace, between the smallest and the largest of the counts: start-up costs fall out."""
    first, last = points[0], points[-1]
    return (last["seconds"] - first["seconds"]) / (last["traces"] - first["traces"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--traces", type=int, default=400, help="traces of the comparison")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--result-words", type=int, default=0, help="lengthen each tool result by so many words")
    parser.add_argument("--grow", type=int, nargs="+", default=[1000, 5000, 20000], help="traces of the growth runs")
    parser.add_argument("--workers", type=int, default=1, help="processes of the growth runs")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if args.one:
        print(json.dumps(one(args.one, args.workers)))
        return
    rounds = list(compare(args.traces, args.rounds, args.result_words))
    points = grow(args.grow, args.workers, args.result_words)
    ratios = sorted(item["ratio"] for item in rounds)
    result = {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "ours_samples_per_s": statistics.median(item["ours"] for item in rounds),
        "trl_samples_per_s": statistics.median(item["trl"] for item in rounds),
        "ratio": statistics.median(ratios),
        "ratio_spread": [ratios[0], ratios[-1]],
        "rounds": rounds,
        "tokens_per_sample": points[-1]["tokens_per_sample"],
        "growth": points,
        "seconds_per_trace": slope(points),
        f"hours_for_{PAPER_TRACES}_traces": slope(points) * PAPER_TRACES / 3600,
    }
    if args.json:
        print(json.dumps(result))
        return
    print(
        f"ours {result['ours_samples_per_s']:.0f} samples/s, TRL {result['trl_samples_per_s']:.0f}: "
        f"{result['ratio']:.1f}x ({ratios[0]:.1f} to {ratios[-1]:.1f} in {len(rounds)} rounds)"
    )
    for point in points:
        print(f"{point['traces']:>7} traces: {point['seconds']:7.1f} s, peak {point['peak_mib']:.0f} MiB")
    print(
        f"{PAPER_TRACES} traces: {slope(points) * PAPER_TRACES / 60:.1f} minutes an epoch, {args.workers} process(es)"
    )


if __name__ == "__main__":
    main()
