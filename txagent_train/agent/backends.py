"""Back ends: token ids in, token ids out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel


@dataclass(frozen=True, slots=True)
class Generation:
    """The new token ids of one prompt, without the stop id. ``stopped`` is False where the token limit cut it off."""

    ids: tuple[int, ...]
    stopped: bool


class Backend(Protocol):
    """Generates continuations of prompts."""

    @property
    def context_length(self) -> int:
        """The most tokens that a prompt and its output may have together."""
        ...

    def generate(
        self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, temperature: float = 0.0, seed: int = 0
    ) -> list[Generation]:
        """One generation a prompt, in the order of the prompts.

        Temperature 0 is greedy. Above it, a prompt's output depends on the prompt, ``temperature`` and ``seed``
        alone: neither on the other prompts nor on their order.
        """
        ...


class LocalBackend:
    """A model in this process, with a KV cache, on the device where its parameters are.

    Prompts of similar length share a batch, padded on the left. The sampling defaults of the model's own
    ``generation_config`` (temperature, top_p, top_k, repetition_penalty, ...) are never used: what was asked for
    is what runs.

    Args:
        model: a causal language model, or a PEFT model around one.
        stop_token_ids: ids that end an output.
        pad_token_id: filler for shorter prompts; its value has no effect on the output.
        batch_size: most prompts in one forward pass; bounds the memory of the cache.
    """

    def __init__(
        self, model: PreTrainedModel, *, stop_token_ids: Sequence[int], pad_token_id: int, batch_size: int = 8
    ) -> None:
        if not stop_token_ids:
            raise ValueError("a back end without a stop token would run every output to its limit")
        self._model = model
        # An adapter reads the generation config of the model below it.
        self._inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._stop = frozenset(stop_token_ids)
        self._pad = pad_token_id
        self._batch_size = batch_size

    @property
    def context_length(self) -> int:
        return int(self._inner.config.get_text_config().max_position_embeddings)

    def generate(
        self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, temperature: float = 0.0, seed: int = 0
    ) -> list[Generation]:
        """See Backend.

        Raises:
            ValueError: a prompt is empty, or does not leave room for ``max_new_tokens`` in the context.
        """
        for prompt in prompts:
            if not prompt or len(prompt) + max_new_tokens > self.context_length:
                room = f"the context holds {self.context_length}"
                raise ValueError(f"a prompt of {len(prompt)} and {max_new_tokens} new tokens; {room}")
        # Longest first: where memory is short, that shows in the first batch.
        order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
        results: dict[int, Generation] = {}
        with torch.inference_mode(), _eval_mode(self._model), _plain_generation_config(self._inner):
            for start in range(0, len(order), self._batch_size):
                indices = order[start : start + self._batch_size]
                batch = [prompts[index] for index in indices]
                results.update(zip(indices, self._batch(batch, max_new_tokens, temperature, seed), strict=True))
        return [results[index] for index in range(len(prompts))]

    def _batch(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float, seed: int
    ) -> list[Generation]:
        device = self._inner.device
        width = max(len(prompt) for prompt in prompts)
        input_ids = torch.full((len(prompts), width), self._pad, dtype=torch.long)  # [B, T]
        attention_mask = torch.zeros_like(input_ids)  # [B, T]
        for row, prompt in enumerate(prompts):
            input_ids[row, width - len(prompt) :] = torch.tensor(prompt, dtype=torch.long)
            attention_mask[row, width - len(prompt) :] = 1
        config = GenerationConfig(
            do_sample=False,
            max_new_tokens=max_new_tokens,
            eos_token_id=sorted(self._stop),
            pad_token_id=self._pad,
            use_cache=True,
        )
        processors = LogitsProcessorList()
        if temperature > 0:
            processors.append(_GumbelSampling(prompts, temperature, seed, device))
        output = self._model.generate(
            input_ids=input_ids.to(device),
            attention_mask=attention_mask.to(device),
            generation_config=config,
            logits_processor=processors,
        )  # [B, T + new]
        return [self._cut(row) for row in output[:, width:].tolist()]

    def _cut(self, ids: list[int]) -> Generation:
        for position, token in enumerate(ids):
            if token in self._stop:
                return Generation(tuple(ids[:position]), stopped=True)
        return Generation(tuple(ids), stopped=False)


class _GumbelSampling(LogitsProcessor):
    """Turns a greedy choice into a sample: argmax(logits / T + Gumbel noise) is distributed as softmax(logits / T).

    Each row draws its noise from a generator of its own, seeded by its prompt. So a row is sampled in the same way
    in every batch, and the global random state is left alone.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], temperature: float, seed: int, device: torch.device) -> None:
        self._temperature = temperature
        self._generators = [
            torch.Generator(device=device).manual_seed(_prompt_seed(prompt, seed)) for prompt in prompts
        ]

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        noise = torch.empty_like(scores)  # [B, V]
        for row, generator in zip(noise, self._generators, strict=True):
            row.exponential_(generator=generator)
        # -log of an exponential variable is a Gumbel variable.
        return scores / self._temperature - noise.log()


def _prompt_seed(prompt: Sequence[int], seed: int) -> int:
    text = f"{seed}:{','.join(map(str, prompt))}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@contextmanager
def _eval_mode(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode, then every module back to the mode it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def _plain_generation_config(model: PreTrainedModel) -> Iterator[None]:
    """Without the model's own generation defaults: transformers merges them into whatever it is given."""
    own = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own
