from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from txagent_train.clients.chat import ChatError, ChatReply, ChatRequest, Usage
from txagent_train.clients.recording import Recorded, Replayed, ReplyStore
from txagent_train.core.errors import DataError, UserError


def request(text: str) -> ChatRequest:
    return ChatRequest("m", ({"role": "user", "content": text},))


class Echo:
    """Answers with the question, and fails where it says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def complete(self, request: ChatRequest) -> ChatReply:
        text = request.messages[0]["content"]
        self.asked.append(text)
        if text == "fail":
            raise ChatError("timeout", "no answer")
        return ChatReply(text.upper(), Usage(3, 1))


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    path, echo = tmp_path / "deep" / "replies.jsonl", Echo()
    with ReplyStore(path) as store:
        client = Recorded(echo, store)
        assert asyncio.run(client.complete(request("a"))).text == "A"
        assert (client.sent, client.reused, client.usage) == (1, 0, Usage(3, 1))
    with ReplyStore(path) as store:
        client = Recorded(echo, store)
        assert asyncio.run(client.complete(request("a"))) == ChatReply("A", Usage(3, 1))
        asyncio.run(client.complete(request("b")))
        assert (client.sent, client.reused, client.usage) == (1, 1, Usage(3, 1))
    assert echo.asked == ["a", "b"]


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    echo = Echo()
    with ReplyStore(tmp_path / "r.jsonl") as store:
        for _ in range(2):
            with pytest.raises(ChatError):
                asyncio.run(Recorded(echo, store).complete(request("fail")))
        assert len(store) == 0
    assert echo.asked == ["fail", "fail"]


def test_replay_answers_from_the_file_alone(tmp_path: Path) -> None:
    with ReplyStore(tmp_path / "r.jsonl") as store:
        store.add(request("a"), ChatReply("A\n\ud800", Usage(1, 2), cut=True))
    with ReplyStore(tmp_path / "r.jsonl") as store:
        assert asyncio.run(Replayed(store).complete(request("a"))) == ChatReply("A\n\ud800", Usage(1, 2), cut=True)
        with pytest.raises(ChatError) as caught:
            asyncio.run(Replayed(store).complete(request("b")))
    assert caught.value.reason == "not_recorded"


@pytest.mark.parametrize("left", [1, 10, 40])
def test_a_line_that_a_kill_cut_short_is_asked_for_again(tmp_path: Path, left: int) -> None:
    path = tmp_path / "r.jsonl"
    with ReplyStore(path) as store:
        store.add(request("a"), ChatReply("A", Usage()))
        first = path.stat().st_size
        store.add(request("b"), ChatReply("B", Usage()))
    whole = path.read_bytes()
    path.write_bytes(whole[: first + left])
    with ReplyStore(path) as store:
        assert request("a") in store and request("b") not in store
        store.add(request("b"), ChatReply("B", Usage()))
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "content",
    [
        "notes", "notes\nmore", '{"a": 1}\n', '{"key": "x", "reply": {}}\n', "[" * 9999 + "\n",
        '{"key": "x", "reply": {"text": 7, "usage": {}, "cut": false}}\n',
    ],
)  # fmt: skip
def test_another_file_is_refused_and_left_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(DataError, match="no file of recorded answers"), ReplyStore(path):
        pass
    assert path.read_text() == content


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError), ReplyStore(tmp_path / "file" / "r.jsonl"):
        pass


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"), ReplyStore(tmp_path):
        pass


def test_no_file_is_left_where_nothing_was_answered(tmp_path: Path) -> None:
    path, mine = tmp_path / "r.jsonl", tmp_path / "mine.jsonl"
    mine.touch()
    for file in (path, mine):
        with ReplyStore(file) as store:
            assert len(store) == 0 and file.exists()
    assert not path.exists() and mine.exists()


_OTHER = """
import sys
from pathlib import Path
from txagent_train.clients.recording import ReplyStore
with ReplyStore(Path(sys.argv[1])):
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with ReplyStore(path) as store:
        store.add(request("a"), ChatReply("A", Usage()))
    words = [sys.executable, "-c", _OTHER, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin and other.stdout and other.stdout.readline() == "open\n"
        with pytest.raises(UserError, match="another process"), ReplyStore(path):
            pass
        other.stdin.close()
    assert other.returncode == 0
    with ReplyStore(path) as store:
        assert request("a") in store
    with ReplyStore(path), pytest.raises(UserError, match="another process"), ReplyStore(path):
        pass
