"""The formats that traces can be read from: one file each, with one ``parse`` function.

To add a format, write that file and put its function into IMPORTERS.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Protocol

from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.importers import native, openai


class Parser(Protocol):
    """Makes a trace of one record.

    ``path`` and ``line`` say where the record stands, for records that bring no id. The place is added to errors
    by the caller.

    Raises:
        DataError: with a stable ``reason``, the trace id, and the step (from 0) where there is one.
    """

    def __call__(self, record: JsonObject, *, path: Path, line: int) -> Trace: ...


NATIVE = "native"
IMPORTERS: dict[str, Parser] = {NATIVE: native.parse, "openai": openai.parse}


def parser_for(name: str) -> Parser:
    """The parser of a format.

    Raises:
        UserError: there is no such format.
    """
    if name in IMPORTERS:
        return IMPORTERS[name]
    close = difflib.get_close_matches(name, IMPORTERS, n=1)
    known = ", ".join(sorted(IMPORTERS))
    fix = f"did you mean {close[0]}? known: {known}" if close else f"known: {known}"
    raise UserError(f"there is no format {name!r}", fix=fix)
