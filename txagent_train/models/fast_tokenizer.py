"""A tokenizer on the ``tokenizers`` library alone, for looking at data: importing transformers' takes seconds.

It gives the ids that ``AutoTokenizer`` gives (tests compare the two) and has what rendering.Renderer needs, no more;
a model is trained and saved with the tokenizer of models.loading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txagent_train.core.errors import ModelError
from txagent_train.core.records import JsonObject
from txagent_train.models.embedded import embedded_file, embedded_model, is_embedded
from txagent_train.models.gguf_vocabulary import gguf_tokenizer

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

    from txagent_train.rendering.tokenizer import TextTokenizer

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


class FastTokenizer:
    """A ``tokenizers.Tokenizer`` with the names under which transformers has its parts.

    Args:
        config: the content of ``tokenizer_config.json``: tokens that it adds to those of ``tokenizer.json`` are added.

    Raises:
        ModelError: an added token would get another id than the configuration says.
    """

    def __init__(self, backend: Tokenizer, config: JsonObject, name_or_path: str) -> None:
        self.name_or_path = name_or_path
        self.chat_template: Any = config.get("chat_template")
        self.eos_token: Any = _text_of(config.get("eos_token"))
        self.pad_token: Any = _text_of(config.get("pad_token"))
        self._backend = backend
        backend.no_truncation()
        backend.no_padding()
        for token, wanted in _missing(backend, config):
            backend.add_tokens([token])
            given = backend.token_to_id(token.content)
            if wanted not in (None, given):
                problem = f"{CONFIG} gives the token {token.content!r} the id {wanted}, but it becomes {given}"
                raise ModelError(problem, where=name_or_path, fix="use the tokenizer files of one and the same model")

    @property
    def backend_tokenizer(self) -> Tokenizer:
        return self._backend

    @property
    def added_tokens_decoder(self) -> Mapping[int, AddedToken]:
        return self._backend.get_added_tokens_decoder()

    @property
    def all_special_tokens(self) -> Sequence[str]:
        return [token.content for token in self.added_tokens_decoder.values() if token.special]

    def get_vocab(self) -> Mapping[str, int]:
        return self._backend.get_vocab(with_added_tokens=True)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return self._backend.decode(token_ids, skip_special_tokens=skip_special_tokens)


def _text_of(token: Any) -> str | None:
    """A token of a configuration, which is written as text or as an object with its flags."""
    return token.get("content") if isinstance(token, dict) else token


def _missing(backend: Tokenizer, config: JsonObject) -> list[tuple[AddedToken, int | None]]:
    """The tokens of a configuration that are not added tokens yet, with the id that it gives them, by id."""
    from tokenizers import AddedToken

    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    found: dict[str, tuple[AddedToken, int | None]] = {}
    for number, entry in sorted((int(key), value) for key, value in config.get("added_tokens_decoder", {}).items()):
        flags = {name: bool(entry.get(name, False)) for name in _FLAGS}
        found.setdefault(entry["content"], (AddedToken(entry["content"], **flags), number))
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    named = [config.get(name) for name in _NAMED]
    for token in [*named, *(extra.values() if isinstance(extra, dict) else extra)]:
        text = _text_of(token)
        if text is not None:
            found.setdefault(text, (AddedToken(text, special=True, normalized=False), None))
    return [item for text, item in found.items() if text not in known]


def load_fast_tokenizer(name_or_path: str, revision: str | None = None) -> FastTokenizer:
    """The tokenizer of an embedded model, a local folder, or a Hugging Face id, without importing torch.

    Raises:
        ModelError: it cannot be found or read, or is not of the fast kind (tokenizer.json).
    """
    from tokenizers import Tokenizer

    if is_embedded(name_or_path):
        backend, stop = gguf_tokenizer(embedded_file(name_or_path))
        config: JsonObject = {"eos_token": stop, "pad_token": embedded_model(name_or_path).pad_token}
        return FastTokenizer(backend, config, name_or_path)
    path, config_path = _files(name_or_path, revision)
    try:
        config = json.loads(config_path.read_bytes()) if config_path else {}
        return FastTokenizer(Tokenizer.from_file(str(path)), config, name_or_path)
    except ModelError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for whatever is wrong with a file
        problem = f"the tokenizer cannot be loaded: {str(error) or type(error).__name__}"
        raise ModelError(problem, where=name_or_path) from error


def _files(name_or_path: str, revision: str | None) -> tuple[Path, Path | None]:
    """The paths of tokenizer.json and, where there is one, of tokenizer_config.json."""
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        if not (folder / TOKENIZER).is_file():
            raise ModelError(f"the folder has no {TOKENIZER}", where=str(folder), fix="name a folder with a tokenizer")
        return folder / TOKENIZER, folder / CONFIG if (folder / CONFIG).is_file() else None
    looks_like_path = folder.is_absolute() or name_or_path.startswith((".", "~")) or name_or_path.count("/") > 1
    if looks_like_path or folder.is_file():
        raise ModelError("no such model folder", where=name_or_path)
    return _from_hub(name_or_path, revision)


def hub_file(name: str, file: str, revision: str | None) -> Path:
    """A file in the hub's cache, or else from the hub: what is cached is taken without asking whether it is new.

    Raises as huggingface_hub.hf_hub_download.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(name, file, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return Path(hf_hub_download(name, file, revision=revision))


def _from_hub(name: str, revision: str | None) -> tuple[Path, Path | None]:
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    at = f"{name}@{revision}" if revision else name
    try:
        path = hub_file(name, TOKENIZER, revision)
    except LocalEntryNotFoundError as error:
        raise ModelError(
            "no such folder here, not in the Hugging Face cache, and the hub cannot be reached",
            where=at,
            fix="load it once with a network and HF_HUB_OFFLINE unset, or give the path of a local folder",
        ) from error
    except EntryNotFoundError as error:
        raise ModelError(f"the model has no {TOKENIZER}", where=at) from error
    except Exception as error:  # the hub's client raises errors of several libraries
        raise ModelError(
            f"the tokenizer cannot be fetched: {(str(error).strip().splitlines() or [type(error).__name__])[0]}",
            where=at,
            fix="check the name, the network, and (for gated models) that you are logged in: hf auth login",
        ) from error
    try:
        return path, hub_file(name, CONFIG, revision)
    except EntryNotFoundError:  # a LocalEntryNotFoundError is one too: this file was not fetched with the other
        return path, None


def pipeline_of(tokenizer: TextTokenizer) -> JsonObject:
    """What of a tokenizer decides which ids a text becomes, by part: two with equal parts give equal ids."""
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = {name: definition[name] for name in ("normalizer", "pre_tokenizer", "model", "added_tokens")}
    return {name: _without_offsets(value) for name, value in parts.items()}


def _without_offsets(value: Any) -> Any:
    """``trim_offsets`` concerns places in the text, not ids, and transformers sets it as it likes."""
    if isinstance(value, dict):
        return {key: _without_offsets(item) for key, item in value.items() if key != "trim_offsets"}
    return [_without_offsets(item) for item in value] if isinstance(value, list) else value
