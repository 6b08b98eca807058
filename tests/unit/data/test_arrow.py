from __future__ import annotations

import datetime
import decimal
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.openai_records import assistant, call, record, tool, user
from txagent_train.core.errors import DataError
from txagent_train.core.records import Trace
from txagent_train.data.arrow import is_table, read_rows, struct_columns
from txagent_train.data.importers import parser_for
from txagent_train.data.importing import import_traces
from txagent_train.data.loading import load_traces
from txagent_train.data.reading import read_records

RECORDS = [
    record("a"),
    record("b", [user(), assistant(None, call("list_drugs", "{}")), tool("[]"), assistant("None.")]),
    record("c", [user(), assistant("No.")]),
]


def _parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def _stream(path: Path, rows: list[dict[str, Any]]) -> Path:
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=1):
            writer.write_batch(batch)
    return path


def _file(path: Path, rows: list[dict[str, Any]]) -> Path:
    table = pa.Table.from_pylist(rows)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return path


def _saved(path: Path, rows: list[dict[str, Any]]) -> Path:
    datasets.Dataset.from_list(rows).save_to_disk(path, num_shards=min(2, len(rows)))
    return path


def _saved_as_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    datasets.Dataset.from_list(rows, on_mixed_types="use_json").save_to_disk(path)
    return path


def _folder(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.mkdir()
    for number, row in enumerate(rows):
        # Each file has its own schema: the rows of each shard were unified alone.
        _parquet(path / f"train-{number:05d}-of-{len(rows):05d}.parquet", [row])
    return path


WRITERS = [_parquet, _stream, _file, _saved, _saved_as_json, _folder]


def _traces(rows: list[dict[str, Any]]) -> list[Trace]:
    return [parser_for("openai")(row, path=Path("x"), line=1) for row in rows]


@pytest.mark.parametrize("write", WRITERS)
def test_tables_hold_the_same_traces_as_json_lines(tmp_path: Path, write: Callable[..., Path]) -> None:
    path = write(tmp_path / "table", RECORDS)
    assert is_table(path)
    rows = list(read_records(path))
    assert [number for number, _ in rows] == [1, 2, 3]
    assert _traces([row for _, row in rows]) == _traces(RECORDS)
    report = import_traces(path, tmp_path / "out.jsonl")
    assert (report.format, report.accepted) == ("openai", 3)
    assert [trace.id for trace in load_traces(tmp_path / "out.jsonl")] == ["a", "b", "c"]


@pytest.mark.parametrize("write", WRITERS)
def test_arguments_and_schemas_come_back_without_filled_in_nulls(tmp_path: Path, write: Callable[..., Path]) -> None:
    calls: list[dict[str, Any]] = [{"drug": "x", "rows": 1}, {}, {"city": {"name": "B"}}, {"ids": [1, 2]}]
    rows = [
        record(f"t{n}", [user(), assistant(None, call("get_dose", item)), tool(), assistant("a")])
        for n, item in enumerate(calls)
    ]
    if write is _folder:  # Parquet has no struct without fields, so {} cannot be alone in a file
        del rows[1]
    path = write(tmp_path / "table", rows)
    assert _traces([row for _, row in read_rows(path)]) == _traces(rows)


@pytest.mark.parametrize("write", WRITERS)
def test_json_text_keeps_nulls_that_are_data(tmp_path: Path, write: Callable[..., Path]) -> None:
    arguments = {"drug": None, "rows": [None, 1]}
    rows = [record("a", [user(), assistant(None, call(arguments=json.dumps(arguments))), tool(), assistant("a")])]
    assert _traces([row for _, row in read_rows(write(tmp_path / "table", rows))]) == _traces(rows)


def test_the_json_type_of_datasets_keeps_nulls_and_mixed_types(tmp_path: Path) -> None:
    arguments = {"drug": None, "rows": [1, "all", {"a": 1.0}]}
    rows = [record("a", [user(), assistant(None, call(arguments=arguments)), tool(), assistant("a")])]
    path = _saved_as_json(tmp_path / "d", rows)
    assert _traces([row for _, row in read_rows(path)]) == _traces(rows)
    assert struct_columns(path) == ("tools",)


def test_whole_columns_may_be_json_text(tmp_path: Path) -> None:
    rows = [{**item, "messages": json.dumps(item["messages"]), "tools": json.dumps(item["tools"])} for item in RECORDS]
    path = _parquet(tmp_path / "x.parquet", rows)
    report = import_traces(path, tmp_path / "out.jsonl")
    assert (report.format, report.accepted, report.notes) == ("openai", 3, ())
    assert list(load_traces(tmp_path / "out.jsonl")) == _traces(RECORDS)


VALUES = st.recursive(
    st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, min_size=1, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES, min_size=1), min_size=1, max_size=4))
def test_structs_without_nulls_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    wrapped = [{"column": row} for row in rows]
    try:
        table = pa.Table.from_pylist(wrapped)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return  # the rows have no common schema: nobody can have written them
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
        file.write(sink.getvalue().to_pybytes())
        file.flush()
        read = [row for _, row in read_rows(Path(file.name))]
    assert json.dumps(read, sort_keys=True) == json.dumps(table_values(table, wrapped), sort_keys=True)


def table_values(table: pa.Table, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows as they are, but numbers of a column as its type has them (1 beside 0.5 is 1.0)."""

    def fit(value: Any, filled: Any) -> Any:
        if isinstance(value, dict):
            return {key: fit(item, filled[key]) for key, item in value.items()}
        return filled

    return [fit(row, filled) for row, filled in zip(rows, table.to_pylist(), strict=True)]


def test_rows_are_numbered_through_the_files_of_a_folder(tmp_path: Path) -> None:
    rows = [record(f"t{n}") for n in range(150)]
    _parquet(tmp_path / "b.parquet", rows[100:], row_group_size=7)
    _parquet(tmp_path / "a.parquet", rows[:100], row_group_size=100)
    (tmp_path / "README.md").write_text("about")
    assert [(number, row["id"]) for number, row in read_rows(tmp_path)] == [(n + 1, f"t{n}") for n in range(150)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime.date(2024, 1, 1), "date32"),
        (datetime.datetime(2024, 1, 1), "timestamp"),
        (datetime.timedelta(1), "duration"),
        (decimal.Decimal("1.5"), "decimal"),
        (b"x", "binary"),
        ([{"when": datetime.time(1)}], "time64"),
        ({"deep": {"er": b"x"}}, "binary"),
    ],
)
def test_a_column_that_json_has_no_type_for_is_named(tmp_path: Path, value: Any, kind: str) -> None:
    path = _parquet(tmp_path / "x.parquet", [{"id": "a", "odd_one": value}])
    with pytest.raises(DataError, match=rf"x\.parquet: the column odd_one[.a-z]* has the type {kind}") as caught:
        list(read_records(path))
    assert caught.value.reason == "unsupported_column"


def test_a_data_set_of_several_splits_names_them(tmp_path: Path) -> None:
    whole = datasets.Dataset.from_list(RECORDS)
    datasets.DatasetDict({"train": whole, "test": whole}).save_to_disk(tmp_path / "d")
    with pytest.raises(DataError, match=r"several splits: test, train\n.*name the one to read, such as .*/d/test"):
        list(read_records(tmp_path / "d"))
    assert len(list(read_records(tmp_path / "d" / "train"))) == 3


def test_parquet_of_several_splits_is_not_mixed(tmp_path: Path) -> None:
    for name in ("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001"):
        _parquet(tmp_path / f"{name}.parquet", RECORDS)
    with pytest.raises(DataError, match="several splits: test-00000"):
        list(read_records(tmp_path))
    (tmp_path / "test-00000-of-00001.parquet").unlink()
    assert len(list(read_records(tmp_path))) == 6
    above = tmp_path.parent / f"{tmp_path.name}-above"
    (above / "data").mkdir(parents=True)
    _parquet(above / "data" / "0.parquet", RECORDS)
    with pytest.raises(DataError, match="name the folder in it that holds them: data"):
        list(read_records(above))


@pytest.mark.parametrize("write", [_parquet, _stream, _file])
def test_torn_tables_are_errors_wherever_they_are_cut(tmp_path: Path, write: Callable[..., Path]) -> None:
    whole = write(tmp_path / "whole", RECORDS).read_bytes()
    torn = tmp_path / "torn"
    for cut in (20, len(whole) // 3, len(whole) // 2, len(whole) - 8, len(whole) - 1):
        torn.write_bytes(whole[:cut])
        with pytest.raises(DataError, match="torn") as caught:
            list(read_records(torn))
        assert caught.value.reason == "torn_file"


def test_a_damaged_saved_data_set_is_an_error(tmp_path: Path) -> None:
    path = _saved(tmp_path / "d", RECORDS)
    shards = sorted(path.glob("*.arrow"))
    shards[-1].unlink()
    with pytest.raises(DataError, match=f"lacks its file {shards[-1].name}"):
        list(read_records(path))
    for state in ("{", "{}", '{"_data_files": []}', '{"_data_files": [1]}', "[]"):
        (path / "state.json").write_text(state)
        with pytest.raises(DataError):
            list(read_records(path))


def test_what_a_table_hides_is_said(tmp_path: Path) -> None:
    path = _parquet(tmp_path / "x.parquet", RECORDS)
    assert struct_columns(path) == ("messages", "tools")
    assert "messages, tools: a key with null inside was left out" in import_traces(path, tmp_path / "o.jsonl").notes[0]


def test_odd_columns(tmp_path: Path) -> None:
    arrays = [pa.array(["x"]), pa.array(["y"])]
    pq.write_table(pa.Table.from_arrays(arrays, names=["a", "a"]), tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="two columns are named a"):
        list(read_records(tmp_path / "twice.parquet"))
    table = pa.table({"c": pa.array(["x", "y", "x"]).dictionary_encode(), "n": pa.nulls(3), "l": [[1.5], [], None]})
    pq.write_table(table, tmp_path / "odd.parquet")
    assert [row for _, row in read_records(tmp_path / "odd.parquet")] == [
        {"c": "x", "n": None, "l": [1.5]},
        {"c": "y", "n": None, "l": []},
        {"c": "x", "n": None, "l": None},
    ]
    empty = _parquet(tmp_path / "empty.parquet", RECORDS)
    pq.write_table(pq.read_table(empty).slice(0, 0), empty)
    with pytest.raises(DataError, match="holds no records"):
        import_traces(empty, tmp_path / "out.jsonl")


def test_memory_holds_one_row_group(tmp_path: Path) -> None:
    rows = [{"text": f"{n:04d}" * 2500} for n in range(1000)]
    path = _parquet(tmp_path / "x.parquet", rows, row_group_size=100, compression="none", use_dictionary=False)
    before = pa.total_allocated_bytes()
    peak = max(pa.total_allocated_bytes() - before for _ in read_rows(path))
    assert peak < path.stat().st_size / 4


def test_a_folder_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "more" / "deep").mkdir(parents=True)
    _parquet(tmp_path / "a.parquet", [{"a": 1}])
    _parquet(tmp_path / "more" / "deep" / "b.parquet", [{"a": 2}])
    with pytest.raises(DataError, match="so do folders in it: more/deep"):
        list(read_rows(tmp_path))
