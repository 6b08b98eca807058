from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from txagent_train.core.errors import EnvironmentFailure, UserError
from txagent_train.core.records import JsonObject
from txagent_train.data.reading import read_jsonl
from txagent_train.data.writing import check_place, jsonl_writer

RECORDS: list[JsonObject] = [{"a": "é\n"}, {"b": [1, 2.0, None]}]


def _write(path: Path, *, overwrite: bool = False) -> None:
    with jsonl_writer(path, overwrite=overwrite) as writer:
        for record in RECORDS:
            writer.write(record)
        assert writer.count == 2


@pytest.mark.parametrize("name", ["x.jsonl", "deep/er/x.jsonl.gz"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    _write(tmp_path / name)
    assert [record for _, record in read_jsonl(tmp_path / name)] == RECORDS
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_equal_contents_give_equal_bytes(tmp_path: Path) -> None:
    _write(tmp_path / "x.jsonl.gz")
    _write(tmp_path / "y.jsonl.gz")
    assert (tmp_path / "x.jsonl.gz").read_bytes() == (tmp_path / "y.jsonl.gz").read_bytes()


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), jsonl_writer(path, overwrite=True) as writer:
        writer.write({"a": 1})
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_file_is_replaced_only_when_told(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    _write(path)
    with pytest.raises(UserError, match="exists already"):
        _write(path)
    _write(path, overwrite=True)
    with pytest.raises(UserError, match="folder"):
        _write(tmp_path, overwrite=True)


def test_a_place_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file is a file, so nothing"):
        _write(tmp_path / "file" / "x.jsonl")
    with pytest.raises(UserError, match="cannot be written: File name too long"):
        _write(tmp_path / ("x" * 300))
    check_place(tmp_path / "new" / "x.jsonl")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match="may not be written to"):
        _write(tmp_path / "new" / "x.jsonl")


def test_a_machine_that_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentFailure, match="could not be written: No space"):
        _write(tmp_path / "x.jsonl")
