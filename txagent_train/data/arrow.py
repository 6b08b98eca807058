"""Rows of Arrow tables as plain JSON objects: Parquet and Arrow files, folders of Parquet, saved ``datasets``.

Arrow gives every struct of a column the same keys and fills those that a row lacks with null: ``tool_calls`` in a
user message, the arguments of other tools in a call, the properties of other tools in a schema. A key inside a
column whose value is null is therefore left out. A null that the data meant cannot be told from a filled one; where
that matters, store the column as a JSON text (or as the JSON type of ``datasets``), which is read exactly.
``struct_columns`` says which columns are concerned. Nulls in lists, and columns that are null, stay.

Memory holds one row group or record batch of a file, and a few rows of it as objects, however long the file is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject
from txagent_train.data.strict_json import strict_loads

if TYPE_CHECKING:
    import pyarrow as pa

Convert: TypeAlias = Callable[[Any], Any]

PARQUET_MAGIC = b"PAR1"
FILE_MAGIC = b"ARROW1"
STREAM_MAGIC = b"\xff\xff\xff\xff"
STREAM_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_ROWS_AT_ONCE = 64
_SPLIT = re.compile(r"(?i)(train|test|val|dev|eval|held-?out|holdout)[a-z]*(?=[^a-z]|$)")


def is_table(path: Path) -> bool:
    """Whether this is a folder, or a file that begins as Parquet and Arrow files do."""
    return path.is_dir() or (path.is_file() and _magic(path).startswith((PARQUET_MAGIC, FILE_MAGIC, STREAM_MAGIC)))


def read_rows(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """The rows of a table, each with its number (from 1, through all files of a folder).

    Raises:
        DataError: a file is damaged, a column has a type that JSON lacks, or the folder holds several splits or none.
    """
    number = 0
    for file in table_files(path):
        with _damage_named(file), _opened(file) as (schema, batches):
            convert = _row_converter(schema, file)
            for batch in batches:
                for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                    for row in batch.slice(start, _ROWS_AT_ONCE).to_pylist():
                        number += 1
                        try:
                            yield number, convert(row)
                        except ValueError as error:
                            problem = f"a JSON column is not JSON: {error}"
                            raise DataError(problem, reason="not_json", path=str(file), line=number) from None


def struct_columns(path: Path) -> tuple[str, ...]:
    """The columns in which keys with null are left out: those that hold structs. Raises as read_rows."""
    file = table_files(path)[0]
    with _damage_named(file), _opened(file) as (schema, _):
        return tuple(field.name for field in schema if "struct<" in str(field.type))


def table_files(path: Path) -> list[Path]:
    """The files of a table, in order: the file itself, or those of the folder.

    Raises:
        DataError: the folder holds several splits, or no table.
    """
    if not path.is_dir():
        return [path]
    if (path / "dataset_dict.json").is_file():
        raise _several_splits(path, sorted(item.parent.name for item in path.glob("*/state.json")))
    if (path / "state.json").is_file():
        return _saved_files(path)
    files = sorted(path.glob("*.parquet"))
    below = sorted({str(item.parent.relative_to(path)) for item in path.glob("*/**/*.parquet")})
    if files and below:
        problem = f"the folder holds Parquet files, and so do folders in it: {', '.join(below[:8])}"
        fix = "put the files to be read into one folder"
        raise DataError(problem, reason="several_splits", path=str(path), fix=fix)
    if not files:
        problem = "this is a folder without Parquet files and no saved data set; the name of a file is needed"
        fix = f"name the folder in it that holds them: {', '.join(below)}" if below else ""
        raise DataError(problem, reason="unreadable_file", path=str(path), fix=fix)
    names = {match[1].lower() for file in files if (match := _SPLIT.match(file.stem))}
    if len(names) > 1:
        raise _several_splits(path, [file.name for file in files])
    return files


def _several_splits(path: Path, names: list[str]) -> DataError:
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    problem = f"the folder holds several splits: {shown}"
    fix = f"name the one to read, such as {path / names[0]}" if names else ""
    return DataError(problem, reason="several_splits", path=str(path), fix=fix)


def _saved_files(path: Path) -> list[Path]:
    """The files that ``Dataset.save_to_disk`` lists in its state."""
    state_file = path / "state.json"
    try:
        state = strict_loads(state_file.read_text(encoding="utf-8"))
        files = [path / item["filename"] for item in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError):
        problem = "this is not the state of a saved data set"
        raise DataError(problem, reason="unreadable_file", path=str(state_file), fix="save it again") from None
    if state.get("_indices_data_files"):
        problem = "the data set was saved as a selection of rows, in the way of an old version of datasets"
        fix = "load it, call flatten_indices(), and save it again"
        raise DataError(problem, reason="unreadable_file", path=str(path), fix=fix)
    absent = next((file for file in files if not file.is_file()), None)
    if absent is not None or not files:
        problem = f"the data set lacks its file {absent.name}" if absent else "the data set has no files"
        raise DataError(problem, reason="torn_file", path=str(path), fix="copy or save it again")
    return files


def _magic(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(len(FILE_MAGIC))
    except OSError as error:
        problem = f"the file cannot be read: {error.strerror or error}"
        raise DataError(problem, reason="unreadable_file", path=str(path)) from None


@contextmanager
def _damage_named(file: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except UnicodeDecodeError:
        raise DataError("a text column is not UTF-8", reason="not_utf8", path=str(file)) from None
    except (OSError, pa.ArrowException) as error:
        problem = f"the file is damaged: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        fix = "copy or write it again"
        raise DataError(problem, reason="torn_file", path=str(file), fix=fix) from None


@contextmanager
def _opened(file: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """The schema of a file, and its record batches one by one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    magic = _magic(file)
    if magic.startswith(PARQUET_MAGIC):
        with pq.ParquetFile(file) as parquet:
            yield parquet.schema_arrow, _parquet_batches(parquet)
    elif magic.startswith(FILE_MAGIC):
        with pa.memory_map(str(file)) as source, pa.ipc.open_file(source) as reader:
            yield reader.schema, (reader.get_batch(index) for index in range(reader.num_record_batches))
    else:
        _check_end(file)
        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
            yield reader.schema, iter(reader)


def _parquet_batches(parquet: Any) -> Iterator[pa.RecordBatch]:
    # One row group at a time: asked for all of them, the reader keeps those that it is done with.
    for group in range(parquet.num_row_groups):
        yield from parquet.iter_batches(batch_size=_ROWS_AT_ONCE, row_groups=[group])


def _check_end(file: Path) -> None:
    """A stream that was cut between two batches reads as a whole one: only the mark at its end tells."""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - len(STREAM_END)))
        if stream.read() != STREAM_END:
            problem = "the Arrow file stops in the middle"
            raise DataError(problem, reason="torn_file", path=str(file), fix="copy or write it again")


def _row_converter(schema: pa.Schema, file: Path) -> Convert:
    """Makes plain JSON of a row; raises DataError for a column that cannot be."""
    if len(set(schema.names)) != len(schema.names):
        twice = next(name for name in schema.names if schema.names.count(name) > 1)
        raise DataError(f"two columns are named {twice}", reason="duplicate_column", path=str(file))
    try:
        columns = {field.name: _converter(field.type, field.name) for field in schema}
    except DataError as error:
        raise error.at(path=str(file)) from None
    return lambda row: {name: convert(row[name]) for name, convert in columns.items()}


def _converter(kind: pa.DataType, column: str) -> Convert:
    import pyarrow as pa
    import pyarrow.types as types

    if isinstance(kind, pa.JsonType):
        return lambda value: None if value is None else strict_loads(value)
    if types.is_struct(kind):
        inner = {field.name: _converter(field.type, f"{column}.{field.name}") for field in kind}
        return lambda value: _without_nulls(value, inner)
    if any(check(kind) for check in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        item = _converter(kind.value_type, column)
        return lambda value: None if value is None else [item(element) for element in value]
    if types.is_dictionary(kind):
        return _converter(kind.value_type, column)
    plain = (
        *(types.is_null, types.is_boolean, types.is_integer, types.is_float32, types.is_float64),
        *(types.is_string, types.is_large_string, types.is_string_view),
    )
    if any(check(kind) for check in plain):
        return lambda value: value
    problem = f"the column {column} has the type {kind}, which JSON does not have"
    raise DataError(problem, reason="unsupported_column", fix="write it as text, or leave the column out")


def _without_nulls(value: Any, inner: dict[str, Convert]) -> Any:
    if value is None:
        return None
    return {name: convert(value[name]) for name, convert in inner.items() if value[name] is not None}
