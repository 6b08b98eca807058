"""What a wire format is: a frame (whose control tokens delimit messages) and a call syntax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from txagent_train.core.errors import ModelError
from txagent_train.core.records import FINISH, TOOL_RAG, Step, ToolSpec, Turn
from txagent_train.rendering.tokenizer import TextTokenizer

FrameName = Literal["llama3", "chatml"]
SyntaxName = Literal["txagent", "hermes"]
FinishStyle = Literal["call", "text"]
ToolDelivery = Literal["prompt", "result"]

TOOL_CALLS_MARKER = "[TOOL_CALLS]"
FINAL_ANSWER_MARKER = "[FinalAnswer]"
PYTHON_TAG = "<|python_tag|>"
SYNTAX_MARKERS = (
    TOOL_CALLS_MARKER,
    FINAL_ANSWER_MARKER,
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
    PYTHON_TAG,
)
"""The words of both syntaxes, and Llama-3.1's own. All of them are kept out of foreign text whichever syntax is used,
because the parser reads them all."""

FINISH_TOOL = ToolSpec(
    name=FINISH,
    description="Indicate the end of multi-step reasoning.",
    parameters={"type": "object", "properties": {}},
)


@dataclass(frozen=True, slots=True)
class Frame:
    """How messages are delimited. ``{role}`` is filled in; between control tokens there is plain text only.

    A message is ``open + role + after_role + content + close + after_close``.
    """

    begin: str
    open: str
    role_close: str
    """Control token after the role, or "" where the role ends in plain text."""
    after_role: str
    close: str
    """Control token that ends a message: the token at which the model stops."""
    after_close: str
    pad_candidates: tuple[str, ...]
    """Tokens that may serve as padding, the first one present is taken. Never the stop token: a model that is
    trained with pad = stop never stops."""

    @property
    def control_tokens(self) -> tuple[str, ...]:
        return tuple(token for token in (self.begin, self.open, self.role_close, self.close) if token)


FRAMES: dict[FrameName, Frame] = {
    "llama3": Frame(
        begin="<|begin_of_text|>",
        open="<|start_header_id|>",
        role_close="<|end_header_id|>",
        after_role="\n\n",
        close="<|eot_id|>",
        after_close="",
        pad_candidates=("<|finetune_right_pad_id|>", "<|reserved_special_token_0|>"),
    ),
    "chatml": Frame(
        begin="",
        open="<|im_start|>",
        role_close="",
        after_role="\n",
        close="<|im_end|>",
        after_close="\n",
        pad_candidates=("<|endoftext|>",),
    ),
}


@dataclass(frozen=True, slots=True)
class WireFormat:
    """A wire format.

    ``finish`` is how the answer is given: ``call`` is the paper's ``[FinalAnswer]`` followed by a Finish call,
    ``text`` is a last message without a call. ``tool_delivery`` is where the tools stand that a step brought into view:
    in the list at the head of later prompts (``prompt``, as TxAgent has it), or in the result of the call that found
    them (``result``: the list never changes, so each prompt begins with the one before; rendering.messages). No format
    adds tokens to the vocabulary.
    """

    frame: FrameName
    syntax: SyntaxName
    finish: FinishStyle
    tool_delivery: ToolDelivery = "prompt"

    @property
    def tool_role(self) -> str:
        """The role under which tool results stand: the one that the frame's base models know."""
        if self.frame == "llama3":
            return "ipython"
        return "tool" if self.syntax == "txagent" else "user"

    def listed_tools(self, tools: Sequence[ToolSpec], turns: Sequence[Turn]) -> tuple[ToolSpec, ...]:
        """Those of the tools that a step sees which stand in the list at the head of its prompt.

        Args:
            turns: what was before the step. The ``tools_added`` of a step in it are the tools that it brought into
                view, and no others (data.decompose).
        """
        if self.tool_delivery == "prompt":
            return tuple(tools)
        added = {spec.name for turn in turns if isinstance(turn, Step) for spec in turn.tools_added}
        return tuple(spec for spec in tools if spec.name not in added)

    def arrange_tools(self, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
        """The list as the prompt shows it: special tools at the place where the original agents have them.

        TxAgent: Finish, Tool_RAG, others. ATHENA (hermes syntax): Tool_RAG, others, Finish. Where no tool is given
        there is no Finish either: it is plain chat.
        """
        if not tools:
            return ()
        rag = tuple(tool for tool in tools if tool.name == TOOL_RAG)
        others = tuple(tool for tool in tools if tool.name not in (TOOL_RAG, FINISH))
        finish = (FINISH_TOOL,) if self.finish == "call" else ()
        return (*finish, *rag, *others) if self.syntax == "txagent" else (*rag, *others, *finish)


def wire_format_for(
    tokenizer: TextTokenizer,
    *,
    frame: Literal["auto", "llama3", "chatml"] = "auto",
    syntax: SyntaxName,
    finish: FinishStyle,
    tool_delivery: ToolDelivery = "prompt",
) -> WireFormat:
    """The wire format for a tokenizer; ``frame: auto`` takes the frame whose control tokens it has.

    Raises:
        ModelError: the tokenizer lacks a control token of the frame, or fits no frame.
    """
    vocabulary = tokenizer.get_vocab()
    if frame == "auto":
        fitting = [name for name, item in FRAMES.items() if all(token in vocabulary for token in item.control_tokens)]
        if not fitting:
            raise ModelError(
                f"the tokenizer of {tokenizer.name_or_path} fits no known frame ({', '.join(FRAMES)})",
                where="wire.frame",
                fix="use a Llama-3 or a ChatML (Qwen, SmolLM2) model",
            )
        return WireFormat(fitting[0], syntax, finish, tool_delivery)
    missing = [token for token in FRAMES[frame].control_tokens if token not in vocabulary]
    if missing:
        raise ModelError(
            f"the tokenizer of {tokenizer.name_or_path} lacks {', '.join(missing)}, which frame {frame} needs",
            where="wire.frame",
            fix="set wire.frame to auto",
        )
    return WireFormat(frame, syntax, finish, tool_delivery)
