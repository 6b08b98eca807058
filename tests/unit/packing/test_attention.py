from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from tests.support.tiny_training import tiny_model
from tests.support.tries import ROWS, Samples, growing, row_of
from txagent_train.core.errors import ModelError
from txagent_train.packing.attention import TRIE, attention_inputs, attention_kernel, check_plain_attention
from txagent_train.packing.trie import TokenTrie

CPU = torch.device("cpu")


def inputs_of(row: TokenTrie, kernel: str, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    position, end = (torch.from_numpy(item)[None] for item in (row.position, row.end))
    return attention_inputs(position, end, kernel=kernel, device=CPU, dtype=dtype)


def test_auto_is_what_fits_the_packing() -> None:
    assert attention_kernel("auto", "trie") == TRIE
    assert attention_kernel("auto", "none") == "sdpa"
    assert attention_kernel("eager", "trie") == "eager"


def test_each_row_gets_the_cheapest_way() -> None:
    chain = inputs_of(row_of([[[1, 2], [1, 2, 3]]]), TRIE)
    assert chain.keys() == {"attention_mask", "position_ids"} and chain["attention_mask"].shape == (1, 3)
    branches = inputs_of(row_of([[[1, 2], [1, 3]]]), TRIE)
    assert branches["attention_mask"].shape == (1, 3) and len(branches["segments"].chains) == 2
    dense = inputs_of(row_of([[[1, 2], [1, 3]]]), "sdpa")
    assert dense["attention_mask"].shape == (1, 1, 3, 3) and "segments" not in dense


@pytest.fixture(scope="module", params=["full", "lora", "checkpointed"])
def model(request: pytest.FixtureRequest) -> nn.Module:
    return made(request.param)


def made(kind: str, dtype: torch.dtype = torch.float64, kernel: str = TRIE) -> nn.Module:
    """A tiny model; its norm computes in the model's own dtype, which that of transformers rounds to float32."""
    base = tiny_model(dtype)
    base.set_attn_implementation(kernel)
    for module in base.modules():
        if isinstance(module, LlamaRMSNorm):
            module.forward = _exact_norm.__get__(module)
    if kind == "lora":
        adapted = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
        return adapted.to(dtype)
    if kind == "checkpointed":
        base.gradient_checkpointing_enable({"use_reentrant": False})
    return base.train()


def _exact_norm(self: LlamaRMSNorm, hidden_states: Tensor) -> Tensor:
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    return self.weight * hidden_states * torch.rsqrt(variance + self.variance_epsilon)


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: item.grad.clone() for name, item in model.named_parameters() if item.grad is not None}


def next_token_losses(logits: Tensor, ids: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits[:-1].float() if logits.dtype.itemsize < 4 else logits[:-1], ids[1:])


def as_trie(model: nn.Module, row: TokenTrie, kernel: str = TRIE) -> dict[str, Tensor]:
    ids = torch.from_numpy(row.ids)
    more = inputs_of(row, kernel, next(model.parameters()).dtype)
    logits = model(input_ids=ids[None] % 61, use_cache=False, **more).logits[0]
    loss = logits.new_zeros(())
    for sample in range(len(row.shared)):
        path = torch.from_numpy(row.path(sample))
        if len(path) > 1:
            loss = loss + next_token_losses(logits[path], ids[path] % 61)
    return gradients(model, loss) | {"loss": loss.detach()}


def one_by_one(model: nn.Module, row: TokenTrie) -> dict[str, Tensor]:
    losses = []
    for sample in range(len(row.shared)):
        ids = torch.from_numpy(row.ids[row.path(sample)]) % 61
        if len(ids) > 1:
            losses.append(next_token_losses(model(input_ids=ids[None], use_cache=False).logits[0], ids))
    loss = torch.stack(losses).sum()
    return gradients(model, loss) | {"loss": loss.detach()}


def difference(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Relative, over all gradients as one vector."""
    assert got.keys() == wanted.keys()
    assert abs(got["loss"] - wanted["loss"]) < 1e-2 * abs(wanted["loss"])
    squares = [
        ((got[name] - wanted[name]).double().square().sum(), wanted[name].double().square().sum()) for name in got
    ]
    above, below = (sum(float(item) for item in column) for column in zip(*squares, strict=True))
    return (above / below) ** 0.5


@given(ROWS.filter(lambda tries: any(len(sample) > 1 for samples in tries for sample in samples)))
def test_gradients_are_those_of_the_samples_one_by_one(model: nn.Module, tries: list[Samples]) -> None:
    row = row_of(tries)
    assert difference(as_trie(model, row), one_by_one(model, row)) < 1e-10


@pytest.mark.parametrize("kernel", [TRIE, "sdpa", "eager"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
def test_gradients_on_a_trace_of_usual_shape(dtype: torch.dtype, tolerance: float, kernel: str) -> None:
    row = growing(60, 12, 9, samples=4)
    got = as_trie(made("full", dtype, kernel), row, kernel)
    wanted = one_by_one(made("full"), row)
    assert difference(got, wanted) < tolerance


def test_a_plain_batch_goes_as_with_sdpa() -> None:
    ids = torch.randint(4, 60, (2, 9))
    ones = torch.ones_like(ids)
    assert torch.equal(
        made("full")(input_ids=ids, attention_mask=ones).logits,
        made("full", kernel="sdpa")(input_ids=ids, attention_mask=ones).logits,
    )


def test_under_autocast() -> None:
    """Full fine-tuning keeps fp32 weights and computes in bfloat16; queries and values then differ in dtype."""
    row = growing(40, 12, 9, samples=3)
    model = made("full", torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        got = as_trie(model, row)
    assert 1e-4 < difference(got, as_trie(model, row)) < 5e-2


def test_a_saved_model_knows_nothing_of_it(tmp_path: Path) -> None:
    made("full").save_pretrained(tmp_path)
    assert TRIE not in (tmp_path / "config.json").read_text()
    assert isinstance(AutoModelForCausalLM.from_pretrained(tmp_path), LlamaForCausalLM)


SMALL = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "pad_token_id": 0,
}


def test_models_with_plain_attention_are_taken() -> None:
    check_plain_attention(tiny_model(), 100_000)
    check_plain_attention(get_peft_model(tiny_model(), LoraConfig(target_modules=["q_proj"])), 100_000)
    check_plain_attention(Qwen3ForCausalLM(Qwen3Config(**SMALL)), 100_000)
    check_plain_attention(MistralForCausalLM(MistralConfig(**SMALL, sliding_window=None)), 100_000)
    check_plain_attention(MistralForCausalLM(MistralConfig(**SMALL, sliding_window=50)), 50)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            lambda: MistralForCausalLM(MistralConfig(**SMALL, sliding_window=50)),
            "sliding_window=50, and a sample of 51",
        ),
        (
            lambda: Qwen3ForCausalLM(
                Qwen3Config(**SMALL, use_sliding_window=True, sliding_window=8, max_window_layers=1)
            ),
            "sliding_window=8",
        ),
        (lambda: GptOssForCausalLM(GptOssConfig(**SMALL, num_local_experts=2)), "attention sinks"),
        (lambda: BloomForCausalLM(BloomConfig(vocab_size=61, hidden_size=16, n_layer=1, n_head=2)), "code of its own"),
    ],
    ids=["window", "window in some layers", "sinks", "own code"],
)
def test_other_attention_is_refused(model: Any, problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        check_plain_attention(model(), 51)


@pytest.mark.parametrize("kind", ["dynamic", "yarn"])
def test_positions_that_depend_on_the_length_of_a_row_are_refused(kind: str) -> None:
    rope = {"rope_type": kind, "factor": 2.0, "rope_theta": 10_000.0, "original_max_position_embeddings": 32}
    model = Qwen3ForCausalLM(Qwen3Config(**SMALL, rope_parameters=rope))
    if kind == "yarn":
        check_plain_attention(model, 51)
        return
    with pytest.raises(ModelError, match="rotary positions of the type dynamic"):
        check_plain_attention(model, 51)
