"""Training on tries on one GPU: tokens a second, MFU and memory of an 8B-shaped Llama with LoRA, and gradients.

    python benchmarks/gpu/bench_trie.py --out trie.json                          one Hopper GPU, under 6 minutes
    python benchmarks/gpu/bench_trie.py --shape tiny --device cpu --out t.json   whether it works

Random bf16 weights are made on the device; nothing is downloaded. Traces of four samples and one Tool_RAG call, its
tools in the result, fill rows of 8k and of 32k tokens. Ours trains on them with the fast kernel (FlexAttention on a
GPU) and with a dense mask, TRL's SFTTrainer on the same samples: each alone, and bfd-packed to the same row length with
the kernels that this machine has for that. A step is one optimizer step with everything in it. MFU is by the 4N
convention over the tokens that are computed; ``sample_tokens_per_s`` is what compares sides. Gradients are of a model
cut down to two layers: bf16 on a trie and bf16 one by one, both against fp32 one by one.

What fails (out of memory, a kernel that is missing) is recorded with its reason; after ``--budget`` seconds no further
side is begun, and those left out are named.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
from packing_arms import (
    adapted,
    llama_config,
    one_by_one,
    our_trainer,
    peak_since,
    prepared,
    recipe_of,
    relative_error,
    reset_peak,
    save_tokenizer,
    shapes,
    step_gradient,
    trl_trainer,
)
from scaled_traces import HIDDEN_8B, Proportions, TraceMaker, small_tokenizer
from transformers import AutoModelForCausalLM, TrainerCallback

from txagent_train.config.sft import SftRecipe
from txagent_train.packing.attention import attention_kernel
from txagent_train.sft.metrics import peak_flops
from txagent_train.sft.recorder import flop_model

_GRADIENT_LAYERS = 2
_TOKENIZER_SIZE = 2000


@dataclass(frozen=True, slots=True)
class Shape:
    """A model, and the rows it trains on. ``scale`` is of the lengths of traces."""

    hidden: int
    layers: int
    vocabulary: int
    rows: tuple[int, ...]

    @property
    def scale(self) -> float:
        return self.hidden / HIDDEN_8B


SHAPES = {
    "8b": Shape(hidden=4096, layers=32, vocabulary=128256, rows=(8192, 32768)),
    "tiny": Shape(hidden=256, layers=2, vocabulary=_TOKENIZER_SIZE, rows=(1024, 2048)),
}


@dataclass(frozen=True, slots=True)
class Side:
    """``options`` are SFTConfig's, or None for ours. ``attention`` is the recipe's for ours, the model's for TRL's."""

    name: str
    attention: str
    options: dict[str, Any] | None = None


def sides(device: torch.device, row: int) -> list[Side]:
    """Ours first, so that a lack of time costs comparisons."""
    packed: dict[str, Any] = {"packing": True, "packing_strategy": "bfd", "max_length": row}
    if device.type == "cpu":
        kernels = ["sdpa"]  # the others have no backward pass there
    else:
        kernels = ["flex_attention", *(["flash_attention_2"] if find_spec("flash_attn") else [])]
    return [
        Side("trie", "auto"),
        Side("trie_dense_mask", "sdpa"),
        *(Side(f"trl_bfd_{kernel}", kernel, packed) for kernel in kernels),
        Side("trl_single", "sdpa", {"per_device_train_batch_size": 1}),
    ]


class Bench:
    """Recipes and data in a scratch folder, and models on the device."""

    def __init__(self, shape: Shape, device: torch.device, folder: Path) -> None:
        self.shape = shape
        self.device = device
        self.folder = folder
        self._tokenizer = small_tokenizer(_TOKENIZER_SIZE)
        save_tokenizer(self._tokenizer, folder / "model")
        self._config(shape.layers).save_pretrained(folder / "model")

    def _config(self, layers: int) -> Any:
        shape = self.shape
        return llama_config(self._tokenizer, hidden=shape.hidden, layers=layers, vocabulary=shape.vocabulary)

    def recipe(self, row: int, traces: int, attention: str, *, dtype: str = "bfloat16", packing: str = "trie") -> Any:
        data = self.folder / f"{traces}.jsonl"
        if not data.exists():
            TraceMaker(self._tokenizer, Proportions(), self.shape.scale).write(data, traces, 4, 1)
        options = {"dtype": dtype, "attn_implementation": attention, "gradient_checkpointing": True}
        recipe = recipe_of(
            self.folder / "model",
            data,
            self.folder / "run",
            delivery="result",
            max_length=row,
            traces=traces,
            **options,
        )
        return SftRecipe.model_validate(recipe | {"train": recipe["train"] | {"packing": packing}})

    def traces_in(self, row: int) -> int:
        """How many traces' tries fill a row; they are not all equally long."""
        report = prepared(self.recipe(row, 1, "auto")).report
        return max(1, int(0.97 * row / report.stored_tokens))

    def model(self, recipe: Any, *, attention: str, dtype: torch.dtype, layers: int) -> Any:
        """Random weights, made on the device, and the adapter; the same ones at each call."""
        config = self._config(layers)
        torch.manual_seed(0)
        with self.device:
            # Both types start from the same numbers: those that bfloat16 can hold.
            base = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=attention)
        return adapted(base.to(dtype), recipe)


def measure(bench: Bench, side: Side, row: int, traces: int, steps: int) -> dict[str, Any]:
    """Speed and memory of a side; ``steps`` are timed, and one before them is not: it compiles."""
    ours = side.options is None
    recipe = bench.recipe(row, traces, side.attention if ours else "auto", packing="trie" if ours else "none")
    rows = prepared(recipe)
    attention = attention_kernel(side.attention, "trie") if ours else side.attention

    def make() -> Any:
        return bench.model(recipe, attention=attention, dtype=torch.bfloat16, layers=bench.shape.layers)

    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        if side.options is None:
            trainer = our_trainer(recipe, rows, Path(name), make())
            about = shapes(trainer)
        else:
            trainer = trl_trainer(side.options, recipe, rows, Path(name), make)
            about = {"tokens": rows.report.tokens, "forwards": trainer.args.gradient_accumulation_steps}
        flops = flop_model(trainer.model.get_base_model(), full=False)
        timer = _Timer(bench.device, steps)
        trainer.add_callback(timer)
        trainer.train()
    median = statistics.median(timer.seconds)
    peak = peak_flops(bench.device)
    used = flops.step_flops(about["tokens"], rows.report.supervised_tokens) / median
    return about | {
        "seconds": median,
        "seconds_of_steps": timer.seconds,
        "first_step_seconds": timer.first,
        "sample_tokens_per_s": rows.report.tokens / median,
        "computed_tokens_per_s": about["tokens"] / median,
        "mfu_4n": None if peak is None else used / peak,
        "peak_mib": timer.peak_mib,
    }


class _Timer(TrainerCallback):
    """Times whole steps of a trainer and ends it after ``steps`` of them, the first not counted."""

    def __init__(self, device: torch.device, steps: int) -> None:
        self._device = device
        self._steps = steps
        self._start = 0.0
        self._rest = 0.0
        self.seconds: list[float] = []
        self.first = 0.0
        self.peak_mib = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            self._rest = reset_peak()
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            self.peak_mib = torch.cuda.max_memory_allocated(self._device) / 2**20
        else:
            self.peak_mib = peak_since() - self._rest
        took = time.perf_counter() - self._start
        if state.global_step == 1:
            self.first = took
        else:
            self.seconds.append(took)
        control.should_training_stop = len(self.seconds) == self._steps
        self._start = time.perf_counter()


def gradients(bench: Bench, row: int) -> dict[str, Any]:
    """How far bf16 and fp32 gradients are from fp32 one by one, with few layers: norm of the difference over norm."""
    torch.set_float32_matmul_precision("highest")
    plain = bench.recipe(row, 1, "sdpa", packing="none")
    rows = prepared(plain)

    def alone(dtype: torch.dtype) -> torch.Tensor:
        model = bench.model(plain, attention="sdpa", dtype=dtype, layers=_GRADIENT_LAYERS)
        return one_by_one(model, rows, None if dtype is torch.float32 else dtype)

    def trie(dtype: str) -> torch.Tensor:
        recipe = bench.recipe(row, 1, "auto", dtype=dtype)
        kernel = attention_kernel("auto", "trie")
        model = bench.model(recipe, attention=kernel, dtype=getattr(torch, dtype), layers=_GRADIENT_LAYERS)
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            return step_gradient(our_trainer(recipe, rows, Path(folder), model))

    expected = alone(torch.float32)
    return {
        name: attempt(lambda g=gradient: relative_error(g(), expected), bench.device)
        for name, gradient in {
            "bf16_one_by_one": lambda: alone(torch.bfloat16),
            "bf16_trie": lambda: trie("bfloat16"),
            "fp32_trie": lambda: trie("float32"),
        }.items()
    }


def attempt(what: Callable[[], Any], device: torch.device) -> Any:
    """The result, or the error as a record: a side that fails must not cost the others. Frees what it held."""
    try:
        return what()
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500]}
    finally:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def run(shape: Shape, device: torch.device, budget: float, save: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    began = time.perf_counter()
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    result: dict[str, Any] = {"machine": machine, "torch": torch.__version__, "rows": {}, "left_out": []}
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(shape, device, Path(name))
        result["gradients"] = attempt(lambda: gradients(bench, shape.rows[0]), device)
        for row in shape.rows:
            traces = bench.traces_in(row)
            found = result["rows"][str(row)] = {"traces": traces, "sides": {}}
            for side in sides(device, row):
                if time.perf_counter() - began > budget:
                    result["left_out"].append(f"{side.name} at {row}")
                    continue
                # A step over long rows without sharing takes many times as long.
                steps = 1 if row == shape.rows[-1] and side.options is not None else 3
                measured = attempt(lambda s=side, r=row, t=traces, n=steps: measure(bench, s, r, t, n), device)
                found["sides"][side.name] = measured
                print(f"{row:>6} {side.name}: {json.dumps(measured)}", file=sys.stderr)
                save(result)
            found |= _ratios(found["sides"])
            save(result)
    result["seconds"] = time.perf_counter() - began
    save(result)
    return result


def _ratios(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The trie against the fastest of TRL's modes, and against itself with a dense mask."""
    speed = {name: item["sample_tokens_per_s"] for name, item in found.items() if "error" not in item}
    theirs = [name for name in speed if name.startswith("trl")]
    if "trie" not in speed:
        return {}
    ratios: dict[str, Any] = {}
    if theirs:
        best = max(theirs, key=lambda name: speed[name])
        ratios |= {"best_trl": best, "time_ratio_vs_best_trl": speed["trie"] / speed[best]}
        ratios["token_ratio"] = found[best]["tokens"] / found["trie"]["tokens"]
    if "trie_dense_mask" in speed:
        ratios["time_ratio_vs_dense_mask"] = speed["trie"] / speed["trie_dense_mask"]
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="8b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--budget", type=float, default=300, help="seconds after which no further side is begun")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")

    def save(result: dict[str, Any]) -> None:
        args.out.write_text(json.dumps(result, indent=1))

    run(SHAPES[args.shape], torch.device(args.device), args.budget, save)


if __name__ == "__main__":
    main()
