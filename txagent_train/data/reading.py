"""Reading JSON records from files, strictly: what is wrong is named with its file and line, never skipped."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from txagent_train.core.errors import DataError
from txagent_train.core.records import JsonObject

GZIP_MAGIC = b"\x1f\x8b"
FOREIGN_MARKS = (
    # UTF-32 first: its little-endian mark begins with the one of UTF-16.
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
READ_ERRORS = (OSError, EOFError, zlib.error)
"""What reading a damaged or absent file raises; gzip.BadGzipFile is an OSError."""


def strict_loads(text: str) -> Any:
    """The JSON value of a text. Stricter than json.loads: no NaN or Infinity, no key twice in one object.

    Raises:
        ValueError: says what is wrong, in words for the user.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> JsonObject:
    out = dict(pairs)
    if len(out) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in one object")
    return out


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def read_jsonl(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """The objects of a JSON Lines file, each with its line number (from 1). Blank lines are skipped.

    A gzip file is known by its first bytes, whatever its name; a UTF-8 byte order mark is skipped.

    Raises:
        DataError: the file is absent, damaged or not UTF-8, or a line is no JSON object.
    """
    with _open_utf8(path) as stream:
        yield from _read_lines(stream, path)


def read_records(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """The records of a JSON Lines file, or of a file that holds one JSON list of objects.

    The number is the line for JSON Lines, and the place in the list (from 1) for a list. A list is read whole.

    Raises:
        DataError: as read_jsonl.
    """
    with _open_utf8(path) as stream:
        if stream.peek(1).lstrip()[:1] == b"[":
            yield from _read_list(stream, path)
        else:
            yield from _read_lines(stream, path)


@contextmanager
def _open_utf8(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file behind its compression and byte order mark."""
    place = str(path)
    try:
        with path.open("rb") as raw:
            stream: io.BufferedReader = raw
            if raw.peek(2)[:2] == GZIP_MAGIC:
                stream = io.BufferedReader(gzip.GzipFile(fileobj=raw))
            head = stream.peek(4)[:4]
            _check_encoding(head, place)
            if head.startswith(codecs.BOM_UTF8):
                stream.read(len(codecs.BOM_UTF8))
            yield stream
    except FileNotFoundError:
        raise DataError("there is no such file", reason="unreadable_file", path=place) from None
    except IsADirectoryError:
        problem = "this is a folder; the name of a file is needed"
        raise DataError(problem, reason="unreadable_file", path=place) from None
    except READ_ERRORS as error:
        problem = f"the file cannot be read: {error}"
        raise DataError(problem, reason="unreadable_file", path=place, fix="copy or download it again") from None


def _check_encoding(head: bytes, place: str) -> None:
    found = next((name for mark, name in FOREIGN_MARKS if head.startswith(mark)), "")
    if not found and b"\x00" in head:
        found = "UTF-16 or binary"
    if found:
        fix = f"convert it: iconv -f {found} -t UTF-8" if found.startswith("UTF") and " " not in found else ""
        raise DataError(f"the file is {found}, not UTF-8", reason="not_utf8", path=place, fix=fix)


def _read_lines(stream: io.BufferedReader, path: Path) -> Iterator[tuple[int, JsonObject]]:
    number = 0
    try:
        for number, raw in enumerate(stream, 1):
            if raw.strip():
                yield number, _parse_line(raw, number, path)
    except (EOFError, zlib.error):
        problem = "the compressed file stops in the middle or is damaged"
        fix = "copy or download it again"
        raise DataError(problem, reason="torn_file", path=str(path), line=number + 1, fix=fix) from None


def _parse_line(raw: bytes, number: int, path: Path) -> JsonObject:
    place = str(path)
    try:
        value = strict_loads(raw.decode("utf-8"))
    except ValueError as error:  # UnicodeDecodeError is one
        if not raw.endswith(b"\n") and raw.lstrip().startswith(b"{") and not raw.rstrip().endswith(b"}"):
            problem = "the last line stops in the middle"
            fix = "the file was cut while it was written or copied; get it again, or delete the last line"
            raise DataError(problem, reason="torn_line", path=place, line=number, fix=fix) from None
        if isinstance(error, UnicodeDecodeError):
            problem = f"the line is not UTF-8 (byte {error.start} is 0x{raw[error.start]:02x})"
            raise DataError(problem, reason="not_utf8", path=place, line=number) from None
        fix = "write one JSON object a line, or one JSON list" if raw.strip() == b"{" else ""
        raise DataError(f"the line is not JSON: {error}", reason="not_json", path=place, line=number, fix=fix) from None
    return _object(value, number, path)


def _read_list(stream: io.BufferedReader, path: Path) -> Iterator[tuple[int, JsonObject]]:
    try:
        values = strict_loads(stream.read().decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"the file is not UTF-8 (byte {error.start})", reason="not_utf8", path=str(path)) from None
    except ValueError as error:
        raise DataError(f"the file is not JSON: {error}", reason="not_json", path=str(path)) from None
    for number, value in enumerate(values, 1):
        yield number, _object(value, number, path)


def _object(value: object, number: int, path: Path) -> JsonObject:
    if not isinstance(value, dict):
        problem = f"a record must be a JSON object, not {type(value).__name__}"
        raise DataError(problem, reason="not_object", path=str(path), line=number)
    return value
