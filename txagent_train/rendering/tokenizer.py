"""What the renderer needs of a tokenizer, so that looking at data needs no torch.

The tokenizers of transformers have it, and so has models.fast_tokenizer.FastTokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


class TextTokenizer(Protocol):
    """Text to ids and back; ``chat_template``, ``eos_token`` and ``pad_token`` are set by the renderer."""

    name_or_path: str
    chat_template: Any
    eos_token: Any
    pad_token: Any

    @property
    def backend_tokenizer(self) -> Any:
        """The ``tokenizers.Tokenizer`` inside."""

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        """The added tokens by id; ``content`` is their text."""

    @property
    def all_special_tokens(self) -> Sequence[str]: ...

    def get_vocab(self) -> Mapping[str, int]: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str: ...


@runtime_checkable
class SavableTokenizer(Protocol):
    """A tokenizer that can be saved beside a model."""

    def save_pretrained(self, save_directory: Path) -> object: ...
