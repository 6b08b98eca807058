from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.chat_server import Answer, ChatServer, Script, chat_server
from txagent_train.clients.chat import Price
from txagent_train.clients.endpoint import Endpoint
from txagent_train.clients.recording import ReplyStore
from txagent_train.core.errors import UserError
from txagent_train.core.records import ToolSpec
from txagent_train.data.rewrites import ArgumentRewrite, RewriteSet
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.drafts import Draft, Job, NoDraft
from txagent_train.toolsmith.embedding import TfidfEmbedder
from txagent_train.toolsmith.rewriting import RewritePlan, Rewriting, jobs_of, rewrite_toolbox
from txagent_train.toolsmith.rules import RuleWriter
from txagent_train.toolsmith.teacher import TeacherWriter

KEY = "sk-very-secret-key"
SOON = {"retry-after-ms": "1"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


class Model:
    """A teacher that knows the rules by heart: its answers are those of the rule writer, as JSON."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._rules, self._toolbox = RuleWriter(toolbox, seed=9), toolbox
        self.asked: Counter[str] = Counter()

    def __call__(self, body: dict[str, Any], number: int) -> Answer:
        asked = json.loads(body["messages"][-1]["content"])
        spec = self._toolbox.by_name[asked["tool"]["name"]]
        self.asked[spec.name] += 1
        drafts = {
            item["version"]: self._rules.draft(Job(spec, item["version"], body["seed"] % 1000))
            for item in asked["versions"]
        }
        return Answer(json.dumps({"versions": [shown(version, draft) for version, draft in drafts.items()]}))


def asked_tool(body: dict[str, Any]) -> str:
    return json.loads(body["messages"][-1]["content"])["tool"]["name"]


def shown(version: int, draft: Draft) -> dict[str, Any]:
    arguments = {old: {"name": new.name, "description": new.description} for old, new in draft.arguments.items()}
    return {"version": version, "name": draft.name, "description": draft.description, "arguments": arguments}


def teacher(server: ChatServer, store: ReplyStore, **options: Any) -> TeacherWriter:
    return TeacherWriter(lambda: Endpoint(server.url, retries=2, timeout_s=1.0), store, model="m", **options)


def run(toolbox: Toolbox, script: Script, path: Path) -> tuple[Rewriting, ChatServer, dict[str, Any]]:
    with chat_server(script) as server, ReplyStore(path) as store:
        writer = teacher(server, store)
        plan = RewritePlan(n=7, attempts=6)
        done = rewrite_toolbox(toolbox, writer, TfidfEmbedder(toolbox.tools), plan)
        return done, server, writer.spent()


def test_every_tool_is_rewritten_and_a_second_run_asks_nothing(toolbox: Toolbox, tmp_path: Path) -> None:
    model = Model(toolbox)
    done, server, spent = run(toolbox, model, tmp_path / "r.jsonl")
    assert not done.failures and done.to_json()["versions"] == 8 * 7
    assert set(model.asked) == {tool.name for tool in toolbox.tools[:8]}
    assert spent["requests"] == len(server.bodies) >= 16
    assert (spent["prompt_tokens"], spent["completion_tokens"]) == (100 * len(server.bodies), 10 * len(server.bodies))
    again, server, spent = run(toolbox, model, tmp_path / "r.jsonl")
    assert again.rewrites == done.rewrites
    assert not server.bodies and spent["requests"] == 0 and spent["recorded"] >= 16


def test_a_server_that_misbehaves_costs_time_and_not_versions(toolbox: Toolbox, tmp_path: Path) -> None:
    model = Model(toolbox)

    def script(body: dict[str, Any], number: int) -> Answer:
        answers = {
            0: Answer(status=429, headers=SOON),
            1: Answer(status=500, headers=SOON),
            2: Answer("I would rather not."),
            3: Answer(body="{ broken"),
            4: Answer("late", delay_s=1.3),
            5: Answer('{"versions": [{"version": 1', finish_reason="length"),
        }
        return answers.get(number) or model(body, number)

    done, _, _ = run(toolbox, script, tmp_path / "r.jsonl")
    assert not done.failures and done.to_json()["versions"] == 8 * 7
    assert done.refused["unreadable_reply"] >= 2 and done.refused["malformed_response"] >= 2
    assert done.refused["reply_cut"] >= 2


def test_versions_that_cannot_be_had_are_reported_and_not_made_up(toolbox: Toolbox, tmp_path: Path) -> None:
    model = Model(toolbox)

    def script(body: dict[str, Any], number: int) -> Answer:
        refuses = asked_tool(body) == "get_storage_by_drug_name"
        return Answer("I cannot.") if refuses else model(body, number)

    done, server, _ = run(toolbox, script, tmp_path / "r.jsonl")
    assert {(failure.tool, failure.problems[0][0]) for failure in done.failures} == {
        ("get_storage_by_drug_name", "unreadable_reply")
    }
    assert len(done.failures) == 7 and "get_storage_by_drug_name" not in done.rewrites.by_tool
    assert not [body for body in server.bodies if "unreadable_reply" in body["messages"][-1]["content"]]


def test_a_run_that_was_stopped_goes_on(toolbox: Toolbox, tmp_path: Path) -> None:
    model = Model(toolbox)

    def stops(body: dict[str, Any], number: int) -> Answer:
        return Answer(status=401) if number >= 6 else model(body, number)

    with pytest.raises(UserError, match="refuses the key"):
        run(toolbox, stops, tmp_path / "r.jsonl")
    with ReplyStore(tmp_path / "r.jsonl") as store:
        kept = len(store)
    assert kept >= 1
    done, _, spent = run(toolbox, model, tmp_path / "r.jsonl")
    assert not done.failures and spent["recorded"] == kept


def test_a_server_that_is_not_there_ends_the_run_at_once(toolbox: Toolbox, tmp_path: Path) -> None:
    with ReplyStore(tmp_path / "r.jsonl") as store:
        writer = TeacherWriter(lambda: Endpoint("http://127.0.0.1:9/v1", retries=0), store, model="m")
        with pytest.raises(UserError, match="does not answer"):
            writer.write(jobs_of(toolbox, 1), lambda n: None)


@pytest.mark.parametrize(("status", "most"), [(400, 3), (418, 3), (500, 9)])
def test_a_server_that_never_answers_ends_the_run_early(
    toolbox: Toolbox, tmp_path: Path, status: int, most: int
) -> None:
    def script(body: dict[str, Any], number: int) -> Answer:
        return Answer("no such parameter", status=status, headers=SOON)

    with (
        chat_server(script) as server,
        ReplyStore(tmp_path / "r.jsonl") as store,
        pytest.raises(UserError, match=r"3 times in a row.*no such parameter"),
    ):
        rewrite_toolbox(toolbox, teacher(server, store), TfidfEmbedder(toolbox.tools), RewritePlan(n=20))
    assert len(server.bodies) == most
    assert not (tmp_path / "r.jsonl").exists()


def test_a_server_that_fails_later_fails_its_versions_alone(toolbox: Toolbox, tmp_path: Path) -> None:
    model = Model(toolbox)

    def script(body: dict[str, Any], number: int) -> Answer:
        return model(body, number) if number < 3 else Answer(status=500, headers=SOON)

    done, _, _ = run(toolbox, script, tmp_path / "r.jsonl")
    # Which requests are answered is up to the threads, and with it how many of their versions pass.
    assert done.to_json()["failed"]["server_error"] > 0 and done.to_json()["versions"] > 0


def test_what_the_server_refuses_is_asked_once(toolbox: Toolbox, tmp_path: Path) -> None:
    model = Model(toolbox)

    def script(body: dict[str, Any], number: int) -> Answer:
        refuses = asked_tool(body) == "get_storage_by_drug_name"
        return Answer("not that", status=400) if refuses else model(body, number)

    done, server, _ = run(toolbox, script, tmp_path / "r.jsonl")
    asked = [body for body in server.bodies if asked_tool(body) == "get_storage_by_drug_name"]
    assert len(asked) == 2 and done.refused["refused_request"] == 7  # seven versions, five in a request
    assert not [body for body in server.bodies if "not that" in body["messages"][-1]["content"]]


def test_only_what_the_checks_say_goes_into_the_next_prompt(toolbox: Toolbox, tmp_path: Path) -> None:
    model = Model(toolbox)

    def script(body: dict[str, Any], number: int) -> Answer:
        asked = json.loads(body["messages"][-1]["content"])
        if asked_tool(body) == "get_storage_by_drug_name" and "earlier_answers_were_refused_for" not in asked:
            versions = [shown(item["version"], BAD) for item in asked["versions"]]
            return Answer(json.dumps({"versions": versions}))
        return Answer("half \ud83d", status=500, headers=SOON) if number in range(5, 9) else model(body, number)

    _, server, _ = run(toolbox, script, tmp_path / "r.jsonl")
    told = [
        json.loads(body["messages"][-1]["content"]).get("earlier_answers_were_refused_for") for body in server.bodies
    ]
    assert ["name_lost_words: storage, drug"] in told
    assert not [reasons for reasons in told if "server_error" in str(reasons)]


BAD = Draft("get_pages", "Storage information of a drug.", {"drug_name": ArgumentRewrite("x", "The name of the drug.")})


def test_the_teacher_sees_what_a_call_must_give(tmp_path: Path) -> None:
    properties = {
        "kind": {"type": "string", "description": "By which.", "enum": ["by_name", "by_id"], "default": "by_name"},
        "by_name": {"type": "string", "description": "Where kind is by_name."},
        "any": True,
    }
    spec = ToolSpec("get_it", "Get it.", {"type": "object", "properties": properties, "required": ["kind"]})
    seen = []

    def script(body: dict[str, Any], number: int) -> Answer:
        seen.append(json.loads(body["messages"][-1]["content"]))
        return Answer("{}")

    with chat_server(script) as server, ReplyStore(tmp_path / "r.jsonl") as store:
        teacher(server, store).write([Job(spec, 1)], lambda n: None)
    assert seen[0]["tool"]["arguments"] == {
        "kind": {
            "description": "By which.",
            "required": True,
            "schema": {"type": "string", "enum": ["by_name", "by_id"], "default": "by_name"},
        },
        "by_name": {"description": "Where kind is by_name.", "required": False, "schema": {"type": "string"}},
        "any": {"description": "", "required": False, "schema": True},
    }
    assert seen[0]["keep_argument_names"] == ["by_name"]


RUBBISH: list[dict[str, Any]] = [
    {"description": "half \ud83d"},
    {"version": "9" * 5000},
    {"arguments": [{"original": ["drug_name"], "name": "a", "description": "b"}]},
    {"name": "nul\x00"},
    {"description": "\x1b[31m"},
]


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_rubbish_costs_an_attempt_and_never_the_run(toolbox: Toolbox, tmp_path: Path, rubbish: dict[str, Any]) -> None:
    model = Model(toolbox)

    def script(body: dict[str, Any], number: int) -> Answer:
        answer = model(body, number)
        if number % 2:
            versions = [item | rubbish for item in json.loads(answer.text)["versions"]]
            answer = Answer(json.dumps({"versions": versions}))
        return answer

    for _ in range(2):  # the second time from what was kept
        done, _, _ = run(toolbox, script, tmp_path / "r.jsonl")
        done.rewrites.write(tmp_path / "rewrites.jsonl", overwrite=True)
        assert RewriteSet.read(tmp_path / "rewrites.jsonl") == done.rewrites


def test_the_cost_is_estimated_before_and_measured_after(toolbox: Toolbox, tmp_path: Path) -> None:
    jobs = jobs_of(toolbox, 7)
    with chat_server(Model(toolbox)) as server, ReplyStore(tmp_path / "r.jsonl") as store:
        writer = teacher(server, store, price=Price(1.0, 2.0))
        before = writer.estimate(jobs)
        assert not server.bodies and (before.requests, before.recorded) == (16, 0)
        assert before.cost == pytest.approx((before.usage.prompt_tokens + 2 * before.usage.completion_tokens) / 1e6)
        assert before.cost is not None and before.cost > 0
        written = writer.write(jobs, lambda n: None)
        assert all(isinstance(draft, Draft) for draft in written)
        assert writer.spent()["cost"] == pytest.approx((16 * 100 + 2 * 16 * 10) / 1e6)
        after = writer.estimate(jobs)
        assert (after.recorded, after.cost) == (16, 0)
        sent = sum(len(json.dumps(body["messages"])) for body in server.bodies)
        assert before.usage.prompt_tokens == pytest.approx(sent / 4, rel=0.05)


def test_a_failed_request_fails_its_versions_alone(toolbox: Toolbox, tmp_path: Path) -> None:
    jobs = jobs_of(toolbox, 5)
    model = Model(toolbox)

    def script(body: dict[str, Any], number: int) -> Answer:
        return (
            Answer(status=400)
            if "get_drug_names_by_storage" in body["messages"][-1]["content"]
            else model(body, number)
        )

    with chat_server(script) as server, ReplyStore(tmp_path / "r.jsonl") as store:
        written = teacher(server, store).write(jobs, lambda n: None)
    for job, draft in zip(jobs, written, strict=True):
        assert isinstance(draft, NoDraft) == (job.spec.name == "get_drug_names_by_storage")
        assert not isinstance(draft, NoDraft) or draft.reason == "refused_request"


def test_the_key_is_in_no_file(toolbox: Toolbox, tmp_path: Path) -> None:
    done, server, _ = run(toolbox, Model(toolbox), tmp_path / "r.jsonl")
    assert server.keys[0] == f"Bearer {KEY}"
    done.rewrites.write(tmp_path / "rewrites.jsonl")
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.iterdir())
