"""What a chat-completion client is asked and what it answers, whatever stands behind it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Protocol

from txagent_train.core.errors import TxAgentTrainError
from txagent_train.core.records import JsonObject

CHARACTERS_PER_TOKEN = 4.0
"""English and JSON in the usual tokenizers, for estimates made before anything is sent."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that requests took, as the server counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in one currency for a million tokens."""

    prompt: float
    completion: float

    def cost(self, usage: Usage) -> float:
        """The cost of that usage, in the same currency."""
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / 1e6


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One question to a chat model. Equal requests may share a recorded answer; another ``seed`` asks anew.

    ``messages`` are objects with ``role`` and ``content``. ``max_tokens`` bounds the answer. ``json_object`` asks
    the server for JSON only, which not every server obeys.
    """

    model: str
    messages: tuple[JsonObject, ...]
    temperature: float = 1.0
    max_tokens: int = 2048
    seed: int = 0
    json_object: bool = False

    def to_json(self) -> JsonObject:
        """The body of the request, as it goes over the wire."""
        body: JsonObject = {
            "model": self.model,
            "messages": list(self.messages),
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
        }
        return body | ({"response_format": {"type": "json_object"}} if self.json_object else {})

    @property
    def key(self) -> str:
        """SHA-256 of the body. The server's address is not in it: a model that moves keeps its answers."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    @property
    def estimated_prompt_tokens(self) -> int:
        """About how many tokens the messages have."""
        return round(len(json.dumps(self.messages, ensure_ascii=False)) / CHARACTERS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The text of the answer, and what it took. ``cut`` says that ``max_tokens`` ended it."""

    text: str
    usage: Usage
    cut: bool = False


class ChatError(TxAgentTrainError):
    """A request that got no answer, after all retries. The next request may well get one.

    ``reason`` is a short, stable identifier by which such failures are counted: ``timeout``, ``unreachable``,
    ``rate_limited``, ``server_error``, ``refused_request``, ``malformed_response``, ``not_recorded``.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(f"{reason.replace('_', ' ')}: {detail}")

    @property
    def permanent(self) -> bool:
        """Whether the server refuses what was asked, so that asking again is of no use."""
        return self.reason == "refused_request"


class ChatClient(Protocol):
    """Answers chat requests; many may be under way at once."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            ChatError: this request got no answer.
            UserError: no request will get one (the key, the address or the model is wrong).
        """
        ...
