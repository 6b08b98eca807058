from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from txagent_train.core.errors import EnvironmentFailure, UserError
from txagent_train.tracking.files import atomic_write_json, atomic_write_text, dump_json, file_sha256, is_leftover


def test_writes_and_replaces_leaving_nothing_aside(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "note.txt"
    atomic_write_text(path, "one")
    atomic_write_text(path, "zwei \N{GREEK SMALL LETTER MU}")
    assert path.read_text(encoding="utf-8") == "zwei \N{GREEK SMALL LETTER MU}"
    assert os.listdir(path.parent) == ["note.txt"]


def test_a_value_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    atomic_write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        atomic_write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_rename_that_fails_leaves_nothing_aside(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(EnvironmentFailure, match="taken could not be written"):
        atomic_write_text(tmp_path / "taken", "text")
    assert os.listdir(tmp_path) == ["taken"]


def test_a_folder_that_is_a_file_is_a_failure_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(EnvironmentFailure):
        atomic_write_text(tmp_path / "file" / "below.txt", "text")


def test_dump_json_holds_floats_and_text_that_json_and_utf8_cannot() -> None:
    line = dump_json({"a": float("nan"), "b": [float("-inf")], "c": "\ud800"})
    assert line.isascii()
    assert json.loads(line) == {"a": "NaN", "b": ["-Infinity"], "c": "\ud800"}


def test_leftovers_are_told_from_other_files() -> None:
    assert is_leftover(".manifest.json.123.tmp")
    assert not any(map(is_leftover, ("manifest.json", ".manifest.json", "a.123.tmp", ".tmp")))


def test_file_sha256(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "x").write_bytes(content)
    assert file_sha256(tmp_path / "x") == hashlib.sha256(content).hexdigest()


def test_a_file_that_cannot_be_read_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="absent"):
        file_sha256(tmp_path / "absent")
    with pytest.raises(UserError, match="cannot be read"):
        file_sha256(tmp_path)
