"""Loads a model as training does, weights and all, and says what it found: ``python -m ... NAME [REVISION]``.

Run by models.fetch in a process of its own, in which the hub was switched off before anything was imported.
"""

from __future__ import annotations

import json
import sys

from txagent_train.core.errors import ModelError


def main(name_or_path: str, revision: str | None = None) -> None:
    """Print one line of JSON.

    Raises:
        ModelError: something is missing, torn, or does not fit.
    """
    from txagent_train.models.fast_tokenizer import load_fast_tokenizer
    from txagent_train.models.loading import load_model, load_tokenizer

    load_fast_tokenizer(name_or_path, revision)
    tokenizer = load_tokenizer(name_or_path, revision)
    # On the meta device: every tensor is read and compared with the model's shapes, and none is kept.
    model = load_model(name_or_path, revision, dtype="bfloat16", device="meta")
    model.tie_weights()  # moving to that device unties them, and what is tied counts once
    found = {
        "parameters": sum(item.numel() for item in model.parameters()),
        "vocabulary": len(tokenizer),
        "model_type": model.config.model_type,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ModelError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
