"""Training on tries against the fastest of TRL's modes on the same samples: wall clock and tokens.

    python benchmarks/bench_packing.py --json              the whole grid
    python benchmarks/bench_packing.py --headline --json   four samples, one Tool_RAG call, and nothing to share

A random Llama with LoRA trains whole optimizer steps on traces with TxAgent's proportions, both scaled so that
attention has the share of the time that it has in the 8B (scaled_traces). The sides are ours with ``packing: trie`` and
``none``, and TRL's SFTTrainer with each sample alone, padded batches, padding-free batches, and bfd packing; the last
two run on a CPU with a dense mask, which is why the fastest of TRL's modes is what counts.

Sides take turns (packing_arms); the first turn warms up. Modes of TRL that take more than 1.4 times the fastest one in
it leave a cell then, and are reported with its time; not so in the headline's. Peak memory is what the process of a
side holds at most in a step (VmHWM, reset before) over what it holds at rest.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from packing_arms import Arm, Cell, arms, llama_config, prepared, recipe_for, recipe_of, save_tokenizer, serve
from scaled_traces import HIDDEN_8B, Proportions, TraceMaker, small_tokenizer, vocabulary_size

HEADLINE = (4, 1, "result")
NOTHING_SHARED = (1, 0, "prompt")
SCREEN = 1.4
_PRELOADED = ["torch", "trl.trainer.sft_trainer", "txagent_train.sft.run"]


@dataclass(frozen=True)
class Size:
    """How large the benchmark is. ``traces`` make one optimizer step; ``row_tokens`` is train.row_tokens."""

    hidden: int = 512
    layers: int = 2
    traces: int = 2
    rounds: int = 5
    row_tokens: int | None = None

    @property
    def scale(self) -> float:
        return self.hidden / HIDDEN_8B


def grid() -> list[tuple[int, int, str]]:
    """(samples a trace, Tool_RAG calls, delivery). Without such a call both deliveries are the same."""
    cells = [
        (samples, calls, delivery)
        for samples in (2, 3, 4, 5)
        for calls in (0, 1, 2)
        for delivery in (("prompt", "result") if calls else ("prompt",))
    ]
    return [NOTHING_SHARED, *cells]


class Sides:
    """The processes of all sides."""

    def __init__(self, sides: list[Arm]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._connections = {}
        self._processes = []
        for arm in sides:
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(theirs, arm), daemon=True)
            process.start()
            theirs.close()
            self._connections[arm.name] = ours
            self._processes.append(process)

    @property
    def names(self) -> list[str]:
        return list(self._connections)

    def send(self, name: str, message: Any) -> Any:
        """Send to a side and wait for its answer.

        Raises:
            RuntimeError: the side failed.
        """
        self._connections[name].send(message)
        answer = self._connections[name].recv()
        if "error" in answer:
            raise RuntimeError(f"{name}: {answer['error']}")
        return answer

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()  # a side ends there, in the middle of training too
        for process in self._processes:
            process.join()


@contextmanager
def running(sides: list[Arm]) -> Iterator[Sides]:
    started = Sides(sides)
    try:
        yield started
    finally:
        started.close()


def measure(sides: Sides, cell: Cell, rounds: int, *, screen: bool) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """What each side says of itself, and the seconds of its steps, turn by turn."""
    about = {name: sides.send(name, cell) for name in sides.names}
    theirs = {name: item["seconds"] for name, item in about.items() if name.startswith("trl")}
    slow = [name for name in theirs if screen and theirs[name] > SCREEN * min(theirs.values())]
    for name in slow:
        sides.send(name, "stop")
    seconds: dict[str, list[float]] = {name: [] for name in sides.names if name not in slow}
    order = list(seconds)
    for number in range(rounds):
        # Who begins changes from turn to turn.
        for name in order[number % len(order) :] + order[: number % len(order)]:
            seconds[name].append(sides.send(name, "go")["seconds"])
    for name in order:
        sides.send(name, "stop")
    return about, seconds


def evaluated(key: tuple[int, int, str], about: dict[str, Any], seconds: dict[str, list[float]]) -> dict[str, Any]:
    """The figures of a cell. Ratios are of steps in the same turn; the median and the spread of the turns."""
    naive, trie = about["none"]["tokens"], about["trie"]["tokens"]
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    best = min((name for name in medians if name.startswith("trl")), key=lambda name: medians[name])
    ratios = sorted(other / ours for other, ours in zip(seconds[best], seconds["trie"], strict=True))
    token_ratio = naive / trie
    ratio = statistics.median(ratios)
    return {
        "samples": key[0],
        "tool_rag_calls": key[1],
        "delivery": key[2] if key[1] else "either",
        "best_trl": best,
        "time_ratio_vs_best_trl": ratio,
        "time_ratio_spread": [ratios[0], ratios[-1]],
        "time_ratio_vs_none": medians["none"] / medians["trie"],
        "token_ratio": token_ratio,
        "time_over_token_ratio": ratio / token_ratio,
        "tokens": {"naive": naive, "trie": trie, "trie_padding": about["trie"]["padding"]},
        "gradients_differ_by": _difference(about),
        "sides": {name: _side(item, seconds.get(name, []), naive) for name, item in about.items()},
    }


def _side(about: dict[str, Any], seconds: list[float], naive: int) -> dict[str, Any]:
    """The figures of a side; one that left after its first step, which warmed up, has the time of that."""
    values = seconds or [about["seconds"]]
    median = statistics.median(values)
    return {
        "seconds": median,
        "seconds_spread": [min(values), max(values)],
        "turns": len(seconds),
        "sample_tokens_per_s": naive / median,
        "computed_tokens_per_s": about.get("tokens", naive) / median,
        "forwards": about["forwards"],
        "peak_mib": about["peak_mib"],
        "rest_mib": about["rest_mib"],
    }


def _difference(about: dict[str, Any]) -> float:
    """How far the sides' first gradients are apart at most, by their sums and sums of squares, over the norm."""
    norm = about["none"]["gradient"][1] ** 0.5
    sums = [item["gradient"][0] / norm for item in about.values()]
    norms = [item["gradient"][1] ** 0.5 / norm for item in about.values()]
    return max(max(sums) - min(sums), max(norms) - min(norms))


class Bench:
    """Traces, model and recipes of all cells, in one scratch folder."""

    def __init__(self, size: Size, folder: Path) -> None:
        self.size = size
        self._folder = folder
        self._tokenizer = small_tokenizer(vocabulary_size(size.hidden, size.layers))
        self.max_length = round(32768 * size.scale)
        self._save_model(folder / "model")

    def _save_model(self, folder: Path) -> None:
        import torch
        from transformers import LlamaForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.manual_seed(0)
        config = llama_config(self._tokenizer, hidden=self.size.hidden, layers=self.size.layers)
        LlamaForCausalLM(config).save_pretrained(folder)
        save_tokenizer(self._tokenizer, folder)

    def cell(self, key: tuple[int, int, str], parts: Proportions, *, check: bool = False) -> Cell:
        samples, calls, delivery = key
        # A trace with nothing to share is short; a step over few of them would be too short to measure.
        traces = self.size.traces * (4 if samples == 1 else 1)
        data = self._folder / f"s{samples}-r{calls}-t{parts.tools}-r{parts.result}.jsonl"
        maker = TraceMaker(self._tokenizer, parts, self.size.scale)
        maker.write(data, traces, samples, calls)
        recipe = recipe_of(
            self._folder / "model",
            data,
            self._folder / "run",
            delivery=delivery,
            max_length=self.max_length,
            traces=traces,
        )
        return Cell(recipe, str(self._folder), check)

    def token_ratios(self, key: tuple[int, int, str]) -> list[dict[str, float]]:
        """What a cell's ratio of tokens would be with other proportions than those that were assumed."""
        found = []
        for tools in (12, 24, 48):
            for result in (300, 600, 1200):
                cell = self.cell(key, replace(Proportions(), tools=tools, result=result))
                report = prepared(recipe_for(cell, packing="none")).report
                mean = report.tokens / report.rows / self.size.scale
                ratio = report.tokens / report.stored_tokens
                found.append({"tools": tools, "result": result, "mean_sample": mean, "token_ratio": ratio})
        return found


def run(size: Size, keys: list[tuple[int, int, str]]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(size, Path(name))
        found = {}
        with running(arms(bench.max_length, size.row_tokens)) as sides:
            for key in keys:
                headline = key == HEADLINE
                start = time.perf_counter()
                about, seconds = measure(
                    sides, bench.cell(key, Proportions(), check=headline), size.rounds, screen=not headline
                )
                found[key] = evaluated(key, about, seconds)
                if headline:
                    found[key]["grad_rel_err"] = about["trie"]["grad_rel_err"]
                print(f"{_line(found[key])}  [{time.perf_counter() - start:.0f} s]", file=sys.stderr)
        return _result(size, found) | {"token_ratio_by_proportions": bench.token_ratios(HEADLINE)}


def _result(size: Size, found: dict[tuple[int, int, str], dict[str, Any]]) -> dict[str, Any]:
    head, alone = found[HEADLINE], found[NOTHING_SHARED]
    mean = head["tokens"]["naive"] / (head["samples"] * size.traces)
    shared = [cell for key, cell in found.items() if key != NOTHING_SHARED]
    names = (
        "time_ratio_vs_best_trl",
        "time_ratio_spread",
        "time_ratio_vs_none",
        "token_ratio",
        "best_trl",
        "grad_rel_err",
    )
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "size": asdict(size) | {"vocabulary": vocabulary_size(size.hidden, size.layers), "scale": size.scale},
        "mean_sample_in_8b_tokens": mean / size.scale,
        # Of the linear layers and attention of a block, at the headline's mean length; the same in the 8B.
        "attention_share_of_flops": mean / (mean + 13 * size.hidden),
        "proportions_in_8b_tokens": asdict(Proportions()),
        **{name: head[name] for name in names},
        "nothing_shared_ratio": alone["time_ratio_vs_best_trl"],
        "lowest_time_over_token_ratio": min(cell["time_over_token_ratio"] for cell in shared),
        "cells": list(found.values()),
    }


def _line(cell: dict[str, Any]) -> str:
    sides = "  ".join(f"{name} {side['seconds']:.2f}s/{side['peak_mib']:.0f}M" for name, side in cell["sides"].items())
    return (
        f"{cell['samples']} samples, {cell['tool_rag_calls']} Tool_RAG, {cell['delivery']:6}: time "
        f"{cell['time_ratio_vs_best_trl']:.2f} (to {cell['best_trl']}), tokens {cell['token_ratio']:.2f}, "
        f"{cell['time_over_token_ratio']:.0%}  {sides}"
    )


def _set_environment() -> None:
    """Before a side imports its libraries; what the user has set stays."""
    for name, value in {
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "WANDB_MODE": "disabled",
        "GOMP_SPINCOUNT": "10000",  # sides that wait for their turn must sleep soon
        "DS_ACCELERATOR": "cpu",  # else deepspeed, which comes with the trainers, prints that it guessed so
    }.items():
        os.environ.setdefault(name, value)


def _own_stdout() -> TextIO:
    """Standard output for the result alone: what libraries print, in this and in other processes, goes to stderr."""
    own = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(own, "w")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--headline", action="store_true", help="only the headline's cell and the one without sharing")
    parser.add_argument("--quick", action="store_true", help="a tiny model and two turns: whether it works, no figures")
    parser.add_argument("--hidden", type=int, default=Size.hidden, help="a multiple of 128; lengths follow")
    parser.add_argument("--layers", type=int, default=Size.layers)
    parser.add_argument("--traces", type=int, default=Size.traces, help="traces of an optimizer step")
    parser.add_argument("--rounds", type=int, default=Size.rounds)
    parser.add_argument("--row-tokens", type=int, help="train.row_tokens of ours (default: the recipe's)")
    args = parser.parse_args()
    _set_environment()
    out = _own_stdout()
    size = (
        Size(256, 1, 1, 2) if args.quick else Size(args.hidden, args.layers, args.traces, args.rounds, args.row_tokens)
    )
    keys = [NOTHING_SHARED, HEADLINE] if args.headline or args.quick else grid()
    result = run(size, keys)
    if args.json:
        print(json.dumps(result), file=out)
        return
    print(
        f"headline: {result['time_ratio_vs_best_trl']:.2f}x in time, {result['token_ratio']:.2f}x in tokens, gradient "
        f"off by {result['grad_rel_err']:.1e}; nothing to share: {result['nothing_shared_ratio']:.2f}",
        file=out,
    )


if __name__ == "__main__":
    main()
