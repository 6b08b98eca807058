"""The formats that traces can be read from: one file each, with one ``parse`` function.

To add a format, write that file, put its function into IMPORTERS and its name into ``config.sft.SourceFormat``, and
say in ``guess`` how its records are told from the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from txagent_train.core.errors import UserError, known_names
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.importers import athena, native, openai, sharegpt, toolbench, txagent
from txagent_train.data.importers.guess import guess_format


class Parser(Protocol):
    """Makes a trace of one record.

    ``path`` and ``line`` say where the record stands, for records that bring no id. The place is added to errors
    by the caller.

    Raises:
        DataError: with a stable ``reason``, the trace id, and the step (from 0) where there is one.
    """

    def __call__(self, record: JsonObject, *, path: Path, line: int) -> Trace: ...


AUTO = "auto"
"""Stands for a format where it is to be guessed."""
NATIVE = "native"
IMPORTERS: dict[str, Parser] = {
    NATIVE: native.parse,
    "openai": openai.parse,
    "txagent": txagent.parse,
    "athena": athena.parse,
    "sharegpt": sharegpt.parse,
    "toolbench": toolbench.parse,
}

Supervise: TypeAlias = Literal["last", "all"]
"""Which steps of a record are trained on: only its last one, or all (each as its own flags say)."""
SUPERVISED: dict[str, Supervise] = {"toolbench": "last"}
"""For formats whose rows are prefixes of a recording: each step is the last one of its own row. Else all."""


def resolved_format(path: Path, name: str) -> str:
    """The format itself, or for AUTO what the first records of the file tell.

    Raises:
        DataError: it cannot be told, or the file cannot be read.
        UserError: there is no such format.
    """
    if name == AUTO:
        return guess_format(path, IMPORTERS)
    parser_for(name)
    return name


def parser_for(name: str) -> Parser:
    """The parser of a format.

    Raises:
        UserError: there is no such format.
    """
    if name in IMPORTERS:
        return IMPORTERS[name]
    raise UserError(f"there is no format {name!r}", fix=known_names(name, sorted([AUTO, *IMPORTERS])))
