"""Traces with TxAgent's proportions, at lengths scaled to a small model, and a tokenizer that fits them.

In a decoder of hidden size h, attention costs about L / 13h of what the linear layers of a block cost at length L
(Llama-3: 13 h^2 weights a block, causal attention 2 L h of 26 h^2 FLOPs a token). So a model of hidden size h on traces
of h/4096 times the length divides its time between the two as the 8B does on the real ones. The vocabulary is scaled
so that the head has its share of the parameters too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from txagent_train.core.codec import trace_to_json
from txagent_train.core.records import FINISH, TOOL_RAG, Step, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.rendering.messages import json_text, tool_message
from txagent_train.rendering.wire import FINAL_ANSWER_MARKER, TOOL_CALLS_MARKER

HIDDEN_8B = 4096
HEAD_SHARE = 0.075
"""Parameters of the 8B's head over those of its blocks."""
CONTROLS = (
    "<|begin_of_text|>",
    "<|finetune_right_pad_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
_ROLES = ("system", "user", "assistant", "ipython")
_SYLLABLES = (
    "ab",
    "cor",
    "den",
    "fil",
    "gly",
    "hex",
    "ib",
    "lan",
    "mab",
    "nol",
    "oxi",
    "pra",
    "quin",
    "sta",
    "tol",
    "vas",
)


@dataclass(frozen=True, slots=True)
class Proportions:
    """Tokens of the parts of a trace, by the 8B's tokenizer.

    Known: ``system`` is TxAgent's own prompt, ``spec`` the mean of ToolUniverse 0.1.4's 214 tools as they are rendered,
    ``returned`` TxAgent's ``step_rag_num``. Assumed, since its traces are not published: ``tools`` shown at the start
    (by the paper those used, those retrieved, and random ones), ``question``, ``output`` (a thought and a call),
    ``result`` (a section of a drug label, or the summary of a longer one) and ``answer`` (with the last thought).
    """

    system: int = 45
    tools: int = 24
    spec: int = 122
    returned: int = 10
    question: int = 100
    output: int = 180
    result: int = 600
    answer: int = 400


def random_words(rng: random.Random, count: int) -> str:
    return " ".join("".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3))) for _ in range(count))


class TraceMaker:
    """Makes traces whose parts have the wanted numbers of tokens, times ``scale``."""

    def __init__(self, tokenizer: Tokenizer, proportions: Proportions, scale: float, *, seed: int = 0) -> None:
        self._tokenizer = tokenizer
        self._parts = proportions
        self._scale = scale
        self._rng = random.Random(seed)
        self._made = 0

    def trace(self, samples: int, rag_calls: int, name: str) -> Trace:
        """A trace of ``samples`` steps, of which the first ones search for tools ``rag_calls`` times.

        Two searches are in one step where there is no room for two steps of them: a step may call in parallel.
        """
        parts, calling = self._parts, samples - 1
        tools = [self._spec() for _ in range(parts.tools)]
        properties = {"description": {"type": "string"}, "limit": {"type": "integer"}}
        rag = ToolSpec(TOOL_RAG, self._words(20), {"type": "object", "properties": properties})
        searching = {min(number * max(1, calling // 2), calling - 1) for number in range(rag_calls)}
        turns: list[UserMessage | Step] = [UserMessage(self._words(parts.question))]
        for index in range(calling):
            if index in searching:
                step = self._search(rag_calls // len(searching))
                tools.extend(step.tools_added)
            else:
                step = self._use(self._rng.choice(tools[-parts.returned :]))
            turns.append(step)
        turns.append(Step(thought=self._words(parts.answer / 3)))
        first = (rag, *tools[: parts.tools])
        return Trace(
            id=name,
            turns=tuple(turns),
            system=self._words(parts.system),
            initial_tools=first,
            answer=self._words(parts.answer / 2),
        )

    def write(self, path: Path, count: int, samples: int, rag_calls: int) -> None:
        """Write ``count`` traces as JSONL."""
        traces = (self.trace(samples, rag_calls, f"{path.stem}-{number}") for number in range(count))
        path.write_text("".join(json.dumps(trace_to_json(trace)) + "\n" for trace in traces))

    def _search(self, times: int) -> Step:
        calls, results, added = [], [], []
        for index in range(times):
            found = [self._spec() for _ in range(self._parts.returned)]
            calls.append(ToolCall(TOOL_RAG, {"description": self._words(30), "limit": 10}))
            results.append(ToolResult(index, [tool.name for tool in found]))
            added.extend(found)
        thought = self._filled(self._parts.output, *(_call_text(call) for call in calls))
        return Step(thought=thought, calls=tuple(calls), results=tuple(results), tools_added=tuple(added))

    def _use(self, tool: ToolSpec) -> Step:
        call = ToolCall(tool.name, {"drug": self._words(5), "field": self._words(5)})
        # The ids stand in the call and in the result.
        wrapper = json_text({"content": {"results": ""}, "call_id": _call_id(self._rng)}, ascii_only=True)
        result = self._filled(self._parts.result, wrapper, _call_id(self._rng))
        return Step(
            thought=self._filled(self._parts.output, _call_text(call)),
            calls=(call,),
            results=(ToolResult(0, {"results": result}),),
        )

    def _spec(self) -> ToolSpec:
        self._made += 1
        empty = ToolSpec(f"get_{random_words(self._rng, 1)}{self._made}", "", _parameters("drug", "field"))
        description = self._filled(self._parts.spec, json_text(tool_message(empty)["function"], ascii_only=False))
        return ToolSpec(empty.name, description, empty.parameters)

    def _filled(self, tokens: float, *others: str) -> str:
        """Words that make up ``tokens`` together with other texts, as far as these leave room."""
        return self._words(tokens - sum(map(self._count, others)) / self._scale)

    def _words(self, tokens: float) -> str:
        """Text of about ``tokens`` times scale tokens, and of one word at least."""
        wanted = max(1, round(tokens * self._scale))
        text = random_words(self._rng, 1)
        while (missing := wanted - self._count(text)) > 0:
            text = f"{text} {random_words(self._rng, -(-missing // 2))}"
        words = text.split()
        while len(words) > 1 and self._count(" ".join(words)) > wanted:
            words.pop()
        return " ".join(words)

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _parameters(*names: str) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names)}


def vocabulary_size(hidden: int, layers: int) -> int:
    """So many ids that the head has its share of the parameters."""
    return max(700, round(HEAD_SHARE * layers * 13 * hidden))


def small_tokenizer(vocabulary: int) -> Tokenizer:
    """A byte-level tokenizer with Llama-3's control tokens, learnt from such traces.

    It does not split at words first, so that the scaffolding of JSON, which repeats, becomes few tokens: else it would
    be several times longer beside the scaled-down texts than it is in reality.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(CONTROLS), initial_alphabet=alphabet, max_token_length=80, show_progress=False
    )
    tokenizer.train_from_iterator(_scaffolding(random.Random(0)), trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    return tokenizer


def _call_id(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghXYZ0123456789", k=9))


def _call_text(call: ToolCall, **more: str) -> str:
    value = {"name": call.name, "arguments": call.arguments, **more}
    return f"{TOOL_CALLS_MARKER}[{json_text(value, ascii_only=True)}]"


def _scaffolding(rng: random.Random) -> Iterator[str]:
    for number in range(150):
        yield from _ROLES
        spec = ToolSpec(f"get_{random_words(rng, 1)}{number}", random_words(rng, 4), _parameters("drug", "field"))
        yield json_text(tool_message(spec)["function"], ascii_only=False) + "\n"
        identifier = _call_id(rng)
        for arguments in ({"drug": random_words(rng, 1), "field": random_words(rng, 1)}, {}):
            for more in ({"call_id": identifier}, {}):
                yield f"{random_words(rng, 8)}{_call_text(ToolCall(spec.name, arguments), **more)}"
        yield f"\n\n{FINAL_ANSWER_MARKER} {random_words(rng, 8)}{_call_text(ToolCall(FINISH, {}))}"
        yield _call_text(ToolCall(TOOL_RAG, {"description": random_words(rng, 2), "limit": 10}), call_id=identifier)
        yield json_text({"content": {"results": random_words(rng, 30)}, "call_id": identifier}, ascii_only=True)
