"""An OpenAI-compatible server (OpenAI, vLLM, llama.cpp, a proxy) as a chat client."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeGuard

from txagent_train.clients.chat import ChatError, ChatReply, ChatRequest, Usage
from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

KEY_VARIABLE = "OPENAI_API_KEY"
_DETAIL_LIMIT = 300
_MAY_PASS = (408, 409)
"""Refusals (a timeout, a conflict) that another try may not meet."""
_NOT_AN_ANSWER = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What the library raises on a body that is no JSON, is nested too deeply, or has another form than its own."""


class Endpoint:
    """Sends requests to ``base_url`` (up to and with ``/v1``), at most ``concurrency`` at once. Use as ``async with``.

    Rate limits, server errors, timeouts and lost connections are tried again, up to ``retries`` times, each time
    after a longer wait, or after the wait that the server asks for. The key is read from the environment and goes
    into the request's header only: never into a file, a log line or an error.

    Args:
        timeout_s: seconds that one try may take.
        key_variable: the environment variable that holds the key; a server that wants none needs none.
    """

    def __init__(
        self,
        base_url: str,
        *,
        concurrency: int = 8,
        retries: int = 5,
        timeout_s: float = 120.0,
        key_variable: str = KEY_VARIABLE,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            fix = "write it up to and with /v1, for example http://localhost:8000/v1"
            raise UserError(f"{base_url!r} is no address of a server", fix=fix)
        self._base_url = base_url
        self._key_variable = key_variable
        self._key = os.environ.get(key_variable, "")
        self._retries = retries
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        self._client: AsyncOpenAI | None = None

    async def __aenter__(self) -> Endpoint:
        from openai import AsyncOpenAI

        # The library refuses an empty key, while servers of one's own want none.
        self._client = AsyncOpenAI(
            base_url=self._base_url,
            api_key=self._key or "none",
            max_retries=self._retries,
            timeout=self._timeout_s,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()

    async def complete(self, request: ChatRequest) -> ChatReply:
        """See ChatClient.complete."""
        import openai

        async with self._slots:
            try:
                completion = await self._send(request.to_json())
            except openai.APITimeoutError:
                raise ChatError("timeout", f"no answer within {self._timeout_s:g} s") from None
            except openai.APIConnectionError as error:
                raise ChatError("unreachable", self._safe(error.__cause__ or error)) from None
            except openai.APIStatusError as error:
                raise self._refusal(error, request.model) from None
            except (openai.OpenAIError, *_NOT_AN_ANSWER) as error:
                raise ChatError("malformed_response", self._safe(error)) from None
        return self._reply(completion)

    async def _send(self, body: JsonObject) -> Any:
        import openai

        assert self._client is not None, "used outside `async with`"
        try:
            return await self._client.chat.completions.create(**body)
        except openai.BadRequestError as error:
            # Newer models of OpenAI know the limit by another name only, which other servers do not know.
            if "max_tokens" not in body or "max_completion_tokens" not in str(error):
                raise
            limit = {"max_completion_tokens": body["max_tokens"]}
            return await self._send({key: value for key, value in body.items() if key != "max_tokens"} | limit)

    def _reply(self, completion: Any) -> ChatReply:
        # The library builds its objects without looking at what the server sent.
        try:
            choice = completion.choices[0]
            text, cut = choice.message.content, choice.finish_reason == "length"
        except (AttributeError, LookupError, TypeError):
            raise ChatError("malformed_response", "the server's answer holds no message") from None
        if not isinstance(text, str):
            raise ChatError("malformed_response", "the server's answer holds no text")
        usage = getattr(completion, "usage", None)
        counts = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
        return ChatReply(text, Usage(*(count if _is_count(count) else 0 for count in counts)), cut)

    def _refusal(self, error: APIStatusError, model: str) -> ChatError | UserError:
        status, detail = error.status_code, self._safe(error)
        if status in (401, 403):
            fix = f"put a valid key into the environment variable {self._key_variable}"
            return UserError(f"the server refuses the key: {detail}", where=self._base_url, fix=fix)
        if status == 404:
            fix = f"check the address (it ends in /v1) and whether the server has the model {model}"
            return UserError(f"the server knows no such address or model: {detail}", where=self._base_url, fix=fix)
        if status == 429:
            return ChatError("rate_limited", detail)
        passes = status >= 500 or status in _MAY_PASS
        return ChatError("server_error" if passes else "refused_request", f"{status}: {detail}")

    def _safe(self, error: BaseException) -> str:
        """The error's text, short, and without the key: some servers repeat it."""
        text = str(error) or type(error).__name__
        return (text.replace(self._key, "***") if self._key else text)[:_DETAIL_LIMIT]


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
