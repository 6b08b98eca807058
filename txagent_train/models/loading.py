"""Loading tokenizers and base models: a Hugging Face id, a local folder, or an embedded model.

Code from a model repository is never executed and weights are read from safetensors only (or from an embedded GGUF
file, whose weights are copied into a plain model of their own, so that it saves and reloads like any other).
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from txagent_train.core.errors import ModelError
from txagent_train.models.embedded import embedded_file, embedded_model, is_embedded
from txagent_train.models.quiet import quiet_loading

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Dtype = Literal["auto", "float32", "bfloat16"]
Attention = Literal["auto", "sdpa", "flash_attention_2", "eager", "trie"]
Quantization = Literal["none", "nf4"]

_SHOWN = 4
# What a GGUF file adds to the configuration, which a plain model must not carry.
_GGUF_KEYS = (
    "quantization_config",
    "_name_or_path",
    "_model_name_or_path",
    "dtype",
    "architectures",
    "transformers_version",
)


def resolve_dtype(dtype: Dtype | torch.dtype) -> torch.dtype:
    """auto: bfloat16 on a GPU, float32 on a CPU; anything else is what was asked for."""
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "auto":
        return torch.bfloat16 if torch.cuda.is_available() else torch.float32
    return torch.float32 if dtype == "float32" else torch.bfloat16


def load_tokenizer(name_or_path: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load a tokenizer.

    Raises:
        ModelError: it cannot be found or read, or is not of the fast kind (which alone maps text to ids exactly).
    """
    from transformers import AutoTokenizer

    if is_embedded(name_or_path):
        path, known = embedded_file(name_or_path), embedded_model(name_or_path)
        with reading_model(name_or_path):
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, trust_remote_code=False)
        tokenizer.pad_token = known.pad_token
        tokenizer.model_max_length = known.max_length
        tokenizer.name_or_path = name_or_path
    else:
        _check_exists(name_or_path)
        with reading_model(name_or_path, revision):
            tokenizer = AutoTokenizer.from_pretrained(name_or_path, revision=revision, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise ModelError("the model has no fast tokenizer (tokenizer.json)", where=name_or_path)
    return tokenizer


def load_model(
    name_or_path: str,
    revision: str | None = None,
    *,
    dtype: Dtype | torch.dtype = "auto",
    attn_implementation: Attention = "auto",
    quantization: Quantization = "none",
    device: torch.device | str | None = None,
) -> PreTrainedModel:
    """Load a causal language model.

    Args:
        dtype: see resolve_dtype. A bfloat16 that is asked for is honoured on a CPU too.
        attn_implementation: auto is sdpa; trie is there once packing.attention is imported.
        quantization: nf4 loads the weights in 4 bits (QLoRA); needs a GPU and bitsandbytes.
        device: where to put it; None leaves it on the CPU (for a trainer that shards it).

    Raises:
        ModelError: it cannot be found or read, cannot be loaded as asked, or its files lack weights of the model or
            hold others (what is missing would be random).
    """
    resolved = resolve_dtype(dtype)
    check_loadable(name_or_path, attn_implementation=attn_implementation, quantization=quantization)
    if attn_implementation == "auto":
        attn_implementation = "sdpa"
    if is_embedded(name_or_path):
        model = _load_embedded(name_or_path, resolved, attn_implementation)
        return model if device is None else model.to(device)
    from transformers import AutoModelForCausalLM

    options: dict[str, Any] = {"dtype": resolved, "attn_implementation": attn_implementation}
    if quantization == "nf4":
        options["quantization_config"] = _nf4(resolved)
    if device is not None:
        options["device_map"] = {"": device}
    with reading_model(name_or_path, revision):
        model, info = AutoModelForCausalLM.from_pretrained(
            name_or_path,
            revision=revision,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    _check_complete(name_or_path, info)
    return model


def _check_complete(name_or_path: str, info: Mapping[str, Any]) -> None:
    parts = {"missing_keys": "lack", "mismatched_keys": "have another shape of", "unexpected_keys": "also hold"}
    found = []
    for part, verb in parts.items():
        names = sorted(str(item[0] if isinstance(item, tuple) else item) for item in info.get(part) or ())
        if names:
            found.append(
                f"{verb} {', '.join(names[:_SHOWN])}{f' and {len(names) - _SHOWN} more' * (len(names) > _SHOWN)}"
            )
    found += [str(error) for error in info.get("error_msgs") or ()]
    if found:
        raise ModelError(f"the weight files do not fit the model: they {'; '.join(found)}", where=name_or_path)


def check_loadable(name_or_path: str, *, attn_implementation: Attention, quantization: Quantization) -> None:
    """The cheap checks, made before anything is loaded or written.

    Raises:
        ModelError: the model is not there, or the machine lacks what loading it as asked needs.
    """
    import torch

    if is_embedded(name_or_path):
        embedded_file(name_or_path)
    else:
        _check_exists(name_or_path)
    if quantization == "nf4":
        if is_embedded(name_or_path):
            raise ModelError(f"{name_or_path} cannot be quantized", where="model.quantization", fix="use none")
        if not torch.cuda.is_available():
            raise ModelError("nf4 needs a GPU, and there is none here", where="model.quantization", fix="use none")
        if find_spec("bitsandbytes") is None:
            raise ModelError("nf4 needs bitsandbytes", where="model.quantization", fix="pip install bitsandbytes")
    if attn_implementation == "flash_attention_2":
        if not torch.cuda.is_available():
            raise ModelError(
                "flash_attention_2 needs a GPU, and there is none here",
                where="model.attn_implementation",
                fix="use auto",
            )
        if find_spec("flash_attn") is None:
            raise ModelError(
                "flash_attention_2 needs flash-attn",
                where="model.attn_implementation",
                fix="pip install flash-attn, or use auto",
            )


def _nf4(compute_dtype: torch.dtype) -> Any:
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=compute_dtype,
        # FSDP shards a quantized weight only if it is stored in the dtype of the rest.
        bnb_4bit_quant_storage=compute_dtype,
    )


def _load_embedded(name_or_path: str, dtype: torch.dtype, attn_implementation: Attention) -> PreTrainedModel:
    """Dequantize the GGUF file into a model whose configuration knows nothing of GGUF."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    path, known = embedded_file(name_or_path), embedded_model(name_or_path)
    with quiet_loading():
        source = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=torch.float32, trust_remote_code=False
        )
    fields = {key: value for key, value in source.config.to_dict().items() if key not in _GGUF_KEYS}
    fields["pad_token_id"] = known.pad_token_id
    config = AutoConfig.for_model(**fields)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attn_implementation)
    model.load_state_dict(source.state_dict(), strict=True)
    model.name_or_path = model.config.name_or_path = name_or_path
    return model.eval()


def _offline() -> bool:
    return any(os.environ.get(name, "") in ("1", "true", "True", "YES", "ON") for name in _OFFLINE_VARIABLES)


_OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def _check_exists(name_or_path: str) -> None:
    """Refuse what can be neither a folder here nor a Hugging Face id, with a message that says which."""
    path = Path(name_or_path).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            adapter = (path / "adapter_config.json").is_file()
            raise ModelError(
                "the folder holds an adapter, not a model" if adapter else "the folder has no config.json",
                where=str(path),
                fix="name the base model, and the adapter as adapter.init_from; or merge it first" if adapter else "",
            )
        return
    looks_like_path = path.is_absolute() or name_or_path.startswith((".", "~")) or name_or_path.count("/") > 1
    if looks_like_path or path.is_file():
        raise ModelError("no such model folder", where=name_or_path)


@contextmanager
def reading_model(
    name_or_path: str, revision: str | None = None, *, what: str = "the model cannot be loaded"
) -> Iterator[None]:
    """Turn the libraries' many ways of not finding or not reading a model into one clear error.

    A torn safetensors file, a wrong shape, a broken tokenizer.json and a wrong configuration each raise another
    exception, of which some are bare ``Exception``; only running out of memory is not the model's fault.
    """
    import torch

    try:
        yield
    except (ModelError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        first = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
        at = f"{name_or_path}@{revision}" if revision else name_or_path
        if is_embedded(name_or_path) or Path(name_or_path).expanduser().is_dir():
            raise ModelError(f"{what}: {first}", where=at) from error
        if _offline():
            raise ModelError(
                "no such folder here, and not in the Hugging Face cache, which is all there is in offline mode",
                where=at,
                fix="load it once with a network and HF_HUB_OFFLINE unset, or give the path of a local folder",
            ) from error
        raise ModelError(
            f"{what}: {first}",
            where=at,
            fix="check the name, the network, and (for gated models) that you are logged in: hf auth login",
        ) from error
