"""Data sets as LLaMA-Factory's ``dataset_info.json`` describes them.

A data set is a file, the shape of its records (``formatting``), the names of their columns, and the words for roles
(``tags``). Each record is written in the standard form of its shape and then read by that format's own parser:

- ``sharegpt``: messages with one call at a time, read as ``sharegpt``;
- ``openai``: messages with ``tool_calls``, read as ``openai``;
- ``alpaca``: instruction, input, output and earlier pairs (``history``), read as ``sharegpt``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import JsonObject, Trace
from txagent_train.data.importers import parser_for
from txagent_train.data.reading import strict_loads

INFO_FILE = "dataset_info.json"
HUBS = ("hf_hub_url", "ms_hub_url", "om_hub_url")
STANDARD_TAGS = {
    "sharegpt": {
        "role_tag": "from", "content_tag": "value", "user_tag": "human", "assistant_tag": "gpt",
        "observation_tag": "observation", "function_tag": "function_call", "system_tag": "system",
    },
    "openai": {
        "role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
        "observation_tag": "tool", "function_tag": "assistant", "system_tag": "system",
    },
}  # fmt: skip
"""The words of each standard form. LLaMA-Factory's own defaults are those of sharegpt, whatever the formatting."""
ROLES = ("user_tag", "assistant_tag", "observation_tag", "function_tag", "system_tag")
COLUMNS = {
    "messages": "conversations", "tools": "tools", "system": "system",
    "prompt": "instruction", "query": "input", "response": "output", "history": "history",
}  # fmt: skip
"""Names of columns where ``columns`` does not give them."""
MEDIA = ("images", "videos", "audios")


@dataclass(frozen=True, slots=True)
class LlamaFactoryDataset:
    """One entry of ``dataset_info.json``; ``limit`` is how many records are taken (None: all)."""

    name: str
    files: tuple[Path, ...]
    formatting: str
    columns: Mapping[str, str]
    tags: Mapping[str, str]
    limit: int | None = None

    def parse(self, record: JsonObject, *, path: Path, line: int) -> Trace:
        """The trace of one record; see importers.Parser. Its id begins with the name of the data set.

        Raises:
            DataError: as the parser of the standard form.
        """
        own_id = record.get("id")
        trace_id = f"{self.name}-{line if own_id is None else own_id}"
        try:
            standard = self._alpaca(record) if self.formatting == "alpaca" else self._conversation(record)
        except DataError as error:
            raise error.at(trace_id=trace_id) from None
        used = set(self.columns.values()) | {"messages", "conversations"}
        rest = {key: value for key, value in record.items() if key not in used}
        parse = parser_for("openai" if self.formatting == "openai" else "sharegpt")
        return parse({**rest, **standard, "id": trace_id}, path=path, line=line)

    def _conversation(self, record: JsonObject) -> JsonObject:
        column = self.columns["messages"]
        messages = record.get(column)
        if not isinstance(messages, list):
            problem = f"the column {column} holds no list of messages"
            raise DataError(problem, reason="missing_key", fix=f"see columns.messages of {self.name} in {INFO_FILE}")
        standard = STANDARD_TAGS[self.formatting]
        roles = {self.tags[tag]: standard[tag] for tag in reversed(ROLES)}
        out: list[Any] = []
        for message in messages:
            if not isinstance(message, dict):
                out.append(message)  # the parser says what is wrong, and where
                continue
            rest = {key: value for key, value in message.items() if key not in (self._role_key, self._content_key)}
            role = message.get(self._role_key)
            out.append(
                {
                    standard["role_tag"]: roles.get(role, role) if isinstance(role, str) else role,
                    standard["content_tag"]: message.get(self._content_key),
                    **rest,
                }
            )
        first = out[0].get(standard["role_tag"]) if out and isinstance(out[0], dict) else None
        if (system := record.get(self.columns["system"])) and first != "system":
            out.insert(0, {standard["role_tag"]: "system", standard["content_tag"]: system})
        key = "messages" if self.formatting == "openai" else "conversations"
        return {key: out, "tools": record.get(self.columns["tools"]) or None}

    @property
    def _role_key(self) -> str:
        return self.tags["role_tag"]

    @property
    def _content_key(self) -> str:
        return self.tags["content_tag"]

    def _alpaca(self, record: JsonObject) -> JsonObject:
        turns: list[JsonObject] = []
        if system := record.get(self.columns["system"]):
            turns.append({"from": "system", "value": system})
        for pair in record.get(self.columns["history"]) or ():
            if not isinstance(pair, list) or len(pair) != 2:
                raise DataError("history must be a list of pairs of texts", reason="wrong_type")
            turns += [{"from": "human", "value": pair[0]}, {"from": "gpt", "value": pair[1]}]
        parts = [record.get(self.columns[name]) for name in ("prompt", "query")]
        if any(part is not None and not isinstance(part, str) for part in parts):
            raise DataError("instruction and input must be texts", reason="wrong_type")
        turns.append({"from": "human", "value": "\n".join(part for part in parts if part)})
        turns.append({"from": "gpt", "value": record.get(self.columns["response"])})
        return {"conversations": turns, "tools": record.get(self.columns["tools"]) or None}


class NotLocal(UserError):
    """A data set lies on a hub; says how to download it."""


def read_datasets(names: Sequence[str], folder: Path) -> tuple[list[LlamaFactoryDataset], dict[str, NotLocal]]:
    """The named entries of the ``dataset_info.json`` in ``folder``: the local ones, and why others are left out.

    Raises:
        UserError: an entry is missing, names no file, or is of a kind that cannot be imported.
    """
    info = folder / INFO_FILE
    try:
        entries = strict_loads(info.read_text(encoding="utf-8-sig"))
    except OSError as error:
        problem = f"the file cannot be read: {error.strerror}"
        raise UserError(problem, where=str(info), fix="check dataset_dir of the settings") from None
    except ValueError as error:
        raise UserError(f"the file is not JSON: {error}", where=str(info)) from None
    if not isinstance(entries, dict):
        raise UserError("the file must be one JSON object", where=str(info))
    datasets: list[LlamaFactoryDataset] = []
    remote: dict[str, NotLocal] = {}
    for name in names:
        try:
            datasets.append(_dataset(name, entries.get(name), folder))
        except NotLocal as error:
            remote[name] = error
    return datasets, remote


def _dataset(name: str, entry: object, folder: Path) -> LlamaFactoryDataset:
    where = f"{folder / INFO_FILE}, {name}"
    if not isinstance(entry, dict):
        raise UserError("there is no such data set", where=where, fix="check dataset of the settings")
    if "file_name" not in entry:
        hub = next((key for key in HUBS if key in entry), None)
        if hub is None:
            raise UserError("the data set has no file_name", where=where, fix="only local files can be imported")
        problem = f"the data set lies on a hub ({entry[hub]})"
        fix = f"download it (huggingface-cli download --repo-type dataset {entry[hub]}), and give its file_name"
        raise NotLocal(problem, where=where, fix=fix)
    columns = _names(entry, "columns", where)
    if entry.get("ranking") or columns.keys() & {"chosen", "rejected", "kto_tag"}:
        raise UserError("the data set holds preferences, not traces", where=where)
    if columns.keys() & set(MEDIA):
        fix = "leave it out of dataset: texts alone are trained on here"
        raise UserError("the data set holds images, videos or sounds, not texts alone", where=where, fix=fix)
    formatting = entry.get("formatting", "alpaca")
    if formatting not in ("alpaca", *STANDARD_TAGS):
        known = ", ".join(("alpaca", *STANDARD_TAGS))
        raise UserError(f"there is no formatting {formatting!r}", where=where, fix=f"known: {known}")
    limit = entry.get("num_samples")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise UserError("num_samples must be a whole number", where=where)
    return LlamaFactoryDataset(
        name=name,
        files=_files(folder / str(entry["file_name"]), where),
        formatting=formatting,
        columns={**COLUMNS, **columns},
        tags={**STANDARD_TAGS["sharegpt"], **_names(entry, "tags", where)},
        limit=limit,
    )


def _names(entry: JsonObject, key: str, where: str) -> dict[str, str]:
    value = entry.get(key) or {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value.values()):
        raise UserError(f"{key} must map names to names", where=where)
    return value


def _files(path: Path, where: str) -> tuple[Path, ...]:
    """The file, or the files of a folder in the order of their names."""
    files = sorted(item for item in path.iterdir() if item.is_file()) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise UserError(f"there is no such file: {path}", where=where)
    return tuple(files)
