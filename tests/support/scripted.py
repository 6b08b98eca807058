"""A back end that says what it is told to: for tests of what is built around a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from txagent_train.agent.backends import Generation
from txagent_train.rendering.renderer import Renderer


class ScriptedBackend:
    """For a prompt that holds one of the keys, the next of its outputs. ``CUT`` at an output's end: no stop token."""

    CUT = "\x00cut"

    def __init__(self, renderer: Renderer, outputs: Mapping[str, Sequence[str]], context_length: int = 8192) -> None:
        self._renderer = renderer
        self._outputs = {key: list(texts) for key, texts in outputs.items()}
        self.context_length = context_length
        self.prompts: list[str] = []
        self.batches: list[int] = []

    def generate(
        self, prompts: Sequence[Sequence[int]], *, max_new_tokens: int, temperature: float = 0.0, seed: int = 0
    ) -> list[Generation]:
        self.batches.append(len(prompts))
        return [self._next(prompt) for prompt in prompts]

    def _next(self, prompt: Sequence[int]) -> Generation:
        text = self._renderer.tokenizer.decode(list(prompt), skip_special_tokens=False)
        self.prompts.append(text)
        key = next(key for key in self._outputs if key in text)
        output = self._outputs[key].pop(0)
        return Generation(
            tuple(self._renderer.text_ids(output.removesuffix(self.CUT))), stopped=not output.endswith(self.CUT)
        )
