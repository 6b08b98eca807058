"""The tokenizer inside a GGUF file, read without torch and in a fraction of a second.

Only the vocabulary is read: the general readers go through all tensors, or import torch. What comes out is, to the
byte, what transformers makes of the file (tests compare the two).
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txagent_train.core.errors import ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# struct formats by GGUF value type; 8 is a string and 9 a list.
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _LIST = 8, 9
_CONTROL, _USER_DEFINED = 3, 4
_READABLE = ("gpt2", "smollm")
"""Kind and splitting of the tokenizers that are read: byte-level, split as ByteLevel does."""


class _Cursor:
    """Reads values of a GGUF header one after the other."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._at = 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self._content, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values

    def string(self) -> str:
        (size,) = self.numbers("Q")
        start, self._at = self._at, self._at + size
        return self._content[start : self._at].decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _LIST:
            item, count = self.numbers("IQ")
            if item in _FORMATS:
                return list(self.numbers(f"{count}{_FORMATS[item]}"))
            return [self.value(item) for _ in range(count)]
        return self.numbers(_FORMATS[kind])[0]


def read_gguf_header(path: Path) -> dict[str, Any]:
    """The metadata of a GGUF file.

    Raises:
        ModelError: it is no GGUF file of version 2 or 3, or it is torn.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            cursor = _Cursor(content)
            magic, version, _, count = cursor.numbers("4sIQQ")
            if magic != b"GGUF" or version not in (2, 3):
                raise ModelError("this is no GGUF file of version 2 or 3", where=str(path))
            header: dict[str, Any] = {}
            for _ in range(count):
                key = cursor.string()
                header[key] = cursor.value(cursor.numbers("I")[0])
            return header
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ModelError(f"cannot be read: {error}", where=str(path), fix="install or download it again") from error


def gguf_tokenizer(path: Path) -> tuple[Tokenizer, str]:
    """The byte-level tokenizer of a GGUF file, and its stop token.

    Raises:
        ModelError: the file cannot be read, or its tokenizer is of another kind.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    header = {key.removeprefix("tokenizer.ggml."): value for key, value in read_gguf_header(path).items()}
    kind = header.get("model"), header.get("pre")
    if kind != _READABLE:
        raise ModelError(f"the tokenizer is of the kind {kind[0]}, {kind[1]}, which cannot be read", where=str(path))
    tokens = header["tokens"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in header["merges"]],
            continuing_subword_prefix="",
            end_of_word_suffix="",
            fuse_unk=False,
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 $B:1", special_tokens=[])
    tokenizer.decoder = decoders.ByteLevel()
    for wanted, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        found = [token for token, kind in zip(tokens, header["token_type"], strict=True) if kind == wanted]
        tokenizer.add_tokens([AddedToken(token, normalized=False, special=special) for token in found])
    return tokenizer, tokens[header["eos_token_id"]]
