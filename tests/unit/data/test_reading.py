from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from txagent_train.core.errors import DataError
from txagent_train.data.importers import resolved_format
from txagent_train.data.reading import read_jsonl, read_records
from txagent_train.data.strict_json import strict_loads

TWO = b'{"a": 1}\n{"a": "\xc3\xa9"}\n'
RECORDS = [{"a": 1}, {"a": "é"}]


def _file(folder: Path, content: bytes, name: str = "x.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    out: bytes = sink.getvalue().to_pybytes()
    return out


EMPTY_FRAME = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"


@pytest.mark.parametrize(
    "content",
    [
        TWO,
        TWO.rstrip(b"\n"),
        TWO.replace(b"\n", b"\r\n"),
        codecs.BOM_UTF8 + TWO,
        gzip.compress(TWO),
        gzip.compress(codecs.BOM_UTF8 + TWO),
        _zstd(TWO),
        _zstd(codecs.BOM_UTF8 + TWO),
        _zstd(TWO[:5]) + _zstd(TWO[5:]),
        EMPTY_FRAME + _zstd(TWO[:9]) + EMPTY_FRAME + _zstd(TWO[9:]),
    ],
    ids=[
        *("plain", "no last line end", "crlf", "bom", "gzip without .gz", "gzip and bom"),
        *("zstd", "zstd and bom", "zstd in two frames", "zstd of a parallel compressor"),
    ],
)
def test_reads_the_same_records_in_every_dress(tmp_path: Path, content: bytes) -> None:
    assert list(read_jsonl(_file(tmp_path, content))) == list(enumerate(RECORDS, 1))


def test_blank_lines_are_skipped_and_still_counted(tmp_path: Path) -> None:
    path = _file(tmp_path, b'\n  \n{"a": 1}\n\n{"a": 2}\n\n')
    assert [line for line, _ in read_jsonl(path)] == [3, 5]


def test_line_separators_of_unicode_do_not_end_a_line(tmp_path: Path) -> None:
    path = _file(tmp_path, '{"a": "x\u2028y\x85z"}\n'.encode())
    assert list(read_jsonl(path)) == [(1, {"a": "x\u2028y\x85z"})]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32"])
def test_other_encodings_are_named(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(DataError, match=r"x\.jsonl: the file is UTF-.*not UTF-8") as caught:
        list(read_jsonl(_file(tmp_path, TWO.decode().encode(encoding))))
    assert caught.value.reason == "not_utf8"


def test_a_byte_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.jsonl:2: the line is not UTF-8 \(byte 7 is 0xe9\)"):
        list(read_jsonl(_file(tmp_path, '{"a": 1}\n{"a": "é"}\n'.encode("latin-1"))))


@pytest.mark.parametrize("cut", range(1, len('{"a": "é"}'.encode())))
def test_a_torn_last_line_is_an_error_wherever_it_is_cut(tmp_path: Path, cut: int) -> None:
    path = _file(tmp_path, b'{"a": 1}\n' + '{"a": "é"}'.encode()[:cut])
    with pytest.raises(DataError, match=r"x\.jsonl:2: the last line stops in the middle") as caught:
        list(read_jsonl(path))
    assert caught.value.reason == "torn_line"


@pytest.mark.parametrize("compress", [gzip.compress, _zstd], ids=["gzip", "zstd"])
def test_a_torn_or_damaged_compressed_file_is_an_error(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    first, second = (compress(b"".join(b'{"a": %d}\n' % n for n in range(size))) for size in (5000, 40))
    whole = first + second
    for cut in (len(first) // 2, len(first) - 1, len(first) + 6, len(whole) - 1):
        with pytest.raises(DataError, match=r"x\.jsonl[:\d]*: the compressed file stops in the middle") as caught:
            list(read_records(_file(tmp_path, whole[:cut])))
        assert caught.value.reason == "torn_file"
    middle = len(first) // 2
    with pytest.raises(DataError):
        list(read_records(_file(tmp_path, whole[:middle] + bytes(8) + whole[middle + 8 :])))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' occurs twice"),
        ("{'a': 1}", "column 2"),
        ('{"a": 1} {"a": 2}', "Extra data"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
    ],
)
def test_what_is_not_strict_json_is_an_error(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        list(read_jsonl(_file(tmp_path, b'{"a": 1}\n' + line.encode() + b"\n")))
    assert (caught.value.reason, caught.value.line) == ("not_json", 2)


@pytest.mark.parametrize("line", ["1", "null", '"text"', "[1]"])
def test_a_line_that_is_no_object_is_an_error(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match=r"x\.jsonl:1: a record must be a JSON object"):
        list(read_jsonl(_file(tmp_path, line.encode())))


def test_absent_files_and_folders_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(read_jsonl(tmp_path / "none.jsonl"))
    with pytest.raises(DataError, match="this is a folder"):
        list(read_jsonl(tmp_path))


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_list_is_read_as_records(tmp_path: Path, indent: int | None) -> None:
    content = b"\n " + json.dumps(RECORDS, indent=indent).encode()
    assert list(read_records(_file(tmp_path, content, "x.json"))) == list(enumerate(RECORDS, 1))
    assert list(read_records(_file(tmp_path, TWO, "y.json"))) == list(enumerate(RECORDS, 1))


def test_faults_of_a_json_list_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the file is not JSON"):
        list(read_records(_file(tmp_path, b'[{"a": 1}')))
    with pytest.raises(DataError, match=r":2: a record must be a JSON object, not int"):
        list(read_records(_file(tmp_path, b'[{"a": 1}, 2]')))


def test_an_indented_object_is_told_from_json_lines(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one JSON object a line"):
        list(read_records(_file(tmp_path, json.dumps({"a": 1}, indent=2).encode(), "x.json")))


def test_strict_loads_keeps_key_order_and_number_types() -> None:
    assert list(strict_loads('{"b": 1, "a": 1.0}').items()) == [("b", 1), ("a", 1.0)]
    assert type(strict_loads('{"a": 1.0}')["a"]) is float


def test_a_pipe_is_refused_before_it_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # opening it would wait for a writer
    for read in (read_jsonl, read_records):
        with pytest.raises(DataError, match=r"a pipe can be read once\n.*write it to a file"):
            next(iter(read(pipe)))
    with pytest.raises(DataError, match="a pipe can be read once"):
        resolved_format(pipe, "auto")


@pytest.mark.parametrize(("pack", "tool"), [(lzma.compress, "xz -d"), (bz2.compress, "bzip2 -d")])
def test_other_packed_files_are_named(tmp_path: Path, pack: Callable[[bytes], bytes], tool: str) -> None:
    with pytest.raises(DataError, match=tool):
        next(read_records(_file(tmp_path, pack(TWO))))
