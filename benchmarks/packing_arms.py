"""The sides of bench_packing.py: each trains the same prepared rows in a process of its own, one step at each call.

A process keeps its model and libraries from cell to cell. In a cell it runs ``trainer.train()`` of the real trainer,
ours or TRL's; a callback holds it at the end of each optimizer step until the next is asked for. So the sides take
turns, nothing of one is in the memory of another, and a step's time has everything in it: collating, forward and
backward passes, clipping, the optimizer and the scheduler.
"""

from __future__ import annotations

import ctypes
import gc
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scaled_traces import CONTROLS

MAX_STEPS = 64
"""More steps than a cell measures, so that none of them is the last of its run, which saves."""
_PADDED_BATCH = 4
_AS_OURS = ("learning_rate", "weight_decay", "max_grad_norm", "optim", "seed", "bf16", "use_cpu")
_AS_OURS += ("gradient_checkpointing", "gradient_checkpointing_kwargs", "dataloader_pin_memory")


@dataclass(frozen=True, slots=True)
class Arm:
    """A side. ``options`` are of the recipe's train section where it is ours, SFTConfig's where it is TRL's."""

    name: str
    kind: str
    options: dict[str, Any]


def arms(max_length: int, row_tokens: int | None) -> list[Arm]:
    """Ours with and without tries, and the modes of TRL.

    Args:
        max_length: the length that TRL packs to.
        row_tokens: the length of ours; None is the recipe's default.
    """
    padded = {"per_device_train_batch_size": _PADDED_BATCH}
    return [
        Arm("trie", "ours", {"packing": "trie", "row_tokens": row_tokens}),
        Arm("none", "ours", {"packing": "none"}),
        Arm("trl_single", "trl", {"per_device_train_batch_size": 1}),
        Arm("trl_padded", "trl", padded | {"train_sampling_strategy": "group_by_length"}),
        Arm("trl_padding_free", "trl", padded | {"padding_free": True}),
        Arm("trl_bfd", "trl", {"packing": True, "packing_strategy": "bfd", "max_length": max_length}),
    ]


@dataclass(frozen=True, slots=True)
class Cell:
    """What is trained: a recipe, and a scratch folder. ``check`` asks for the error of the gradient."""

    recipe: dict[str, Any]
    scratch: str
    check: bool = False


def serve(connection: Connection, arm: Arm) -> None:
    """The process of a side: runs the cells that it is sent, until the other end is closed."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    with suppress(EOFError):
        while True:
            cell: Cell = connection.recv()
            with tempfile.TemporaryDirectory(dir=cell.scratch) as folder:
                try:
                    _train(connection, arm, cell, Path(folder))
                except EOFError:
                    raise
                except Exception as error:
                    connection.send({"error": f"{type(error).__name__}: {error}"})


def _train(connection: Connection, arm: Arm, cell: Cell, folder: Path) -> None:
    recipe = recipe_for(cell, **arm.options) if arm.kind == "ours" else recipe_for(cell, packing="none")
    rows = prepared(recipe)
    if arm.kind == "ours":
        trainer = our_trainer(recipe, rows, folder, load_adapted(recipe))
        about = shapes(trainer)
    else:
        trainer = trl_trainer(arm.options, recipe, rows, folder, lambda: load_adapted(recipe))
        about = {"forwards": trainer.args.gradient_accumulation_steps}
    if cell.check and arm.name == "trie":
        plain = recipe.model_copy(update={"train": recipe.train.model_copy(update={"packing": "none"})})
        about["grad_rel_err"] = relative_error(step_gradient(trainer), one_by_one(load_adapted(plain), rows))
    trainer.add_callback(_baton(connection, about))
    with _quiet(folder):
        trainer.train()
    connection.send({"stopped": True})


def recipe_for(cell: Cell, **train: Any) -> Any:
    """The recipe of a cell with settings of its train section."""
    from txagent_train.config.sft import SftRecipe

    return SftRecipe.model_validate(cell.recipe | {"train": cell.recipe["train"] | train})


def prepared(recipe: Any) -> Any:
    from txagent_train.sft.prepare import Preparation
    from txagent_train.sft.rendering import renderer_for

    preparation = Preparation.of(recipe, renderer_for(recipe.model, recipe.wire, recipe.seed))
    return preparation.epochs(1, traces_per_step=recipe.train.traces_per_step, max_steps=None)[0]


def load_adapted(recipe: Any) -> Any:
    """The model of a recipe as a run loads it, with its adapter."""
    from txagent_train.models.loading import load_model
    from txagent_train.packing.attention import attention_kernel

    kernel = attention_kernel(recipe.model.attn_implementation, recipe.train.packing)
    return adapted(load_model(recipe.model.name_or_path, dtype=recipe.model.dtype, attn_implementation=kernel), recipe)


def adapted(base: Any, recipe: Any) -> Any:
    """A model with the adapter of a recipe, both halves of it random, so that all of it has a gradient."""
    import torch

    from txagent_train.sft.adapter import add_adapter, lora_config

    model = add_adapter(base, lora_config(recipe.adapter.lora.options()), init_from=None, seed=recipe.seed)
    generator = torch.Generator().manual_seed(0)
    for name, value in model.named_parameters():
        if "lora_B" in name:
            value.data.copy_(torch.randn(value.shape, generator=generator) * 0.02)
    return model


def our_trainer(recipe: Any, rows: Any, folder: Path, model: Any) -> Any:
    from txagent_train.models.loading import resolve_dtype
    from txagent_train.sft.arguments import training_arguments
    from txagent_train.sft.plan import RunPlan
    from txagent_train.sft.trainer import TraceTrainer

    train = recipe.train
    # An epoch is one step: all of them are over the same traces.
    plan = RunPlan.of(
        [rows] * MAX_STEPS, traces_per_step=train.traces_per_step, seed=recipe.seed, reduction=train.loss_reduction
    )
    dtype = resolve_dtype(recipe.model.dtype)
    args = training_arguments(recipe, output_dir=folder, steps=len(plan.steps), dtype=dtype)
    return TraceTrainer(model, args, tokenizer=_tokenizer(recipe), plan=plan, recipe=recipe, checkpoints=folder)


def _tokenizer(recipe: Any) -> Any:
    from txagent_train.models.loading import load_tokenizer
    from txagent_train.rendering.wire import FRAMES

    tokenizer = load_tokenizer(recipe.model.name_or_path)
    tokenizer.pad_token = next(name for name in FRAMES["llama3"].pad_candidates if name in tokenizer.get_vocab())
    return tokenizer


def trl_trainer(options: dict[str, Any], recipe: Any, rows: Any, folder: Path, make_model: Callable[[], Any]) -> Any:
    """TRL's trainer on the same samples as token ids with a mask of the completion, the optimizer set as ours.

    Args:
        options: of SFTConfig: how it batches or packs.
    """
    import datasets
    import trl.trainer.utils
    from trl import SFTConfig, SFTTrainer

    from txagent_train.models.loading import resolve_dtype
    from txagent_train.sft.arguments import training_arguments

    datasets.disable_progress_bars()
    # On a GPU TRL takes the head to the trained positions alone, elsewhere to all of them. It gets the faster way.
    trl.trainer.utils._use_triton = lambda device: True
    samples = [rows.row(number) for number in range(len(rows))]
    dataset = datasets.Dataset.from_dict(
        {
            "input_ids": [ids.tolist() for ids, _ in samples],
            "completion_mask": [mask.astype(int).tolist() for _, mask in samples],
        }
    )
    ours = training_arguments(recipe, output_dir=folder, steps=MAX_STEPS, dtype=resolve_dtype(recipe.model.dtype))
    settings: dict[str, Any] = {name: getattr(ours, name) for name in _AS_OURS}
    settings |= {"output_dir": str(folder), "max_steps": MAX_STEPS, "completion_only_loss": True, "max_length": None}
    settings |= {"logging_strategy": "no", "save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    settings |= options
    tokenizer = _tokenizer(recipe)

    def trainer(**more: Any) -> Any:
        arguments = SFTConfig(**settings | more)
        return SFTTrainer(make_model(), arguments, train_dataset=dataset, processing_class=tokenizer)

    batch = min(len(dataset), options.get("per_device_train_batch_size", 1))
    # Only when it has packed is it known how many passes make one step.
    passes = len(trainer(per_device_train_batch_size=1).train_dataset) if options.get("packing") else len(dataset)
    return trainer(per_device_train_batch_size=batch, gradient_accumulation_steps=math.ceil(passes / batch))


def shapes(trainer: Any) -> dict[str, Any]:
    """What ours computes in a step."""
    share = next(iter(trainer.get_train_dataloader()))["share"]
    return {
        "tokens": sum(batch.tokens for batch in share.forwards),
        "padding": sum(batch.input_ids.numel() - batch.tokens for batch in share.forwards),
        "forwards": len(share.forwards),
    }


def step_gradient(trainer: Any) -> Any:
    """The gradient of ours over all trained parameters in its first step."""
    trainer.training_step(trainer.model, next(iter(trainer.get_train_dataloader())))
    return _taken_gradient(trainer.model)


def one_by_one(model: Any, rows: Any, autocast: Any = None) -> Any:
    """The same gradient from each sample alone, through the model's own attention and logits.

    Args:
        autocast: the type that is computed in, where it is not that of the weights.
    """
    import torch
    import torch.nn.functional as F

    total = int(rows.supervised.sum())
    for number in range(len(rows)):
        ids, mask = rows.row(number)
        tokens = torch.from_numpy(ids.astype("int64")).to(model.device)
        trained = torch.from_numpy(mask[1:]).to(model.device)
        with torch.autocast(model.device.type, dtype=autocast, enabled=autocast is not None):
            logits = model(input_ids=tokens[None], use_cache=False).logits[0, :-1]
        (F.cross_entropy(logits[trained].float(), tokens[1:][trained], reduction="sum") / total).backward()
    return _taken_gradient(model)


def _taken_gradient(model: Any) -> Any:
    import torch

    found = [value.grad.double().flatten() for value in model.parameters() if value.requires_grad]
    model.zero_grad()
    return torch.cat(found)


def relative_error(gradient: Any, expected: Any) -> float:
    """The norm of the difference over the norm."""
    return float((gradient - expected).norm() / expected.norm())


def _baton(connection: Connection, about: dict[str, Any]) -> Any:
    """The callback that holds training at each step's end. The first step warms up; it also gives the peak memory and
    the gradient, by which the sides are compared."""
    import torch
    from transformers import TrainerCallback

    class Baton(TrainerCallback):
        start = 0.0
        rest = 0.0

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.rest = reset_peak()
            self.start = time.perf_counter()

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if state.global_step == 0:
                found = [value.grad.double() for value in model.parameters() if value.requires_grad]
                about["gradient"] = [
                    float(torch.stack([(grad**power).sum() for grad in found]).sum()) for power in (1, 2)
                ]

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            answer = {"seconds": time.perf_counter() - self.start}
            if state.global_step == 1:
                answer |= about | {"peak_mib": peak_since() - self.rest, "rest_mib": self.rest}
            connection.send(answer)
            control.should_training_stop = connection.recv() == "stop"
            self.start = time.perf_counter()

    return Baton()


@contextmanager
def _quiet(folder: Path) -> Iterator[None]:
    """What the parent trainers print at the end of training is not wanted between the figures."""
    with (folder / "stdout.txt").open("w") as file, redirect_stdout(file):
        yield


def reset_peak() -> float:
    """Give freed memory back and forget the peak of this process; what is resident now, in MiB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak_since() -> float:
    """The most that was resident since ``reset_peak``, in MiB."""
    return _status("VmHWM")


def _status(name: str) -> float:
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) / 1024


def llama_config(tokenizer: Any, *, hidden: int, layers: int, vocabulary: int | None = None) -> Any:
    """A Llama of the 8B's proportions: heads of 128, four queries a key, an MLP 3.5 times as wide."""
    from transformers import LlamaConfig

    heads = max(1, hidden // 128)
    return LlamaConfig(
        vocab_size=vocabulary or tokenizer.get_vocab_size(),
        hidden_size=hidden,
        intermediate_size=hidden * 7 // 2,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4),
        max_position_embeddings=131072,
        rope_theta=500000.0,
        bos_token_id=tokenizer.token_to_id(CONTROLS[0]),
        eos_token_id=tokenizer.token_to_id(CONTROLS[-1]),
        pad_token_id=tokenizer.token_to_id(CONTROLS[1]),
        tie_word_embeddings=False,
    )


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=CONTROLS[0], eos_token=CONTROLS[-1], clean_up_tokenization_spaces=False
    ).save_pretrained(folder)


def recipe_of(
    model: Path, data: Path, folder: Path, *, delivery: str, max_length: int, traces: int, **options: Any
) -> dict[str, Any]:
    """The recipe of a cell: LoRA and optimizer as in the shipped recipes of agents; ``options`` of the model."""
    return {
        "kind": "sft",
        "name": "bench",
        "output_dir": str(folder),
        "model": {"name_or_path": str(model), "dtype": "float32", **options},
        "adapter": {"method": "lora", "lora": {"r": 16, "lora_alpha": 16, "lora_dropout": 0.0}},
        "wire": {"syntax": "txagent", "finish": "call", "tool_delivery": delivery},
        "data": {"sources": [{"path": str(data)}], "max_length": max_length, "workers": 1},
        "train": {"traces_per_step": traces, "learning_rate": 2.0e-4, "save_every": 10**6},
    }
