"""Answers kept in a file, so that a run goes on where it was killed, and can be repeated without the server."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from txagent_train.clients.chat import ChatClient, ChatError, ChatReply, ChatRequest, Usage
from txagent_train.core.errors import DataError, EnvironmentFailure, UserError
from txagent_train.core.records import JsonObject
from txagent_train.data.writing import REFUSALS, check_place

_log = logging.getLogger(__name__)
_BEGINNING = b'{"key": "'
"""Of every line of the file."""


class ReplyStore:
    """A JSON Lines file of answers by the hash of their request. Use as ``with``; it is locked meanwhile.

    An answer is on disk before anyone uses it. Unlike other files this one grows in place: it must outlive a kill at
    any moment. A last line that a kill cut short is taken off again, and its request is sent anew.

    Raises:
        DataError: the file holds something else.
        UserError: nothing can be written at this path, or another process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._replies: dict[str, ChatReply] = {}
        self._file: BinaryIO | None = None
        self._is_new = False

    def __enter__(self) -> ReplyStore:
        check_place(self.path)
        self._is_new = not self.path.exists()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
            self._lock()
            self._file.seek(0)
            self._file.truncate(self._load(self._file.read()))
        except OSError as error:
            self._close()
            if error.errno in REFUSALS:
                raise UserError(f"cannot be written: {error.strerror}", where=str(self.path)) from None
            raise EnvironmentFailure(f"{self.path} cannot be used: {error.strerror or error}") from error
        except BaseException:
            self._close()
            raise
        return self

    def _lock(self) -> None:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held it may have taken the file away, with nothing in it.
            same = self.path.exists() and os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))
        except BlockingIOError:
            same = False
        except OSError as error:
            _log.warning("%s: this file system has no locks (%s); let no second run use it", self.path, error.strerror)
            return
        if not same:
            problem, fix = "another process is using these recorded answers", "wait for it, or name another file"
            raise UserError(problem, where=str(self.path), fix=fix)

    def _load(self, content: bytes) -> int:
        """Take in the records; returns where the last whole line ends."""
        whole = content.rfind(b"\n") + 1
        torn = content[whole:]
        lines = content[:whole].splitlines()
        # A torn line is ours only if it begins as ours do: the end of another file must not be cut off.
        if torn and not (torn.startswith(_BEGINNING) or _BEGINNING.startswith(torn)):
            lines.append(torn)
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                self._replies[record["key"]] = _reply_from_json(record["reply"])
            except (ValueError, KeyError, TypeError, RecursionError):
                problem, fix = "this is no file of recorded answers", "name another file"
                raise DataError(problem, path=str(self.path), line=number, fix=fix) from None
        return whole

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_new and not self._replies:
            self.path.unlink(missing_ok=True)  # nothing was answered, so nothing is left behind
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __contains__(self, request: ChatRequest) -> bool:
        return request.key in self._replies

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, request: ChatRequest) -> ChatReply | None:
        """The recorded answer, or None."""
        return self._replies.get(request.key)

    def add(self, request: ChatRequest, reply: ChatReply) -> None:
        """Keep an answer. Raises EnvironmentFailure where the machine refuses."""
        assert self._file is not None, "used outside `with`"
        record = {"key": request.key, "request": request.to_json(), "reply": _reply_to_json(reply)}
        try:
            self._file.write(json.dumps(record).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise EnvironmentFailure(f"{self.path} could not be written: {error.strerror or error}") from error
        self._replies[request.key] = reply


class Recorded:
    """A client that keeps every answer in a store, and asks only what the store has not.

    ``usage`` is what the requests of this run took, ``sent`` how many there were, ``reused`` how many were answered
    from the store.
    """

    def __init__(self, client: ChatClient, store: ReplyStore) -> None:
        self._client, self._store = client, store
        self.usage = Usage()
        self.sent = self.reused = 0

    async def complete(self, request: ChatRequest) -> ChatReply:
        """See ChatClient.complete."""
        kept = self._store.get(request)
        if kept is not None:
            self.reused += 1
            return kept
        self.sent += 1
        reply = await self._client.complete(request)
        self.usage += reply.usage
        self._store.add(request, reply)
        return reply


class Replayed:
    """A client that answers from a store alone."""

    def __init__(self, store: ReplyStore) -> None:
        self._store = store

    async def complete(self, request: ChatRequest) -> ChatReply:
        """The recorded answer. Raises ChatError (reason ``not_recorded``) where there is none."""
        kept = self._store.get(request)
        if kept is None:
            raise ChatError("not_recorded", f"{self._store.path} has no answer to this request to {request.model}")
        return kept


def _reply_to_json(reply: ChatReply) -> JsonObject:
    usage = {"prompt_tokens": reply.usage.prompt_tokens, "completion_tokens": reply.usage.completion_tokens}
    return {"text": reply.text, "usage": usage, "cut": reply.cut}


def _reply_from_json(value: JsonObject) -> ChatReply:
    if not isinstance(value["text"], str):
        raise TypeError("the text of an answer must be text")
    return ChatReply(value["text"], Usage(**value["usage"]), value["cut"])
