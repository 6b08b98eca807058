"""Tiny models and prepared rows for tests of training: seconds on one CPU, exact in fp64."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from txagent_train.config.loading import to_yaml
from txagent_train.config.sft import SftRecipe
from txagent_train.core.codec import trace_to_json
from txagent_train.core.records import (
    JsonObject,
    RenderedExample,
    Step,
    ToolCall,
    ToolResult,
    ToolSpec,
    Trace,
    UserMessage,
)
from txagent_train.models.loading import load_tokenizer
from txagent_train.packing.attention import attention_kernel
from txagent_train.sft.adapter import add_adapter, lora_config
from txagent_train.sft.arguments import training_arguments
from txagent_train.sft.parts import Part, merge_parts
from txagent_train.sft.plan import RunPlan
from txagent_train.sft.prepared import PreparedRows
from txagent_train.sft.trainer import TraceTrainer

VOCABULARY = 61


def tiny_model(dtype: torch.dtype = torch.float64, *, tied: bool = False, seed: int = 0) -> LlamaForCausalLM:
    """A random Llama with two layers."""
    set_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=tied,
        initializer_range=0.3,
    )
    return LlamaForCausalLM(config).to(dtype)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer for the model above; only its special tokens matter."""
    vocabulary = {"<pad>": 0, "<bos>": 1, "<eos>": 2, "<unk>": 3} | {f"w{i}": i for i in range(4, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    )


def random_traces(count: int, *, seed: int = 0, weights: Sequence[float] = (1.0,)) -> list[list[RenderedExample]]:
    """Rows of random tokens, one to three in each trace, of very different lengths.

    Each row begins as the one before does, for more or less of its tokens, as the steps of a trace do.
    """
    rng = random.Random(seed)
    traces = []
    for number in range(count):
        rows: list[RenderedExample] = []
        for step in range(rng.randint(1, 3)):
            prompt, output = rng.randint(2, 20), rng.randint(1, 9)
            before = rows[-1].input_ids if rows else ()
            common = before[: rng.randint(0, len(before))]
            new = (rng.randrange(4, VOCABULARY) for _ in range(prompt + output - len(common)))
            ids = (*common, *new)
            output = min(output, len(ids) - 1)
            prompt = len(ids) - output
            rows.append(
                RenderedExample(
                    id=f"t{number}#{step}",
                    step_index=step,
                    input_ids=ids,
                    loss_mask=(False,) * prompt + (True,) * output,
                    weight=rng.choice(weights),
                )
            )
        traces.append(rows)
    return traces


def prepare_rows(directory: Path, traces: Sequence[Sequence[RenderedExample]]) -> PreparedRows:
    """Write rows as preparation does, from two sources that alternate, and open them."""
    parts = []
    directory.parent.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(traces):
        part = Part(number % 2)
        part.start_trace(f"t{number}")
        for row in rows:
            part.add(row)
        parts.append(directory.with_name(f"{directory.name}-{number:03d}.npz"))
        part.save(parts[-1])
    names, kinds = ("even", "odd"), ("trace", "chat")
    prepared = merge_parts(parts, directory, key="test", source_names=names, kinds=kinds)
    for path in parts:
        path.unlink()
    return prepared


def tiny_recipe(output_dir: Path, **sections: Any) -> SftRecipe:
    """A recipe with a learning rate at which a tiny model moves; ``sections`` lay over it."""
    data: dict[str, Any] = {
        "kind": "sft",
        "name": "tiny",
        "output_dir": str(output_dir),
        "model": {"name_or_path": "tiny", "dtype": "float32"},
        "adapter": {"lora": {"r": 4}},
        "data": {"sources": [{"path": "unused.jsonl"}], "eval": [{"path": "unused too.jsonl"}]},
        "train": {"learning_rate": 1e-2, "traces_per_step": 4},
    }
    for name, values in sections.items():
        data[name] = data[name] | values if isinstance(values, dict) and name in data else values
    return SftRecipe.model_validate(data)


def make_trainer(
    recipe: SftRecipe,
    rows: Sequence[PreparedRows],
    records: list[JsonObject],
    *,
    dtype: torch.dtype = torch.float64,
    eval_rows: PreparedRows | None = None,
) -> TraceTrainer:
    """A trainer on a tiny model; ``rows`` are the epochs."""
    train = recipe.train
    plan = RunPlan.of(
        rows,
        traces_per_step=train.traces_per_step,
        seed=recipe.seed,
        reduction=train.loss_reduction,
        max_steps=train.max_steps,
    )
    checkpoints = Path(recipe.output_dir) / "checkpoints"
    args = training_arguments(recipe, output_dir=checkpoints, steps=len(plan.steps), dtype=dtype)
    model: Any = tiny_model(dtype)
    model.set_attn_implementation(attention_kernel(recipe.model.attn_implementation, train.packing))
    if recipe.adapter.method == "lora":
        model = add_adapter(model, lora_config(recipe.adapter.lora.options()), init_from=None, seed=recipe.seed)
        if dtype is torch.float64:
            model = model.to(dtype)  # peft makes adapters in fp32
    return TraceTrainer(
        model,
        args,
        tokenizer=tiny_tokenizer(),
        plan=plan,
        recipe=recipe,
        checkpoints=checkpoints,
        eval_rows=eval_rows,
        on_record=records.append,
    )


def trained_weights(trainer: TraceTrainer) -> dict[str, torch.Tensor]:
    """Copies of the trained parameters by name."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


def losses(records: Sequence[JsonObject]) -> list[float]:
    """The loss of each optimizer step."""
    return [record["loss"] for record in records if record["kind"] == "train"]


def save_tiny_model(directory: Path) -> Path:
    """A tiny random model with SmolLM2's tokenizer, as a local folder."""
    tokenizer = load_tokenizer("embedded:smollm2-135m-instruct")
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=1,
        eos_token_id=2,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def small_traces(count: int) -> list[Trace]:
    """Traces of two steps: a call and the answer."""
    doses = ToolSpec("get_dose", "The dose of a drug.", {"type": "object", "properties": {"drug": {"type": "string"}}})
    other = ToolSpec(
        "get_route", "How a drug is given.", {"type": "object", "properties": {"drug": {"type": "string"}}}
    )
    return [
        Trace(
            id=f"trace-{number}",
            turns=(
                UserMessage(f"What is the dose of drug {number}?"),
                Step(
                    thought="I look it up. " * (1 + number % 3),
                    calls=(ToolCall("get_dose", {"drug": f"drug {number}"}),),
                    results=(ToolResult(0, {"dose": f"{number} mg"}),),
                ),
                Step(thought="I have it."),
            ),
            answer=f"The dose is {number} mg.",
            initial_tools=(doses, other),
        )
        for number in range(count)
    ]


def write_traces(path: Path, traces: Sequence[Trace]) -> Path:
    """Write traces in the native format."""
    path.write_text("".join(json.dumps(trace_to_json(trace)) + "\n" for trace in traces), encoding="utf-8")
    return path


def recipe_file(folder: Path, *, model: Path) -> Path:
    """A recipe as ``run_recipe`` makes it, in a file of its folder."""
    path = folder / "recipe.yaml"
    path.write_text(to_yaml(run_recipe(folder, model=model)))
    return path


def run_recipe(folder: Path, *, model: Path, traces: int = 6, **sections: Any) -> SftRecipe:
    """A recipe of a whole run on the small traces, which are written into ``folder``."""
    data = write_traces(folder / "train.jsonl", small_traces(traces))
    section = {"sources": [{"path": str(data)}], "eval": []} | sections.pop("data", {})
    train = {"learning_rate": 1e-2, "traces_per_step": 2, "save_every": 1} | sections.pop("train", {})
    return tiny_recipe(
        folder / "run",
        model={"name_or_path": str(model), "dtype": "float32"},
        data=section,
        train=train,
        tracking={"wandb": "off"},
        **sections,
    )
