"""Frozen evaluation sets: hashes of what was held out, so that no later stage trains on it unawares.

    heldout.frozen.json   {"version", "created_from", "hash", "keys": {"question": [...], "call": [...], ...}}

The file holds no text, so it can be handed on where the questions themselves may not be. ``hash`` is over the sorted
keys and is checked when the file is read.

What a match means differs by key. The same question, question id or trace id is the held-out item itself: training on
it makes the evaluation worthless, and that is an error. A shared call or entity is not. Looking up the dose of a common
drug is what many questions need; its result is public, and the agent may look it up again when it is evaluated. If
that were forbidden, every trace made later would have to avoid the drugs of the evaluation. So it is counted and
told. Where unseen drugs are what is evaluated, ``data split`` keeps entities and calls apart in the first place, and an
exclusion list (data.exclusion) keeps them out of what is made later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txagent_train.core.errors import DataError, UserError
from txagent_train.core.records import JsonObject, Trace, UserMessage
from txagent_train.data.importers import resolved_format
from txagent_train.data.keys import Key, TraceKeys, folded, subject_keys, trace_keys
from txagent_train.data.loading import load_traces
from txagent_train.data.reading import read_records, strict_loads
from txagent_train.data.writing import check_free
from txagent_train.tracking.files import atomic_write_json, content_sha256

FROZEN = "frozen_trace"
"""The reason of the error where a training trace is in a frozen evaluation set."""
QUESTIONS = "questions"
"""The format of a file of questions without traces: ``{"question", "id" | "question_id", "entities"}``."""
_VERSION = 2
"""Counted up when other texts count as the same than before: hashes cannot be folded anew."""
_KINDS = ("id", "question_id", "question", "entity", "call")
_WORDS = {"id": "its id", "question_id": "its question id", "question": "its question"}
_DAMAGED = "take it anew from where the evaluation set came from, or make it again: data split, or data freeze"


@dataclass(frozen=True, slots=True)
class FrozenSet:
    """A frozen evaluation set. ``keys`` are hashes by kind of key; ``created_from`` says what they were made of."""

    path: str
    keys: Mapping[str, frozenset[str]]
    created_from: JsonObject

    @classmethod
    def of(cls, traces: Iterable[TraceKeys], *, path: Path, created_from: JsonObject) -> FrozenSet:
        """The set of these traces, to be written to ``path``."""
        keys: dict[str, set[str]] = {kind: set() for kind in _KINDS}
        for trace in traces:
            for key in (*_id_keys(trace.id), *trace.all):
                keys[key[0]].add(_key_hash(key))
        return cls(str(path), {kind: frozenset(hashes) for kind, hashes in keys.items()}, created_from)

    def write(self) -> None:
        """Write the file. Raises EnvironmentFailure where the machine refuses."""
        keys = _sorted(self.keys)
        value = {"version": _VERSION, "created_from": self.created_from, "hash": _set_hash(keys), "keys": keys}
        atomic_write_json(Path(self.path), value)

    @classmethod
    def read(cls, path: Path) -> FrozenSet:
        """Read a file that ``write`` made.

        Raises:
            DataError: it cannot be read, is no such file, or was changed after it was made.
        """
        value = _load(path)
        try:
            version, keys = value["version"], value["keys"]
            if version != _VERSION:
                fix = "make it again with this version"
                problem = f"the frozen set has version {version!r}; this is version {_VERSION}"
                raise DataError(problem, reason="invalid_frozen_set", path=str(path), fix=fix)
            if set(keys) != set(_KINDS) or value["hash"] != _set_hash(_sorted(keys)):
                problem = "the frozen set was changed after it was made: its hash does not fit its keys"
                raise DataError(problem, reason="invalid_frozen_set", path=str(path), fix=_DAMAGED)
            return cls(str(path), {kind: frozenset(keys[kind]) for kind in _KINDS}, value["created_from"])
        except (KeyError, TypeError):
            problem = "this is no frozen evaluation set"
            fix = "name the .frozen.json file that data split or data freeze wrote, not the data itself"
            raise DataError(problem, reason="invalid_frozen_set", path=str(path), fix=fix) from None

    def contains(self, trace: Trace) -> str | None:
        """By what a trace is in the set ("its question"), or None. For every stage that must not see the set.

        Each message of the user is compared, since a conversation may come to a held-out question later on.
        """
        asked = (subject_keys(turn.content, "") for turn in trace.turns if isinstance(turn, UserMessage))
        own = trace_keys(trace).questions.union(*asked, _id_keys(trace.id))
        found = {key[0] for key in own if _key_hash(key) in self.keys[key[0]]}
        return next((words for kind, words in _WORDS.items() if kind in found), None)

    def shares_call(self, trace: Trace) -> bool:
        """Whether a call of the trace is one of the set's; see the module docstring for what that means."""
        return any(_key_hash(key) in self.keys["call"] for key in trace_keys(trace).calls)

    def check(self, trace: Trace) -> None:
        """Raise DataError (reason ``frozen_trace``) where a trace is in the set."""
        found = self.contains(trace)
        if found is not None:
            problem = f"the trace is in the frozen evaluation set {self.path}, by {found}"
            fix = (
                "take it out of the training data, or hold out data anew with data split; a trace that only happens "
                "to have the same id needs another one"
            )
            raise DataError(problem, reason=FROZEN, trace_id=trace.id, fix=fix)


def freeze(path: Path, out: Path, *, format: str, overwrite: bool = False) -> FrozenSet:
    """Freeze an evaluation set that was made elsewhere: a file of traces, or of questions (format ``questions``).

    Incomplete traces and ones with invalid calls are frozen too. A record that cannot be read is an error: what is
    not in the set is not kept out of training.

    Raises:
        DataError: the file cannot be read, or has a bad record.
        UserError: ``out`` exists already, or there is no such format.
        EnvironmentFailure: the machine refused to write.
    """
    check_free(out, overwrite=overwrite)
    keys = list(_question_keys(path) if format == QUESTIONS else _trace_keys(path, _trace_format(path, format)))
    created_from = {"file": path.name, "sha256": content_sha256(path), "traces": len(keys)}
    frozen = FrozenSet.of(keys, path=out, created_from=created_from)
    frozen.write()
    return frozen


def _id_keys(trace_id: str) -> frozenset[Key]:
    """The key of an id, which is spelled as freely as a question's; none of an empty one."""
    return frozenset([("id", folded(trace_id))] if folded(trace_id) else [])


def _trace_keys(path: Path, format: str) -> Iterator[TraceKeys]:
    traces = load_traces(path, format, invalid_calls="keep", incomplete="steps")
    return (trace_keys(trace) for trace in traces)


def _trace_format(path: Path, format: str) -> str:
    """The format of a file of traces; where there is none such, or it cannot be told, that of questions is offered."""
    try:
        return resolved_format(path, format)
    except DataError as error:
        if error.reason != "unknown_format":
            raise
        fix = f"{error.fix}, {QUESTIONS} (one question a record)"
        raise DataError(error.problem, reason=error.reason, path=error.path, fix=fix) from None
    except UserError as error:
        raise UserError(error.problem, where=error.where, fix=f"{error.fix}, {QUESTIONS}") from None


def _question_keys(path: Path) -> Iterator[TraceKeys]:
    for line, record in read_records(path):
        try:
            yield _keys_of_question(record)
        except DataError as error:
            raise error.at(path=str(path), line=line) from None


def _keys_of_question(record: JsonObject) -> TraceKeys:
    question, entities = record.get("question"), record.get("entities") or []
    if not isinstance(question, str) or not folded(question):
        fix = "name the format of the file with --format if it holds traces"
        raise DataError("the record has no question", reason="missing_key", fix=fix)
    if not isinstance(entities, list) or not all(isinstance(entity, str) for entity in entities):
        raise DataError("entities must be a list of texts", reason="wrong_type")
    own = str(record.get("id") or "")
    question_id = str(record.get("question_id") or own)
    return TraceKeys(own, subject_keys(question, question_id, tuple(entities)), frozenset())


def _key_hash(key: Key) -> str:
    return hashlib.sha256(json.dumps(key).encode()).hexdigest()


def _sorted(keys: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    return {kind: sorted(keys[kind]) for kind in _KINDS}


def _set_hash(keys: Mapping[str, Sequence[str]]) -> str:
    return hashlib.sha256(json.dumps(keys).encode()).hexdigest()


def _load(path: Path) -> JsonObject:
    try:
        value = strict_loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"the frozen set cannot be read: {error.strerror or error}"
        raise DataError(problem, reason="unreadable_file", path=str(path)) from None
    except ValueError as error:
        problem = f"this is no frozen evaluation set: {error}"
        fix = "name the .frozen.json file that data split or data freeze wrote, not the data itself"
        raise DataError(problem, reason="invalid_frozen_set", path=str(path), fix=fix) from None
    return value if isinstance(value, dict) else {}
