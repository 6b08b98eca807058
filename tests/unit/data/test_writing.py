from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from txagent_train.core.errors import EnvironmentFailure, UserError
from txagent_train.core.records import JsonObject
from txagent_train.data.reading import read_jsonl
from txagent_train.data.writing import check_place, jsonl_writer, jsonl_writers

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


def test_files_that_belong_together_appear_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl")]
    paths[0].write_text("old")
    synced: list[int] = []

    def full(stream: int) -> None:
        synced.append(stream)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(EnvironmentFailure), jsonl_writers(paths, overwrite=True) as writers:
            for writer in writers:
                writer.write({"a": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"] and paths[0].read_text() == "old"
    paths[2].write_text("old")
    with jsonl_writers(paths, overwrite=True, keep_empty=False) as (first, second, _):
        first.write(RECORDS[0])
        second.write(RECORDS[1])
        assert paths[0].read_text() == "old"
    assert [record for path in paths[:2] for _, record in read_jsonl(path)] == RECORDS
    assert sorted(tmp_path.iterdir()) == paths[:2]


def test_of_several_files_the_one_that_fails_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(EnvironmentFailure, match=r"a\.jsonl could not be written"),
        jsonl_writers([tmp_path / "a.jsonl", tmp_path / "b.jsonl"]) as (first, _),
    ):
        first._stream = _Full()  # type: ignore[assignment]
        first.write({})


class _Full:
    def write(self, _: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")
