"""The demonstration formulary: short label facts of well-known drugs. For demonstration, not for medical use.

No field names another drug of the formulary, so that a held-out drug cannot leak into training through a neighbour;
interactions are written by drug class instead.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from txagent_train.core.records import JsonObject

NO_BOXED_WARNING = "no boxed warning"
_HELD_OUT_SHARE = 4  # one drug in four


@dataclass(frozen=True, slots=True)
class Drug:
    """One drug; every text is a phrase without a full stop, ready to stand inside a sentence."""

    generic_name: str
    brand_names: tuple[str, ...]
    drug_class: str
    conditions: tuple[str, ...]
    mechanism: str
    contraindications: str
    boxed_warning: str | None
    pregnancy: str
    pediatric_use: str
    geriatric_use: str
    renal_impairment: str
    interactions: tuple[str, ...]
    adverse_reactions: tuple[str, ...]
    pharmacokinetics: str
    route: str

    @property
    def names(self) -> tuple[str, ...]:
        """The generic name, then the brand names."""
        return (self.generic_name, *self.brand_names)

    def entries(self, field: str) -> tuple[str, ...]:
        """The entries of a field: a text is one entry, a missing boxed warning none."""
        value: str | tuple[str, ...] | None = getattr(self, field)
        if value is None:
            return ()
        return (value,) if isinstance(value, str) else value

    def text(self, field: str) -> str:
        """A field as label text: lists are joined, a missing boxed warning is said in words."""
        return join_words(self.entries(field)) or NO_BOXED_WARNING

    def interaction_with(self, other: Drug) -> str | None:
        """The entry of this drug's interactions that names the class of ``other``, or None."""
        plural = f"{other.drug_class}s"
        return plural if plural in self.interactions else None


def join_words(words: Sequence[str]) -> str:
    """``a, b and c``; "" for none."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


@cache
def load_formulary() -> tuple[Drug, ...]:
    """Every drug of the formulary, by generic name."""
    data = _read()
    names = {item.name for item in fields(Drug)}
    drugs = []
    for record in data["drugs"]:
        assert set(record) == names, f"{record.get('generic_name')}: {set(record) ^ names}"
        values: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in record.items()}
        drugs.append(Drug(**values))
    return tuple(sorted(drugs, key=lambda drug: drug.generic_name))


def formulary_notice() -> str:
    """The notice that goes with every record made from the formulary."""
    return str(_read()["notice"])


@cache
def _read() -> JsonObject:
    data: JsonObject = json.loads(files("txagent_train.demo").joinpath("formulary.json").read_text(encoding="utf-8"))
    return data


def split_drugs(seed: int) -> tuple[tuple[Drug, ...], tuple[Drug, ...]]:
    """(train, held-out): three quarters and one quarter of the drugs, each by generic name."""
    drugs = load_formulary()
    held_out = set(random.Random(f"split:{seed}").sample(range(len(drugs)), len(drugs) // _HELD_OUT_SHARE))
    return (
        tuple(drug for index, drug in enumerate(drugs) if index not in held_out),
        tuple(drug for index, drug in enumerate(drugs) if index in held_out),
    )
