"""The writer that asks a chat model. One request asks for a few versions of one tool.

Answers are kept by the hash of their request, so that a run that was killed goes on, and the same run again costs
nothing. An answer that cannot be used fails its versions; they are asked for again in the next attempt, with what
was wrong, and in the end are reported: no other writer steps in.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from itertools import groupby

from txagent_train.clients.chat import CHARACTERS_PER_TOKEN, ChatClient, ChatError, ChatReply, ChatRequest, Price, Usage
from txagent_train.clients.recording import Recorded, ReplyStore
from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject, ToolSpec
from txagent_train.toolsmith.drafts import Job, NoDraft, Written
from txagent_train.toolsmith.literals import Literals
from txagent_train.toolsmith.replies import read_reply
from txagent_train.toolsmith.synonyms import argument_description, properties

VERSIONS_PER_REQUEST = 5
FAILURES_AT_START = 3
"""So many requests in a row that a server fails, before it has answered any, end the run."""
_SYSTEM = (
    "You rewrite the descriptions of tools that an AI agent can call. A version must mean exactly what the original "
    "means, so that a reader of it would make the same calls; its wording should differ from the original and from "
    "the other versions as much as that allows. Rules: the name is a new identifier in snake_case of at most 64 "
    "characters, and still says what the tool is about: each telling word of the original name, or a synonym of it. "
    "The description keeps every fact, limit, unit and example of the original, and what tells the tool from similar "
    "ones. Each argument gets a new name (an identifier, not that of another argument of the tool) and a new "
    "description; those listed under keep_argument_names keep their names. Types, allowed values, defaults and what is "
    "required are not yours to change: a value that the original text names is named to the letter. Never mention the "
    "original names otherwise. Answer with one JSON object only: {\"versions\": [{\"version\": NUMBER, \"name\": TEXT, "
    "\"description\": TEXT, \"arguments\": {ORIGINAL NAME: {\"name\": TEXT, \"description\": TEXT}}}]}."
)  # fmt: skip
_STYLES = (
    "terse", "a full and formal sentence", "an instruction to the reader", "a question and its answer",
    "when to use it, then what it gives", "input first, then output", "output first, then input",
    "plain words for a beginner", "the words of a specialist", "the style of an API reference",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the first attempt will take, before anything is sent; ``recorded`` requests cost nothing."""

    requests: int
    recorded: int
    usage: Usage
    cost: float | None

    def to_json(self) -> JsonObject:
        return {"requests": self.requests, "recorded": self.recorded, **_usage_json(self.usage), "cost": self.cost}


class TeacherWriter:
    """Writes versions with a chat model.

    Args:
        connect: opens the client, once for each call of ``write``.
        store: the answers, open.
        price: what the model costs; None where it is not known.
        seed: another seed asks for other answers.
    """

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[ChatClient]],
        store: ReplyStore,
        *,
        model: str,
        price: Price | None = None,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        self._connect, self._store = connect, store
        self._model, self._price = model, price
        self._temperature, self._seed = temperature, seed
        self._kept: dict[str, list[str]] = {}
        self._usage = Usage()
        self._sent = self._reused = self._failed_at_start = 0
        self._answered = False

    def settings(self) -> JsonObject:
        """See Writer.settings."""
        return {"name": "teacher", "model": self._model, "temperature": self._temperature, "seed": self._seed}

    def estimate(self, jobs: Sequence[Job]) -> Estimate:
        """What writing the jobs will take, if each is right at once. Tokens are reckoned from characters."""
        requests = [(self._request(batch), batch) for batch in _batches(jobs)]
        new = [(request, batch) for request, batch in requests if request not in self._store]
        prompt = sum(request.estimated_prompt_tokens for request, _ in new)
        usage = Usage(prompt, sum(_answer_tokens(batch) for _, batch in new))
        return Estimate(len(requests), len(requests) - len(new), usage, self._cost(usage))

    def spent(self) -> JsonObject:
        """What was sent so far, and what the server says it took."""
        spent = {"requests": self._sent, "recorded": self._reused, **_usage_json(self._usage)}
        return spent | {"cost": self._cost(self._usage)}

    def _cost(self, usage: Usage) -> float | None:
        return None if self._price is None else self._price.cost(usage)

    def write(self, jobs: Sequence[Job], done: Callable[[int], None]) -> list[Written]:
        """See Writer.write."""
        return asyncio.run(self._write(list(_batches(jobs)), done))

    async def _write(self, batches: Sequence[Sequence[Job]], done: Callable[[int], None]) -> list[Written]:
        async with self._connect() as client:
            recorded = Recorded(client, self._store)
            written: list[list[Written]] = []
            tasks: list[asyncio.Task[list[Written]]] = []
            try:
                # One after the other until the server has answered once: else all would wait, or pay, for nothing.
                while len(written) < len(batches) and not self._answered:
                    written.append(await self._batch(recorded, batches[len(written)], done))
                tasks = [asyncio.create_task(self._batch(recorded, batch, done)) for batch in batches[len(written) :]]
                written += await asyncio.gather(*tasks)
            finally:
                # After an error for all of them (a wrong key) the others must not go on asking.
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._usage += recorded.usage
                self._sent += recorded.sent
                self._reused += recorded.reused
        return [item for batch in written for item in batch]

    async def _batch(self, client: Recorded, batch: Sequence[Job], done: Callable[[int], None]) -> list[Written]:
        request = self._request(batch)
        is_recorded = request in self._store
        try:
            reply = await client.complete(request)
        except ChatError as error:
            self._check_start(error)
            return [NoDraft(error.reason, str(error), final=error.permanent)] * len(batch)
        finally:
            done(len(batch))
        self._answered = self._answered or not is_recorded
        return _drafts(reply, batch)

    def _check_start(self, error: ChatError) -> None:
        """Stop where the server has never answered: after a few requests, or at once where nothing is there."""
        self._failed_at_start += not self._answered
        if not self._answered and (error.reason == "unreachable" or self._failed_at_start >= FAILURES_AT_START):
            times = f" ({self._failed_at_start} times in a row)" if self._failed_at_start > 1 else ""
            fix = "check its address and what it says; what was answered before is kept"
            raise UserError(f"the teacher does not answer{times}: {error}", fix=fix) from None

    def _request(self, batch: Sequence[Job]) -> ChatRequest:
        spec = batch[0].spec
        wanted = [{"version": job.version, "style": _STYLES[job.version % len(_STYLES)]} for job in batch]
        asked: JsonObject = {"tool": _shown(spec), "versions": wanted}
        kept = self._kept.get(spec.name) or self._kept.setdefault(spec.name, sorted(Literals.of(spec).kept))
        if kept:
            asked["keep_argument_names"] = kept
        refused = sorted({reason for job in batch for reason in job.rejected})
        if refused:
            asked["earlier_answers_were_refused_for"] = refused
        messages = (
            {"role": "system", "content": _SYSTEM},
            {"role": "user", "content": json.dumps(asked, ensure_ascii=False)},
        )
        return ChatRequest(
            self._model,
            messages,
            temperature=self._temperature,
            # Twice what is expected, so that only an answer that runs wild is cut.
            max_tokens=1024 + 2 * _answer_tokens(batch),
            seed=self._seed * 1000 + batch[0].attempt,
            json_object=True,
        )


def _batches(jobs: Sequence[Job]) -> Iterable[Sequence[Job]]:
    """The jobs in their order, those of one tool and attempt together, a few at a time."""
    for _, group in groupby(jobs, key=lambda job: (job.spec.name, job.attempt)):
        together = list(group)
        for start in range(0, len(together), VERSIONS_PER_REQUEST):
            yield together[start : start + VERSIONS_PER_REQUEST]


def _shown(spec: ToolSpec) -> JsonObject:
    """The tool as the teacher sees it: each argument with its schema, and whether a call must give it."""
    required = spec.parameters.get("required")
    needed = required if isinstance(required, list) else []
    arguments = {
        name: {
            "description": argument_description(schema),
            "required": name in needed,
            "schema": {key: value for key, value in schema.items() if key != "description"}
            if isinstance(schema, dict)
            else schema,
        }
        for name, schema in properties(spec).items()
    }
    return {"name": spec.name, "description": spec.description, "arguments": arguments}


def _answer_tokens(batch: Sequence[Job]) -> int:
    """About how many tokens the answer has: as much for each version as the texts of the tool itself take."""
    spec = batch[0].spec
    texts = {name: {"name": name, "description": argument_description(item)} for name, item in properties(spec).items()}
    written = json.dumps({"version": 1, "name": spec.name, "description": spec.description, "arguments": texts})
    return round(len(batch) * len(written) / CHARACTERS_PER_TOKEN)


def _drafts(reply: ChatReply, batch: Sequence[Job]) -> list[Written]:
    versions = read_reply(reply.text, [job.version for job in batch])
    if isinstance(versions, NoDraft):
        return [NoDraft("reply_cut" if reply.cut else versions.reason, versions.found)] * len(batch)
    return [versions.get(job.version, NoDraft("version_missing")) for job in batch]


def _usage_json(usage: Usage) -> JsonObject:
    return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
