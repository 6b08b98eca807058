"""The one renderer, for training and inference: records -> token ids, with the loss mask by construction.

A conversation becomes pieces: control tokens, and between them plain text. Each text is tokenised on its own, and
only once (later steps of a trace repeat it). Cutting at control tokens is exact for byte-level tokenizers, since
they split at added tokens before anything else; it is checked when the renderer is made. So

    prompt ids   = ids of the chat template with add_generation_prompt=True
    training ids = prompt ids + ids of the output + stop token

whatever merges would happen across the border of the last header and the output: at inference that border is a cut
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from txagent_train.core.errors import ModelError
from txagent_train.core.records import RenderedExample, Step, StepExample, ToolSpec, Turn
from txagent_train.rendering.controls import Neutraliser, tokenizer_controls, well_formed
from txagent_train.rendering.messages import Message, to_messages, tool_message, turn_messages
from txagent_train.rendering.parse import ParsedOutput, parse_output
from txagent_train.rendering.syntax import Cleaner, assistant_text, system_text, target_text, tool_turns
from txagent_train.rendering.template import chat_template
from txagent_train.rendering.tokenizer import SavableTokenizer, TextTokenizer
from txagent_train.rendering.wire import FRAMES, SYNTAX_MARKERS, WireFormat

_CACHED_IDS = 2_000_000
"""Ids that are kept of texts seen before: some 80 MB. A number of texts would not bound the memory."""
_PROBES = ("a", " a ", "\n\n", "Tool.[{", "  x\n", "é", "1")


@dataclass(slots=True)
class _Memo:
    """The ids of the trace that is being rendered: of its head and its turns, each with what it is the ids of."""

    trace_id: str
    head: tuple[list[int], int] | None = None
    head_of: tuple[str | None, tuple[ToolSpec, ...]] = (None, ())
    turns: dict[int, tuple[Turn, int, list[int], int]] = field(default_factory=dict)

    def knows_head(self, system: str | None, tools: tuple[ToolSpec, ...]) -> bool:
        """Whether the head is of these. Tools are the same objects: equal ones may read otherwise (key order, 1 and
        true)."""
        known_system, known = self.head_of
        same = len(known) == len(tools) and all(one is other for one, other in zip(known, tools, strict=True))
        return self.head is not None and known_system == system and same


class Renderer:
    """Renders for one tokenizer and wire format.

    The tokenizer is configured on the way: its chat template, its stop token (as eos) and its padding token are
    set, so that saving it saves what was trained with.

    Args:
        seed: seeds the call ids.

    Raises:
        ModelError: the tokenizer does not cut at the control tokens of the frame, or has no token to pad with.
    """

    def __init__(self, tokenizer: TextTokenizer, wire: WireFormat, *, seed: int = 0) -> None:
        self.tokenizer = tokenizer
        self.wire = wire
        self.seed = seed
        self.frame = FRAMES[wire.frame]
        controls = tokenizer_controls(tokenizer)
        self._foreign = Neutraliser.of([*controls, *SYNTAX_MARKERS])
        self._system = Neutraliser.of(controls)
        self._control_ids = self._checked_control_ids()
        self._cache: dict[str, list[int]] = {}
        self._cached_ids = 0
        self._memo = _Memo("")
        self.chat_template = chat_template(wire, self._foreign, self._system)
        self.stop_token_id = self._control_ids[self.frame.close]
        self.pad_token_id = self._configure_tokenizer()

    # ---- inference and training ----

    def prompt_ids(
        self, *, trace_id: str, system: str | None, tools: Sequence[ToolSpec], turns: Sequence[Turn]
    ) -> list[int]:
        """The ids of the prompt of the next step: everything so far, and the header of the assistant.

        Args:
            tools: all that the step sees, those that earlier steps brought into view included.
            turns: what was before; each step's ``tools_added`` are the tools that it brought into view, and no others.
        """
        ids, _ = self._prompt(trace_id, system, tools, turns)
        return ids

    def render(self, example: StepExample) -> RenderedExample:
        """The training sample of one step: prompt, output, stop token; the last two are trained on.

        Raises:
            DataError: the wire format has no words for the step (syntax.target_text).
        """
        trace = example.trace
        cleaner = self._cleaner()
        text = target_text(example, self.wire, cleaner)
        prompt, broken = self._prompt(trace.id, trace.system, example.tools, example.history)
        output = [*self._text_ids(text), self.stop_token_id]
        return RenderedExample(
            id=example.id,
            step_index=example.step_index,
            input_ids=(*prompt, *output),
            loss_mask=(False,) * len(prompt) + (True,) * len(output),
            weight=example.weight,
            neutralised=broken + cleaner.broken,
            neutralised_in_target=cleaner.broken,
        )

    def messages(self, *, trace_id: str, system: str | None, turns: Sequence[Turn]) -> list[Message]:
        """The conversation as chat messages, for a server that applies the saved chat template."""
        return to_messages(
            wire=self.wire,
            seed=self.seed,
            trace_id=trace_id,
            system=system,
            turns=turns,
            escape=self._cleaner().json,
        )

    def template_tools(self, tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
        """The listed tools (wire.listed_tools) as they go beside ``messages``: special ones in place, OpenAI style."""
        return [tool_message(tool) for tool in self.wire.arrange_tools(tuple(tools))]

    def parse(self, output_ids: Sequence[int]) -> ParsedOutput:
        """Read what the model wrote. ``output_ids`` are the new ids, with or without the stop token."""
        ids = list(output_ids)
        if self.stop_token_id in ids:
            ids = ids[: ids.index(self.stop_token_id)]
        return parse_output(self.tokenizer.decode(ids, skip_special_tokens=False), self.wire)

    def text_ids(self, text: str) -> list[int]:
        """The ids of a piece of plain text that stands between control tokens."""
        return list(self._text_ids(text))

    def save(self, directory: Path) -> None:
        """Write tokenizer, chat template and generation config: all that a server needs to render the same."""
        from transformers import GenerationConfig

        assert isinstance(self.tokenizer, SavableTokenizer), "a model is saved with a tokenizer of transformers"
        directory.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save_pretrained(directory)
        GenerationConfig(
            do_sample=False,
            eos_token_id=[self.stop_token_id],
            pad_token_id=self.pad_token_id,
            bos_token_id=self._control_ids.get(self.frame.begin),
        ).save_pretrained(directory)

    # ---- pieces ----

    def _cleaner(self) -> Cleaner:
        return Cleaner(self._foreign, self._system)

    def _prompt(
        self, trace_id: str, system: str | None, tools: Sequence[ToolSpec], turns: Sequence[Turn]
    ) -> tuple[list[int], int]:
        """The prompt's ids, and how many control strings were broken in it.

        The ids of turns and of the list of tools are kept from step to step of a trace, so that a trace costs what is
        new in each step and not the square of its length.
        """
        if self._memo.trace_id != trace_id:
            self._memo = _Memo(trace_id)
        head, broken = self._head(system, self.wire.listed_tools(tools, turns))
        ids, steps = list(head), 0
        for position, turn in enumerate(turns):
            turn_ids, turn_broken = self._turn(position, turn, steps)
            ids.extend(turn_ids)
            broken += turn_broken
            steps += isinstance(turn, Step)
        ids.extend(self._header("assistant", ""))
        return ids, broken

    def _head(self, system: str | None, tools: tuple[ToolSpec, ...]) -> tuple[list[int], int]:
        """What stands before the first turn: the begin token, and the system message with the tools."""
        memo = self._memo
        if not memo.knows_head(system, tools):
            cleaner = self._cleaner()
            text = system_text(well_formed(system or ""), self.wire.arrange_tools(tools), self.wire, cleaner)
            ids = [self._control_ids[self.frame.begin]] if self.frame.begin else []
            if text:
                ids.extend(self._message("system", text))
            memo.head, memo.head_of = (ids, cleaner.broken), (system, tools)
        assert memo.head is not None
        return memo.head

    def _turn(self, position: int, turn: Turn, step: int) -> tuple[list[int], int]:
        """A turn as it stands in the history: of a step, its output and what came back."""
        known = self._memo.turns.get(position)
        if known is None or known[0] is not turn or known[1] != step:
            cleaner = self._cleaner()
            messages = list(
                turn_messages(
                    turn,
                    step,
                    wire=self.wire,
                    seed=self.seed,
                    trace_id=self._memo.trace_id,
                    escape=cleaner.json,
                )
            )
            contents = self._contents(messages, cleaner)
            ids = [token for role, content in contents for token in self._message(role, content)]
            known = self._memo.turns[position] = (turn, step, ids, cleaner.broken)
        return known[2], known[3]

    def _message(self, role: str, content: str) -> list[int]:
        return [*self._header(role, content), self.stop_token_id, *self._text_ids(self.frame.after_close)]

    def _header(self, role: str, content: str) -> list[int]:
        frame = self.frame
        ids = [self._control_ids[frame.open]]
        if not frame.role_close:
            return [*ids, *self._text_ids(f"{role}{frame.after_role}{content}")]
        return [
            *ids,
            *self._text_ids(role),
            self._control_ids[frame.role_close],
            *self._text_ids(f"{frame.after_role}{content}"),
        ]

    def _contents(self, messages: Sequence[Message], cleaner: Cleaner) -> Iterator[tuple[str, str]]:
        """Role and text of the messages of one turn; its results may share one message."""
        results = [message for message in messages if message["role"] == "tool"]
        for message in messages:
            if message["role"] == "user":
                yield "user", cleaner.text(message["content"].strip())
            elif message["role"] == "assistant":
                yield "assistant", assistant_text(message, self.wire, cleaner)
        if results:
            for text in tool_turns(results, self.wire, cleaner):
                yield self.wire.tool_role, text

    def _text_ids(self, text: str) -> list[int]:
        if not text:
            return []
        ids = self._cache.get(text)
        if ids is None:
            ids = self.tokenizer.encode(text, add_special_tokens=False)
            assert not self._frame_ids.intersection(ids), f"a control token came out of plain text: {text!r}"
            if self._cached_ids + len(ids) > _CACHED_IDS:
                self._cache.clear()
                self._cached_ids = 0
            self._cache[text] = ids
            self._cached_ids += len(ids)
        return ids

    # ---- the tokenizer ----

    def _checked_control_ids(self) -> dict[str, int]:
        def encode(text: str) -> list[int]:
            return list(self.tokenizer.encode(text, add_special_tokens=False))

        ids: dict[str, int] = {}
        for token in self.frame.control_tokens:
            encoded = encode(token)
            if len(encoded) != 1:
                raise ModelError(f"the tokenizer splits the control token {token}", where="wire.frame")
            ids[token] = encoded[0]
            for before in _PROBES:
                for after in _PROBES:
                    if encode(f"{before}{token}{after}") != [*encode(before), *encoded, *encode(after)]:
                        raise ModelError(
                            f"the tokenizer does not cut exactly at {token} (between {before!r} and {after!r}), so "
                            "training and inference would see different tokens",
                            where="wire.frame",
                            fix="use a byte-level tokenizer whose special tokens do not strip white space",
                        )
        self._frame_ids = frozenset(ids.values())
        return ids

    def _configure_tokenizer(self) -> int:
        vocabulary = self.tokenizer.get_vocab()
        pad = next((token for token in self.frame.pad_candidates if token in vocabulary), None)
        if pad is None:
            raise ModelError(
                f"the tokenizer has none of {', '.join(self.frame.pad_candidates)} to pad with",
                where="wire.frame",
                fix="add one of these tokens to the tokenizer, or use another model",
            )
        self.tokenizer.chat_template = self.chat_template
        self.tokenizer.eos_token = self.frame.close
        self.tokenizer.pad_token = pad
        return int(vocabulary[pad])
