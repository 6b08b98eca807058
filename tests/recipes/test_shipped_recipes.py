"""Every shipped recipe trains for two steps and resumes, with a tiny random model of the same architecture."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    set_seed,
)

from tests.support.tokenizers import small_llama3, small_qwen3, smollm2
from txagent_train.config.loading import load_recipe
from txagent_train.config.sft import SftRecipe
from txagent_train.config.shipped import shipped_recipe, shipped_recipes
from txagent_train.core.codec import trace_to_json
from txagent_train.core.errors import ModelError
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.writing import jsonl_writer
from txagent_train.demo.formulary import split_drugs
from txagent_train.demo.teacher import demo_traces
from txagent_train.demo.tools import RAG_SPEC, TOOL_SPECS
from txagent_train.sft.run import run_sft
from txagent_train.toolsmith.embedding import make_embedder
from txagent_train.toolsmith.neighbours import write_neighbours
from txagent_train.toolsmith.rewriting import RewritePlan, rewrite_toolbox
from txagent_train.toolsmith.rules import RuleWriter
from txagent_train.tracking.metrics import read_metrics

SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
}


def _model(name: str, folder: Path) -> None:
    """Write a tiny random model of the architecture, with a tokenizer of the kind, of the model that is named."""
    tokenizer: Callable[[], PreTrainedTokenizerBase]
    if "Qwen3" in name:
        config, model, tokenizer = Qwen3Config(**SHAPE, head_dim=8), Qwen3ForCausalLM, small_qwen3
    elif "Qwen2.5" in name:
        config, model, tokenizer = Qwen2Config(**SHAPE), Qwen2ForCausalLM, small_qwen3
    elif "Llama" in name:
        config, model, tokenizer = LlamaConfig(**SHAPE), LlamaForCausalLM, small_llama3
    else:
        assert name.startswith("embedded:smollm2"), name
        config, model, tokenizer = LlamaConfig(**SHAPE, tie_word_embeddings=True), LlamaForCausalLM, smollm2
    config.vocab_size = len(tokenizer())
    set_seed(0)
    model(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    # As transformers reads it: for some architectures it makes a pipeline of its own, and a run refuses to differ.
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def _tool_files(folder: Path) -> dict[str, Path]:
    """The toolbox of the demo, and what is made of it."""
    files = {name: folder / f"{name}.json" for name in ("toolbox", "rewrites", "neighbours")}
    toolbox = Toolbox((RAG_SPEC, *TOOL_SPECS))
    embedder = make_embedder("tfidf", toolbox.tools)
    toolbox.write(files["toolbox"])
    rewrite_toolbox(toolbox, RuleWriter(toolbox), embedder, RewritePlan(n=3)).rewrites.write(files["rewrites"])
    write_neighbours(toolbox, embedder, files["neighbours"], n=3)
    return files


def _recipe(name: str, folder: Path) -> SftRecipe:
    _, heldout = split_drugs(0)
    for part in ("train", "heldout"):
        with jsonl_writer(folder / f"{part}.jsonl") as writer:
            for trace in demo_traces(heldout, n=4, seed=len(part)):
                writer.write(trace_to_json(trace))
    overrides = [
        f"output_dir={folder / 'run'}",
        f"model.name_or_path={folder / 'model'}",
        f"data.sources.0.path={folder / 'train.jsonl'}",
        "model.quantization=none",  # nf4 needs a GPU; that it is refused without one is tested below
        "train.traces_per_step=2",
        "train.max_steps=2",
        "train.save_every=1",
        "train.eval_every=null",
        "tracking.wandb=off",
    ]
    data = load_recipe(shipped_recipe(name)).data
    if data.eval:
        overrides.append(f"data.eval.0.path={folder / 'heldout.jsonl'}")
    if data.augment is not None:
        files = _tool_files(folder)
        overrides += [f"data.augment.{key}={path}" for key, path in files.items() if getattr(data.augment, key)]
    return load_recipe(shipped_recipe(name), overrides)


def _weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(next((run / "model").glob("*model.safetensors")))


@pytest.mark.parametrize("name", shipped_recipes())
def test_two_steps_and_resume(name: str, tmp_path: Path) -> None:
    _model(load_recipe(shipped_recipe(name)).model.name_or_path, tmp_path / "model")
    recipe = _recipe(name, tmp_path)
    result = run_sft(recipe)
    assert result.steps == 2 and result.loss is not None
    saved = {path.name for path in result.model_dir.iterdir()}
    assert {"tokenizer.json", "chat_template.jinja", "generation_config.json"} <= saved
    whole = _weights(recipe.output_dir)
    trained = [name for name, tensor in whole.items() if "lora_B" in name and tensor.abs().sum() > 0]
    assert trained or recipe.adapter.method == "full"

    shutil.rmtree(recipe.output_dir / "checkpoints" / "step-2")
    shutil.rmtree(result.model_dir)
    again = run_sft(recipe, resume="auto")
    assert again.loss == result.loss
    resumed = _weights(recipe.output_dir)
    assert resumed.keys() == whole.keys() and all(torch.equal(resumed[key], whole[key]) for key in whole)
    records = read_metrics(recipe.output_dir / "metrics.jsonl").records
    assert [record["step"] for record in records if record["kind"] == "train"] == [1, 2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_four_bits_without_a_gpu_are_refused(tmp_path: Path) -> None:
    name = "txagent-llama3.1-8b-qlora"
    _model(load_recipe(shipped_recipe(name)).model.name_or_path, tmp_path / "model")
    model = load_recipe(shipped_recipe(name)).model.model_copy(update={"name_or_path": str(tmp_path / "model")})
    recipe = _recipe(name, tmp_path).model_copy(update={"model": model})
    with pytest.raises(ModelError, match="nf4"):
        run_sft(recipe)
    assert not recipe.output_dir.exists()
