from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.support.chat_server import Answer, ChatServer, Script, chat_server
from txagent_train.clients.chat import ChatError, ChatReply, ChatRequest, Price, Usage
from txagent_train.clients.endpoint import Endpoint
from txagent_train.core.errors import UserError

KEY = "sk-very-secret-key"
REQUEST = ChatRequest("m", ({"role": "user", "content": "hello"},), max_tokens=5, seed=3, json_object=True)
SOON = {"retry-after-ms": "1"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def ask(script: Script, *requests: ChatRequest, **options: Any) -> tuple[list[ChatReply | BaseException], ChatServer]:
    async def run(url: str) -> list[ChatReply | BaseException]:
        async with Endpoint(url, **options) as client:
            return await asyncio.gather(*(client.complete(item) for item in requests), return_exceptions=True)

    with chat_server(script) as server:
        return asyncio.run(run(server.url)), server


def test_a_request_goes_out_whole_and_its_answer_comes_back() -> None:
    [reply], server = ask(lambda body, number: Answer("hi"), REQUEST)
    assert reply == ChatReply("hi", Usage(100, 10))
    assert server.bodies == [REQUEST.to_json()]
    assert server.bodies[0]["response_format"] == {"type": "json_object"}
    assert server.keys == [f"Bearer {KEY}"]


def test_an_answer_that_the_token_limit_ended_is_marked() -> None:
    [reply], _ = ask(lambda body, number: Answer("hi", finish_reason="length"), REQUEST)
    assert isinstance(reply, ChatReply) and reply.cut


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_again(status: int) -> None:
    def script(body: dict[str, Any], number: int) -> Answer:
        return Answer("at last") if number == 2 else Answer(status=status, headers=SOON)

    [reply], server = ask(script, REQUEST, retries=2)
    assert isinstance(reply, ChatReply) and reply.text == "at last"
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (408, "server_error"), (409, "server_error"), (429, "rate_limited"), (500, "server_error"),
        (400, "refused_request"), (413, "refused_request"), (418, "refused_request"), (422, "refused_request"),
    ],
)  # fmt: skip
def test_what_does_not_pass_is_an_error_of_that_request(status: int, reason: str) -> None:
    [error], server = ask(lambda body, number: Answer(status=status, headers=SOON), REQUEST, retries=1)
    assert isinstance(error, ChatError) and error.reason == reason
    assert error.permanent == (reason == "refused_request")
    assert len(server.bodies) == (1 if error.permanent else 2)


@pytest.mark.parametrize(
    "usage", ['{"prompt_tokens": "many", "completion_tokens": true}', "7", "[]", '{"prompt_tokens": -1}']
)
def test_usage_that_is_none_is_counted_as_nothing(usage: str) -> None:
    body = f'{{"choices": [{{"message": {{"content": "hi"}}, "finish_reason": "stop"}}], "usage": {usage}}}'
    [reply], _ = ask(lambda request, number: Answer(body=body), REQUEST, retries=0)
    assert reply == ChatReply("hi", Usage())


def test_a_model_that_knows_the_limit_by_another_name_is_asked_so() -> None:
    def script(body: dict[str, Any], number: int) -> Answer:
        if "max_tokens" in body:
            return Answer("Unsupported parameter: use 'max_completion_tokens' instead.", status=400)
        return Answer(f"at most {body['max_completion_tokens']}")

    [reply], _ = ask(script, REQUEST)
    assert isinstance(reply, ChatReply) and reply.text == "at most 5"


def test_a_server_that_does_not_answer_is_a_timeout() -> None:
    [error], server = ask(lambda body, number: Answer("late", delay_s=1.0), REQUEST, timeout_s=0.1, retries=1)
    assert isinstance(error, ChatError) and error.reason == "timeout"
    assert len(server.bodies) == 2


def test_a_server_that_is_not_there_is_unreachable() -> None:
    async def run() -> None:
        async with Endpoint("http://127.0.0.1:9/v1", retries=0) as client:
            await client.complete(REQUEST)

    with pytest.raises(ChatError) as caught:
        asyncio.run(run())
    assert caught.value.reason == "unreachable"


@pytest.mark.parametrize(
    "body",
    [
        "{ not json", "[]", "{}", '{"choices": []}', '{"choices": [{"message": {"content": null}}]}', '"text"', "7", "",
        "null", '{"choices": null}', '{"choices": {"0": {"message": {"content": "x"}}}}', '{"choices": ["abc"]}',
        '{"choices": [{"message": {"content": [{"type": "text", "text": "x"}]}, "finish_reason": "stop"}]}',
        '{"choices": [{"message": "x", "finish_reason": "stop"}]}', '{"choices": [[]]}', "[" * 5000 + "]" * 5000,
        '{"a":' * 5000 + "1" + "}" * 5000, "9" * 5000, '{"error": 5}',
    ],
)  # fmt: skip
def test_a_malformed_answer_is_an_error_of_that_request(body: str) -> None:
    [error], _ = ask(lambda request, number: Answer(body=body), REQUEST, retries=0)
    assert isinstance(error, ChatError) and error.reason == "malformed_response"


def test_an_answer_that_is_no_json_at_all_is_malformed() -> None:
    page = Answer(body="<html>proxy</html>", headers={"Content-Type": "text/html"})
    [error], _ = ask(lambda request, number: page, REQUEST, retries=0)
    assert isinstance(error, ChatError) and error.reason == "malformed_response"


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_is_the_users_error_and_is_not_shown(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    [error], server = ask(lambda body, number: Answer(f"wrong key {KEY}", status=status), REQUEST)
    assert isinstance(error, UserError) and "OPENAI_API_KEY" in str(error)
    assert KEY not in str(error) and KEY not in caplog.text
    assert len(server.bodies) == 1


def test_an_unknown_model_is_the_users_error() -> None:
    [error], _ = ask(lambda body, number: Answer("no such model", status=404), REQUEST)
    assert isinstance(error, UserError) and "no such model" in str(error)


def test_no_more_requests_are_under_way_than_allowed() -> None:
    requests = [ChatRequest("m", ({"role": "user", "content": str(number)},)) for number in range(12)]
    replies, server = ask(lambda body, number: Answer("ok", delay_s=0.02), *requests, concurrency=3)
    assert all(isinstance(reply, ChatReply) for reply in replies)
    assert 1 < server.most_at_once <= 3


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(UserError, match="no address"):
        Endpoint("localhost:8000")


def test_usage_adds_up_and_has_a_price() -> None:
    assert Usage(1, 2) + Usage(3, 4) == Usage(4, 6)
    assert Price(2.0, 10.0).cost(Usage(1_000_000, 500_000)) == 7.0


def test_equal_requests_have_one_key_and_others_another() -> None:
    assert REQUEST.key == ChatRequest(**{name: getattr(REQUEST, name) for name in REQUEST.__slots__}).key
    assert len({REQUEST.key, ChatRequest("m", REQUEST.messages).key, ChatRequest("n", REQUEST.messages).key}) == 3
