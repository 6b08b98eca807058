"""What a writer of rewrites is asked for and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.data.rewrites import ArgumentRewrite


@dataclass(frozen=True, slots=True)
class Job:
    """One version of one tool to be written. ``attempt`` counts from 0; another one must give another text.

    ``rejected`` is what the checks refused the attempt before for; empty where it gave no version to check.
    """

    spec: ToolSpec
    version: int
    attempt: int = 0
    rejected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A version as it was written, not checked yet. ``arguments`` is by original name."""

    name: str
    description: str
    arguments: Mapping[str, ArgumentRewrite]


@dataclass(frozen=True, slots=True)
class NoDraft:
    """A version that the writer could not write: ``reason`` is a short, stable identifier, ``found`` what was met.

    ``final``: another attempt would fare no better.
    """

    reason: str
    found: str = ""
    final: bool = False


Written = Draft | NoDraft


class Writer(Protocol):
    """Writes versions of tools."""

    def settings(self) -> JsonObject:
        """Its name and what its texts depend on, for the header of the file."""
        ...

    def write(self, jobs: Sequence[Job], done: Callable[[int], None]) -> list[Written]:
        """One answer for each job, in their order; ``done`` is told how many more are finished.

        Raises:
            UserError: nothing can be written (the teacher's key, address or model is wrong).
        """
        ...
