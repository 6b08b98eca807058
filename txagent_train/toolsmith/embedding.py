"""Tools as vectors, by which they can be told apart.

The built-in embedder needs no model: hashed tf-idf over words and the letters in them. What the tool is named, what it
does and what it takes are also counted apart from each other, since ``x_by_drug_name`` and ``drug_names_by_x`` have
the same words in other places.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from txagent_train.core.errors import ModelError
from txagent_train.core.records import ToolSpec
from txagent_train.toolsmith.synonyms import argument_description, properties
from txagent_train.toolsmith.words import stem, text_words

TFIDF = "tfidf"
Vectors = NDArray[np.float32]

_BUCKETS = 8192
_FIELD_WEIGHT, _WORD_WEIGHT, _PAIR_WEIGHT, _LETTERS_WEIGHT = 1.0, 1.0, 0.7, 0.25
_LETTERS = (3, 4)


class Embedder(Protocol):
    """Turns tools into vectors."""

    @property
    def name(self) -> str:
        """What it is called in files and on the command line."""
        ...

    def embed(self, specs: Sequence[ToolSpec]) -> Vectors:
        """One row of length 1 for each tool: [N, D]."""
        ...


class TfidfEmbedder:
    """Hashed tf-idf; how rare a word is comes from ``specs``, the tools of the toolbox."""

    name = TFIDF

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self._words: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
        used = np.zeros(_BUCKETS)
        for spec in specs:
            used += self._counts(spec) > 0
        self._rarity = np.log((1 + len(specs)) / (1 + used)) + 0.1

    def embed(self, specs: Sequence[ToolSpec]) -> Vectors:
        """See Embedder.embed."""
        rows = np.zeros((len(specs), _BUCKETS), dtype=np.float32)
        for index, spec in enumerate(specs):
            row = np.log1p(self._counts(spec)) * self._rarity
            rows[index] = row / max(float(np.linalg.norm(row)), 1e-12)
        return rows

    def _counts(self, spec: ToolSpec) -> NDArray[np.float64]:
        buckets: list[int] = []
        weights: list[float] = []
        for field, text in _fields(spec):
            stems = [stem(word) for word in text_words(text)]
            for word in stems:
                found, weight = self._of_word(field, word)
                buckets += found
                weights += weight
            pairs = [_bucket(f"{first} {second}") for first, second in itertools.pairwise(stems)]
            buckets += pairs
            weights += [_PAIR_WEIGHT] * len(pairs)
        # As floats: without a single word numpy counts in integers.
        return np.bincount(buckets, weights, minlength=_BUCKETS).astype(np.float64)

    def _of_word(self, field: str, word: str) -> tuple[list[int], list[float]]:
        known = self._words.get((field, word))
        if known is None:
            framed = f"<{word}>"
            letters = [framed[at : at + n] for n in _LETTERS for at in range(len(framed) - n + 1)]
            buckets = [_bucket(word), _bucket(f"{field}:{word}"), *(_bucket(f"#{part}") for part in letters)]
            weights = [_WORD_WEIGHT, _FIELD_WEIGHT, *([_LETTERS_WEIGHT] * len(letters))]
            known = self._words[field, word] = (buckets, weights)
        return known


def _bucket(feature: str) -> int:
    # Not hash(): it differs from process to process.
    return zlib.crc32(feature.encode("utf-8", "surrogatepass")) % _BUCKETS


def _fields(spec: ToolSpec) -> Iterator[tuple[str, str]]:
    yield "name", spec.name
    yield "description", spec.description
    for name, schema in properties(spec).items():
        yield "argument", name
        yield "argument", argument_description(schema)


class SentenceEmbedder:
    """A sentence-transformers model; a tool is the JSON text that ToolRAG embeds.

    Raises:
        ModelError: there is no such model, or it cannot be loaded.
    """

    def __init__(self, name: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.name = name
        try:
            # Code that comes with a model is never run.
            self._model: Any = SentenceTransformer(name, trust_remote_code=False)
        except (OSError, ValueError) as error:
            fix = f"name a sentence-transformers model or its folder, or {TFIDF}"
            raise ModelError(f"the embedding model cannot be loaded: {error}", where=name, fix=fix) from None

    def embed(self, specs: Sequence[ToolSpec]) -> Vectors:
        """See Embedder.embed."""
        texts = [document(spec) for spec in specs]
        rows: Vectors = self._model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(rows, dtype=np.float32)


def document(spec: ToolSpec) -> str:
    """A tool as ToolRAG embeds it: a JSON object of name, description, parameter and required."""
    shown = {
        "name": spec.name,
        "description": spec.description,
        "parameter": properties(spec),
        "required": spec.parameters.get("required", []),
    }
    return json.dumps(shown, ensure_ascii=False)


def make_embedder(name: str, specs: Sequence[ToolSpec]) -> Embedder:
    """The built-in embedder for ``tfidf``, else the sentence-transformers model of that name."""
    return TfidfEmbedder(specs) if name == TFIDF else SentenceEmbedder(name)
