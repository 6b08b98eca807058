"""The error tree.

    TxAgentTrainError
    ├── UserError               exit code 2: the input is wrong; one message, no traceback
    │   ├── RecipeError         a recipe: every problem at once, each with its key
    │   ├── DataError           a data file: file:line, trace id, step
    │   ├── RunDirError         a run directory that is taken, foreign, torn or does not match
    │   └── ModelError          a model, tokenizer or adapter that cannot do what was asked
    └── EnvironmentFailure      exit code 1: the machine failed (disk full, engine not as asked)

Anything else that escapes is a bug and crashes with its traceback (exit code 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any


class TxAgentTrainError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = 1


class UserError(TxAgentTrainError):
    """The user's input is wrong.

    Args:
        problem: what is wrong, in one sentence.
        where: the place (``file:line``, trace id, step, recipe key), or "".
        fix: what to do about it, or "".
    """

    exit_code = 2

    def __init__(self, problem: str, *, where: str = "", fix: str = "") -> None:
        self.problem = problem
        self.where = where
        self.fix = fix
        message = f"{where}: {problem}" if where else problem
        super().__init__(f"{message}\n  -> {fix}" if fix else message)


class RecipeError(UserError):
    """A recipe, or a site file, does not validate; holds all problems, so that they are mended in one go."""

    def __init__(self, recipe: str, problems: Sequence[str], *, what: str = "the recipe") -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem" + ("" if len(self.problems) == 1 else "s")
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        super().__init__(f"{count} in {what}:{lines}", where=recipe)


_PLACE = ("reason", "path", "line", "trace_id", "step")


class DataError(UserError):
    """A data file or record cannot be used.

    ``reason`` is a short, stable identifier (``unknown_role``) by which dropped records are counted.
    """

    def __init__(
        self,
        problem: str,
        *,
        reason: str = "invalid_record",
        path: str = "",
        line: int | None = None,
        trace_id: str = "",
        step: int | None = None,
        fix: str = "",
    ) -> None:
        self.reason = reason
        self.path = path
        self.line = line
        self.trace_id = trace_id
        self.step = step
        file_part = f"{path}:{line}" if path and line is not None else path
        parts = [file_part, f"trace {trace_id}" if trace_id else "", f"step {step}" if step is not None else ""]
        super().__init__(problem, where=", ".join(part for part in parts if part), fix=fix)

    def at(self, *, path: str = "", line: int | None = None, trace_id: str = "") -> DataError:
        """The same error with the place filled in by a caller that knows more of it."""
        place = {
            "path": self.path or path,
            "line": self.line if self.line is not None else line,
            "trace_id": self.trace_id or trace_id,
        }
        return DataError.from_json(self.to_json() | place)

    def to_json(self) -> dict[str, Any]:
        """The error as plain data, for a file or another process: an exception with keywords cannot be pickled."""
        return {"problem": self.problem, "fix": self.fix} | {name: getattr(self, name) for name in _PLACE}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DataError:
        return cls(**value)


class RunDirError(UserError):
    """A run directory already holds another run, or what it holds cannot be resumed."""


class ModelError(UserError):
    """A model, tokenizer or adapter is missing or cannot do what the recipe asks."""


class EnvironmentFailure(TxAgentTrainError):
    """The machine, not the input, failed: what was asked for is not what ran."""


def known_names(name: str, known: Iterable[str]) -> str:
    """What to do about a name that is none of ``known``: the nearest of them, and all."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    everything = f"known: {', '.join(names)}"
    return f"did you mean {near[0]}? {everything}" if near else everything
