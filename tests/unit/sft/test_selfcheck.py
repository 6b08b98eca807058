from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from tests.support.tiny_training import (
    make_trainer,
    prepare_rows,
    random_traces,
    run_recipe,
    save_tiny_model,
    tiny_recipe,
)
from txagent_train.core.errors import EnvironmentFailure, ModelError
from txagent_train.core.records import JsonObject, RenderedExample
from txagent_train.packing.attention import TRIE
from txagent_train.packing.segments import Segments
from txagent_train.sft import selfcheck
from txagent_train.sft.batches import ForwardBatch
from txagent_train.sft.run import run_sft
from txagent_train.sft.selfcheck import check_packing
from txagent_train.sft.trainer import TraceTrainer


def trainer_of(folder: Path, *, traces: int = 6, dtype: torch.dtype = torch.float32, **sections: Any) -> TraceTrainer:
    rows = prepare_rows(folder / "rows", random_traces(traces, seed=3))
    train = {"packing": "trie"} | sections.pop("train", {})
    return make_trainer(tiny_recipe(folder / "run", train=train, **sections), [rows], [], dtype=dtype)


@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_trie_that_is_right_passes(tmp_path: Path, method: str, dtype: torch.dtype, checkpointing: bool) -> None:
    model = {"gradient_checkpointing": checkpointing}
    trainer = trainer_of(tmp_path, adapter={"method": method}, dtype=dtype, model=model)
    result, *others = check_packing(trainer)
    assert result.samples > 1 and result.tokens < result.naive_tokens and result.model == "the model"
    exact = dtype is torch.float32
    assert result.tolerance == (1e-4 if exact else 1e-1)
    assert result.loss < (1e-6 if exact else 1e-2) and 0 < result.gradients < (1e-5 if exact else 5e-2)
    assert result.to_json()["trace"] == result.trace
    assert [(item.model, item.tolerance) for item in others] == (
        [] if exact else [("2 random layers of LlamaForCausalLM in float32", 1e-4)]
    )
    assert all(0 < item.gradients < 1e-5 for item in others)


def test_it_leaves_no_trace(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, adapter={"lora": {"r": 4, "lora_dropout": 0.5}})
    model = trainer.model.train()
    model.get_base_model().lm_head.eval()
    modes = [module.training for module in model.modules()]
    weights = {name: item.clone() for name, item in model.named_parameters()}
    random = torch.get_rng_state()
    assert check_packing(trainer)[0].gradients < 1e-5, "with dropout on, it would be as large as the gradients"
    assert [module.training for module in model.modules()] == modes
    assert all(item.grad is None for item in model.parameters())
    assert all(torch.equal(item, weights[name]) for name, item in model.named_parameters())
    assert torch.equal(torch.get_rng_state(), random)


def blind(*args: Any, segments: Segments | None = None, **kwargs: Any) -> Any:
    """Causal attention over the whole row: a sample sees its siblings."""
    return sdpa_attention_forward(*args, **kwargs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_between_samples_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    monkeypatch.setitem(AttentionInterface._global_mapping, TRIE, blind)
    trainer = trainer_of(tmp_path, dtype=dtype)
    with pytest.raises(EnvironmentFailure, match=r"packing: trace t\d as a trie of \d+ tokens .* at most 1e-04 is"):
        check_packing(trainer)
    assert all(item.grad is None for item in trainer.model.parameters())


def slightly_wrong(*args: Any, **kwargs: Any) -> Any:
    """In tries the attention is off by a hundredth: less than what rounding in 16 bits does to the gradients."""
    out, weights = _right(*args, **kwargs)
    return (out if kwargs.get("segments") is None else out * 1.01), weights


_right = AttentionInterface._global_mapping[TRIE]


def test_a_small_fault_is_found_in_sixteen_bits_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AttentionInterface._global_mapping, TRIE, slightly_wrong)
    with pytest.raises(EnvironmentFailure, match=r"at most 1e-04 .* in float32"):
        check_packing(trainer_of(tmp_path, dtype=torch.bfloat16))


def test_rounding_on_a_model_that_fits_its_data_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(selfcheck._TOLERANCE, torch.bfloat16, 1e-9)  # as good as any rounding is larger
    checked = check_packing(trainer_of(tmp_path, dtype=torch.bfloat16))
    assert len(checked) == 2 and checked[1].gradients < 1e-5
    assert "In 16 bits that is no proof" in caplog.text


def test_positions_that_are_wrong_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = ForwardBatch.model_inputs

    def wrong(self: ForwardBatch, *args: Any) -> dict[str, Any]:
        inputs = original(self, *args)
        if "position_ids" in inputs:
            inputs["position_ids"] = torch.arange(inputs["position_ids"].shape[1])[None]
        return inputs

    monkeypatch.setattr(ForwardBatch, "model_inputs", wrong)
    with pytest.raises(EnvironmentFailure, match="relative difference"):
        check_packing(trainer_of(tmp_path))


def test_a_loss_that_is_not_a_number_is_no_pass(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path)
    with torch.no_grad():
        trainer.model.get_base_model().model.norm.weight[0] = float("nan")
    with pytest.raises(EnvironmentFailure, match="nan"):
        check_packing(trainer)


def test_nothing_to_compare(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert check_packing(trainer_of(tmp_path / "none", train={"packing": "none"})) == ()
    caplog.set_level(logging.INFO)
    single = [rows[:1] for rows in random_traces(3)]
    rows = prepare_rows(tmp_path / "rows", single)
    trainer = make_trainer(tiny_recipe(tmp_path / "run", train={"packing": "trie"}), [rows], [])
    assert check_packing(trainer) == ()
    assert "no trace has two samples" in caplog.text


def test_the_trace_is_one_that_branches(tmp_path: Path) -> None:
    """One sample, a chain and two samples without a common token say nothing of who sees whom."""
    single, chain, roots = [(5, 9)], [(5, 6), (5, 6, 7), (5, 6)], [(5, 9), (6, 9)]
    branch = [(5, 6, 7, 9), (5, 6, 8, 9)]
    traces = [
        [
            RenderedExample(f"t#{step}", step, ids, (False,) * (len(ids) - 1) + (True,))
            for step, ids in enumerate(samples)
        ]
        for samples in (single, chain, roots, branch)
    ]
    rows = prepare_rows(tmp_path / "rows", traces)
    trainer = make_trainer(tiny_recipe(tmp_path / "run", train={"packing": "trie", "traces_per_step": 1}), [rows], [])
    (result,) = check_packing(trainer)
    assert (result.trace, result.tokens, result.naive_tokens) == ("t3", 6, 8)
    steps = tuple(step for step in trainer.plan.steps if step.traces == (1,))
    trainer.plan = replace(trainer.plan, steps=steps)
    assert check_packing(trainer)[0].trace == "t1", "better than nothing"


def test_a_model_that_will_be_sharded_has_a_stand_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    trainer = trainer_of(tmp_path)
    next(trainer.model.parameters()).ds_id = 0  # as DeepSpeed marks what it has partitioned
    random = torch.get_rng_state()
    (result,) = check_packing(trainer)
    assert result.model == "2 random layers of LlamaForCausalLM in float32" and 0 < result.gradients < 1e-5
    assert "packing is checked on a part" in caplog.text
    assert torch.equal(torch.get_rng_state(), random)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def test_a_run_says_what_it_found(tmp_path: Path, model: Path) -> None:
    records: list[JsonObject] = []
    run_sft(run_recipe(tmp_path, model=model, train={"packing": "trie"}), on_record=records.append)
    start = records[0]
    assert start["attention"] == "trie"
    (check,) = start["packing_check"]
    assert check["samples"] == 2 and check["gradients"] < 1e-4


def test_a_run_whose_packing_is_wrong_does_not_start(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selfcheck, "_TOLERANCE", {torch.float32: 0.0})
    records: list[JsonObject] = []
    with pytest.raises(EnvironmentFailure, match="gives another"):
        run_sft(run_recipe(tmp_path, model=model, train={"packing": "trie"}), on_record=records.append)
    assert not records


def test_a_model_whose_attention_is_not_plain_is_refused(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "windowed"
    save_windowed(model, folder)
    with pytest.raises(ModelError, match="sliding_window=16"):
        run_sft(run_recipe(tmp_path, model=folder, train={"packing": "trie"}))


def save_windowed(model: Path, folder: Path) -> None:
    from transformers import AutoTokenizer, LlamaConfig, MistralConfig, MistralForCausalLM

    values = LlamaConfig.from_pretrained(model).to_dict()
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    more = {name: values[name] for name in (*names, "num_key_value_heads", "head_dim", "max_position_embeddings")}
    config = MistralConfig(
        **more, sliding_window=16, pad_token_id=values["pad_token_id"], bos_token_id=1, eos_token_id=2
    )
    MistralForCausalLM(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
