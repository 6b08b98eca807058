"""All the tools of an agent, in their order: what rewrites, neighbours and augmentation refer to.

The native file is a JSON list of ``{name, description, parameters, origin}``, one tool a line; ``origin`` is what
``toolspecs`` needs to write the spec back as it was read.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from txagent_train.core.codec import tool_to_json
from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import ToolSpec
from txagent_train.data.loading import raise_fault
from txagent_train.data.toolspecs import AUTO
from txagent_train.data.toolspecs.reading import read_specs
from txagent_train.data.writing import check_free
from txagent_train.tracking.files import atomic_write_bytes, dump_json

_NOT_WRITTEN = (".zst", ".xz", ".bz2", ".zip")


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools, each name once.

    Raises:
        DataError: two tools have the same name (reason ``duplicate_tool``).
    """

    tools: tuple[ToolSpec, ...]
    by_name: Mapping[str, ToolSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name: dict[str, ToolSpec] = {}
        for tool in self.tools:
            if by_name.setdefault(tool.name, tool) is not tool:
                raise DataError(f"two tools are named {tool.name}", reason="duplicate_tool", fix="rename one of them")
        object.__setattr__(self, "by_name", by_name)

    @property
    def hash(self) -> str:
        """SHA-256 over name, description and parameters of all tools, sorted by name: what a model reads of them.

        The order of the keys counts, for the model reads it too; the order of the tools does not.
        """
        read = [
            [self.by_name[name].name, self.by_name[name].description, self.by_name[name].parameters]
            for name in sorted(self.by_name)
        ]
        return hashlib.sha256(json.dumps(read).encode()).hexdigest()

    @classmethod
    def read(cls, path: Path, format: str = AUTO) -> Toolbox:
        """The toolbox of a native file; or of one in another format (toolspecs.FORMATS), converted on the fly.

        Raises:
            DataError: the file cannot be read, a spec in it is no tool, or a name occurs twice.
            UserError: there is no such format.
        """
        placed = read_specs([path], format, on_fault=raise_fault)
        if not placed.specs:
            raise DataError("the file holds no tools", reason="no_tools", path=str(path))
        try:
            return cls(tuple(item.spec for item in placed.specs))
        except DataError as error:
            raise error.at(path=str(path)) from None

    def write(self, path: Path, *, overwrite: bool = False) -> None:
        """Write the native file, whole or not at all; compressed where its name ends in ``.gz``.

        Raises:
            UserError: the file exists and ``overwrite`` is False, or nothing can be written there.
            EnvironmentFailure: the machine refused.
        """
        check_packing(path)
        check_free(path, overwrite=overwrite)
        lines = ",\n".join(dump_json(tool_to_json(tool)) for tool in self.tools)
        write_packed(path, f"[\n{lines}\n]\n")


def check_packing(path: Path) -> None:
    """Raise UserError where the name of a file to be written promises a packing that nothing here writes."""
    if path.name.endswith(_NOT_WRITTEN):
        raise UserError("a file of this packing is read, but not written", where=str(path), fix="end its name in .gz")


def write_packed(path: Path, text: str) -> None:
    """Write a text, whole or not at all; compressed where the name ends in ``.gz``. Equal texts give equal bytes."""
    content = text.encode("utf-8")
    atomic_write_bytes(path, gzip.compress(content, mtime=0) if path.name.endswith(".gz") else content)
