"""Reading JSON records from files, strictly: what is wrong is named with its file and line, never skipped."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from txagent_train.core.errors import DataError
from txagent_train.core.records import Json, JsonObject
from txagent_train.data.arrow import is_table, read_rows
from txagent_train.data.strict_json import strict_loads as strict_loads

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPED = b"\x2a\x4d\x18"
"""A frame that holds no data begins with any byte from 0x50 to 0x5f, and these; parallel compressors write it first."""
FOREIGN_MARKS = (
    # UTF-32 first: its little-endian mark begins with the one of UTF-16.
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
ARCHIVES = {b"\xfd7zX": "xz -d", b"PK\x03\x04": "unzip", b"BZh": "bzip2 -d"}
"""First bytes of packed files that are not read here, and what unpacks them."""
READ_ERRORS = (OSError, EOFError, zlib.error)
"""What reading a damaged or absent file raises; gzip.BadGzipFile is an OSError."""


def read_jsonl(path: Path) -> Iterator[tuple[int, JsonObject]]:
    """The objects of a JSON Lines file, each with its line number (from 1). Blank lines are skipped.

    A gzip or zstd file is known by its first bytes, whatever its name; a UTF-8 byte order mark is skipped.

    Raises:
        DataError: the file is absent, damaged or not UTF-8, or a line is no JSON object.
    """
    with _open_utf8(path) as stream:
        yield from _read_lines(stream, path)


Wanted: TypeAlias = Callable[[int], bool]
"""Says by its number whether a record is wanted. One that is not is passed over unparsed, which is what takes time."""


def every_record(_number: int) -> bool:
    """The usual answer of Wanted."""
    return True


def read_records(path: Path, wanted: Wanted = every_record) -> Iterator[tuple[int, JsonObject]]:
    """The records of a JSON Lines file, of a file that holds one JSON list of objects, or of a table (data.arrow).

    The number is the line for JSON Lines, and the place (from 1) in a list or table. Only a list is read whole.

    Raises:
        DataError: as read_jsonl.
    """
    if is_table(path):
        yield from ((number, row) for number, row in read_rows(path) if wanted(number))
        return
    with _open_utf8(path) as stream:
        if stream.peek(1).lstrip()[:1] == b"[":
            yield from ((number, record) for number, record in _read_list(stream, path) if wanted(number))
        else:
            yield from _read_lines(stream, path, wanted)


def read_document(path: Path) -> Json:
    """The one JSON value that a file holds.

    Raises:
        DataError: the file is absent, damaged, not UTF-8 or not JSON.
    """
    with _open_utf8(path) as stream:
        value: Json = _whole(stream, path)
        return value


def is_json_lines(path: Path) -> bool:
    """Whether a file has one JSON object a line: the first line is a whole one, and more follows.

    Raises:
        DataError: the file is absent, damaged or not UTF-8.
    """
    with _open_utf8(path) as stream:
        lines = (line for line in stream if line.strip())
        first = next(lines, b"")
        try:
            return isinstance(strict_loads(first.decode("utf-8")), dict) and next(lines, None) is not None
        except ValueError:
            return False


@contextmanager
def _open_utf8(path: Path) -> Iterator[io.BufferedReader]:
    """The bytes of a file behind its compression and byte order mark."""
    place = str(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        # A file is read more than once: its format is guessed first. A pipe would lose what was read before.
        problem = "this is no regular file (a pipe or a device), and a pipe can be read once"
        raise DataError(problem, reason="unreadable_file", path=place, fix="write it to a file first")
    try:
        with path.open("rb") as raw:
            stream = _decompressed(raw)
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
        if _is_damage(error):
            raise _torn(path) from None
        problem = f"the file cannot be read: {error}"
        raise DataError(problem, reason="unreadable_file", path=place, fix="copy or download it again") from None


def _is_damage(error: Exception) -> bool:
    """Whether it is the fault of what is in a compressed file; the machine's own errors have a number."""
    return not isinstance(error, OSError) or error.errno is None


def _torn(path: Path, line: int | None = None) -> DataError:
    problem = "the compressed file stops in the middle or is damaged"
    return DataError(problem, reason="torn_file", path=str(path), line=line, fix="copy or download it again")


def _decompressed(raw: io.BufferedReader) -> io.BufferedReader:
    magic = raw.peek(4)[:4]
    if magic.startswith(GZIP_MAGIC):
        return io.BufferedReader(gzip.GzipFile(fileobj=raw))
    if magic == ZSTD_MAGIC or (magic[1:] == ZSTD_SKIPPED and magic[0] >> 4 == 5):
        import pyarrow as pa

        return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))
    return raw


def _check_encoding(head: bytes, place: str) -> None:
    unpack = next((tool for mark, tool in ARCHIVES.items() if head.startswith(mark)), "")
    if unpack:
        fix = f"unpack it ({unpack}), or pack it with gzip or zstd"
        raise DataError("the file is packed in a form that is not read", reason="unreadable_file", path=place, fix=fix)
    found = next((name for mark, name in FOREIGN_MARKS if head.startswith(mark)), "")
    if not found and b"\x00" in head:
        found = "UTF-16 or binary"
    if found:
        fix = f"convert it: iconv -f {found} -t UTF-8" if found.startswith("UTF") and " " not in found else ""
        raise DataError(f"the file is {found}, not UTF-8", reason="not_utf8", path=place, fix=fix)


def _read_lines(
    stream: io.BufferedReader, path: Path, wanted: Wanted = every_record
) -> Iterator[tuple[int, JsonObject]]:
    number = 0
    try:
        for number, raw in enumerate(stream, 1):
            if raw.strip() and wanted(number):
                yield number, _parse_line(raw, number, path)
    except READ_ERRORS as error:
        if not _is_damage(error):
            raise
        raise _torn(path, number + 1) from None


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
    for number, value in enumerate(_whole(stream, path), 1):
        yield number, _object(value, number, path)


def _whole(stream: io.BufferedReader, path: Path) -> Any:
    try:
        return strict_loads(stream.read().decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"the file is not UTF-8 (byte {error.start})", reason="not_utf8", path=str(path)) from None
    except ValueError as error:
        raise DataError(f"the file is not JSON: {error}", reason="not_json", path=str(path)) from None


def _object(value: object, number: int, path: Path) -> JsonObject:
    if not isinstance(value, dict):
        problem = f"a record must be a JSON object, not {type(value).__name__}"
        raise DataError(problem, reason="not_object", path=str(path), line=number)
    return value
