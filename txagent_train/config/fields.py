"""What the sections of every recipe share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict

Item = TypeVar("Item")


class Section(BaseModel):
    """A group of keys. Frozen; an unknown key, a value of another type and an empty text are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, str_min_length=1, validate_default=True
    )


class Conflicts(ValueError):
    """Keys that are right one by one but not together: pairs of a dotted key and what is wrong with it.

    Keys are relative to the section whose validator raises this.
    """

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{key}: {text}" for key, text in self.problems))


def raise_conflicts(checks: Iterable[tuple[bool, str, str]]) -> None:
    """Raise Conflicts with every check (is wrong, key, what is wrong) that is wrong, if any is."""
    problems = [(key, text) for wrong, key, text in checks if wrong]
    if problems:
        raise Conflicts(problems)


def _to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _to_number(value: object) -> object:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _to_path(value: object) -> object:
    return Path(value).expanduser() if isinstance(value, str) and value else value


# YAML has lists and texts only; strict validation wants the very type.
Many = Annotated[tuple[Item, ...], BeforeValidator(_to_tuple)]
# PyYAML itself reads 2e-4 as a text, and so do other tools that write recipes.
Number = Annotated[float, BeforeValidator(_to_number)]
FilePath = Annotated[Path, BeforeValidator(_to_path)]
