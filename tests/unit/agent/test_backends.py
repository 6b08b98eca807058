from __future__ import annotations

import copy

import peft
import pytest
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from txagent_train.agent.backends import Generation, LocalBackend, _GumbelSampling

PAD, STOP = 0, 1
PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14, 15], [3, 4], [20, 21, 22, 23, 24]]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=PAD,
        eos_token_id=STOP,
    )
    return LlamaForCausalLM(config).double()


def backend(model: LlamaForCausalLM, batch_size: int = 3, stop: tuple[int, ...] = (STOP,)) -> LocalBackend:
    return LocalBackend(model, stop_token_ids=stop, pad_token_id=PAD, batch_size=batch_size)


def oracle(model: LlamaForCausalLM, prompt: list[int], count: int, stop: set[int]) -> Generation:
    """Greedy decoding without cache, padding or transformers.generate."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            token = int(model(torch.tensor([ids])).logits[0, -1].argmax())
            if token in stop:
                return Generation(tuple(ids[len(prompt) :]), stopped=True)
            ids.append(token)
    return Generation(tuple(ids[len(prompt) :]), stopped=False)


def test_batched_is_one_at_a_time_in_the_order_of_the_prompts(model: LlamaForCausalLM) -> None:
    expected = [oracle(model, prompt, 12, {STOP}) for prompt in PROMPTS]
    assert len(set(expected)) == len(expected)
    for batch_size in (1, 3, 8):
        assert backend(model, batch_size).generate(PROMPTS, max_new_tokens=12) == expected


def test_an_output_ends_at_the_stop_token_and_says_so(model: LlamaForCausalLM) -> None:
    free = oracle(model, PROMPTS[0], 12, set())
    stop = free.ids[4]
    ended, *others = backend(model, stop=(STOP, stop)).generate(PROMPTS, max_new_tokens=12)
    assert ended == Generation(free.ids[: free.ids.index(stop)], stopped=True)
    assert others == [oracle(model, prompt, 12, {STOP, stop}) for prompt in PROMPTS[1:]]
    assert any(not other.stopped and len(other.ids) == 12 for other in others)


def test_the_models_own_sampling_defaults_have_no_effect(model: LlamaForCausalLM) -> None:
    expected = backend(model).generate(PROMPTS, max_new_tokens=12)
    plain = model.generation_config
    loud = GenerationConfig(
        do_sample=True,
        temperature=5.0,
        top_k=3,
        top_p=0.5,
        repetition_penalty=9.0,
        no_repeat_ngram_size=1,
        min_new_tokens=12,
        suppress_tokens=list(range(2, 30)),
        eos_token_id=[2, 3, 4],
    )
    model.generation_config = loud
    try:
        assert backend(model).generate(PROMPTS, max_new_tokens=12) == expected
        assert model.generation_config is loud
    finally:
        model.generation_config = plain


def test_sampling_depends_on_prompt_and_seed_only(model: LlamaForCausalLM) -> None:
    state = torch.random.get_rng_state()
    first = backend(model).generate(PROMPTS, max_new_tokens=12, temperature=1.0, seed=3)
    again = backend(model, batch_size=1).generate(PROMPTS[::-1], max_new_tokens=12, temperature=1.0, seed=3)
    assert again[::-1] == first
    assert first != backend(model).generate(PROMPTS, max_new_tokens=12, temperature=1.0, seed=4)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_samples_follow_the_softmax() -> None:
    logits = torch.randn(16, generator=torch.Generator().manual_seed(0)) * 2
    prompts = [[number] for number in range(4000)]
    sampling = _GumbelSampling(prompts, 0.7, 0, torch.device("cpu"))
    chosen = sampling(torch.zeros(4000, 1, dtype=torch.long), logits.repeat(4000, 1)).argmax(-1)
    shares = torch.bincount(chosen, minlength=16) / 4000
    assert (shares - (logits / 0.7).softmax(-1)).abs().max() < 0.03  # four standard deviations


def test_the_training_mode_of_every_module_is_restored(model: LlamaForCausalLM) -> None:
    model.train()
    model.lm_head.eval()
    backend(model).generate(PROMPTS[:1], max_new_tokens=1)
    assert model.training and model.model.layers[0].training and not model.lm_head.training
    model.eval()


def test_a_prompt_that_does_not_fit_is_refused(model: LlamaForCausalLM) -> None:
    with pytest.raises(ValueError, match="context holds 64"):
        backend(model).generate([[2] * 60], max_new_tokens=5)
    with pytest.raises(ValueError):
        backend(model).generate([[]], max_new_tokens=5)
    assert backend(model).generate([], max_new_tokens=5) == []


def test_an_adapter_is_used(model: LlamaForCausalLM) -> None:
    base = copy.deepcopy(model)
    expected = backend(base).generate(PROMPTS, max_new_tokens=6)
    torch.manual_seed(0)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    own = adapted.generation_config
    changed = backend(adapted).generate(PROMPTS, max_new_tokens=6)
    assert changed != expected and adapted.generation_config is own
    with adapted.disable_adapter():
        assert backend(adapted).generate(PROMPTS, max_new_tokens=6) == expected
