"""The chunked loss against plain logits and F.cross_entropy, in fp64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel
from torch import Tensor

from tests.support.tiny_training import VOCABULARY, tiny_model
from txagent_train.core.errors import ModelError
from txagent_train.sft.adapter import add_adapter, lora_config
from txagent_train.sft.loss import add_target_loss, check_head, target_loss

B, T, H, N = 3, 7, 5, 11


def triples(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    predictors = torch.randint(B * T, (N,), generator=generator)
    predictors[1] = predictors[0]  # one position that predicts two targets, as in a token trie
    targets = torch.randint(VOCABULARY, (N,), generator=generator)
    weights = torch.rand(N, generator=generator, dtype=torch.float64) * 3
    weights[2] = 0.0
    return predictors, targets, weights


def oracle(logits: Tensor, predictors: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Full logits, one cross entropy per triple."""
    rows = logits.reshape(-1, logits.shape[-1])[predictors]
    return (F.cross_entropy(rows, targets, reduction="none") * weights).sum()


@pytest.mark.parametrize("chunk_logits", [1, 3 * VOCABULARY, 10**9])
@pytest.mark.parametrize("bias", [False, True])
def test_loss_and_all_gradients_equal_plain_cross_entropy(chunk_logits: int, bias: bool) -> None:
    torch.manual_seed(1)
    leaves = [torch.randn(B, T, H), torch.randn(VOCABULARY, H), torch.randn(VOCABULARY) if bias else None]
    ours = [None if leaf is None else leaf.double().requires_grad_() for leaf in leaves]
    plain = [None if leaf is None else leaf.double().requires_grad_() for leaf in leaves]
    predictors, targets, weights = triples()

    loss, nll = target_loss(*ours, predictors, targets, weights, chunk_logits=chunk_logits)
    expected = oracle(F.linear(*plain), predictors, targets, weights)
    torch.testing.assert_close(loss, expected, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close((nll * weights).sum(), expected.detach(), rtol=1e-13, atol=1e-13)
    assert not nll.requires_grad

    (loss * 0.3).backward()
    (expected * 0.3).backward()
    for got, wanted in zip(ours, plain, strict=True):
        if wanted is not None:
            torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-12, atol=1e-13)


def test_a_frozen_head_gets_no_gradient_and_zero_weights_give_zero() -> None:
    hidden = torch.randn(B, T, H, dtype=torch.float64, requires_grad=True)
    head = torch.randn(VOCABULARY, H, dtype=torch.float64)
    predictors, targets, weights = triples()
    loss, nll = target_loss(hidden, head, None, predictors, targets, weights * 0)
    loss.backward()
    assert loss == 0 and hidden.grad is not None and not hidden.grad.any()
    assert (nll > 0).all()


def test_bfloat16_states_have_an_fp32_softmax() -> None:
    torch.manual_seed(0)
    hidden, head = torch.randn(B, T, H).bfloat16(), torch.randn(VOCABULARY, H).bfloat16()
    predictors, targets, weights = triples()
    loss, nll = target_loss(hidden, head, None, predictors, targets, weights)
    assert loss.dtype == nll.dtype == torch.float32
    expected = oracle((hidden @ head.T).float(), predictors, targets, weights.float())
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_the_patched_model_gives_the_same_gradients_as_its_logits(adapter: bool, tied: bool) -> None:
    def build() -> torch.nn.Module:
        model = tiny_model(tied=tied)
        if not adapter:
            return model
        adapted = add_adapter(
            model, lora_config({"r": 2, "target_modules": ["q_proj", "down_proj"]}), init_from=None, seed=0
        )
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter)
        return adapted.double()

    ours, plain = build(), build()
    add_target_loss(ours.get_base_model() if isinstance(ours, PeftModel) else ours)
    input_ids = torch.randint(4, VOCABULARY, (B, T), generator=torch.Generator().manual_seed(3))
    predictors, targets, weights = triples()
    inputs = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    loss = ours(**inputs, predictors=predictors, targets=targets, weights=weights).loss
    expected = oracle(plain(**inputs).logits, predictors, targets, weights)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    loss.backward()
    expected.backward()
    compared = 0
    for (name, got), (_, wanted) in zip(ours.named_parameters(), plain.named_parameters(), strict=True):
        if wanted.grad is not None:
            compared += 1
            torch.testing.assert_close(got.grad, wanted.grad, rtol=1e-8, atol=1e-9, msg=name)
    assert compared > 4
    # Calls without triples are the model's own.
    torch.testing.assert_close(ours(**inputs).logits, plain(**inputs).logits)


@pytest.mark.parametrize("field", ["final_logit_softcapping", "logits_scaling", "num_experts"])
def test_models_whose_loss_is_another_are_refused(field: str) -> None:
    model = tiny_model()
    setattr(model.config, field, 30.0)
    with pytest.raises(ModelError, match="not support"):
        check_head(model)
