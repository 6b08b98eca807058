"""A model's configuration as plain data, without torch: importing transformers' takes seconds."""

from __future__ import annotations

import json
from pathlib import Path

from txagent_train.core.errors import ModelError
from txagent_train.core.records import JsonObject
from txagent_train.models.embedded import embedded_file, is_embedded
from txagent_train.models.fast_tokenizer import hub_file
from txagent_train.models.gguf_vocabulary import read_gguf_header

CONFIG = "config.json"
_GGUF = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
}
"""Names of config.json, and those of a GGUF file behind the name of the architecture."""


def read_shape(name_or_path: str, revision: str | None = None) -> JsonObject:
    """The sizes of a model under the names of its config.json: of an embedded model, a local folder, or a hub id.

    Raises:
        ModelError: the configuration cannot be found or read.
    """
    if is_embedded(name_or_path):
        header = read_gguf_header(embedded_file(name_or_path))
        architecture = header["general.architecture"]
        sizes = {name: header[f"{architecture}.{key}"] for name, key in _GGUF.items()}
        vocabulary = header.get(f"{architecture}.vocab_size") or len(header["tokenizer.ggml.tokens"])
        # The embedded models are of the kind whose head is the embedding.
        return sizes | {"model_type": architecture, "vocab_size": vocabulary, "tie_word_embeddings": True}
    folder = Path(name_or_path).expanduser()
    try:
        path = folder / CONFIG if folder.is_dir() else hub_file(name_or_path, CONFIG, revision)
        config = json.loads(path.read_bytes())
    except Exception as error:  # the hub's client raises errors of several libraries
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"the model's {CONFIG} cannot be read: {reason}", where=name_or_path) from error
    shape: JsonObject = config.get("text_config", config)  # what a model of several modalities has for text
    return shape
