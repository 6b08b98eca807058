"""Words of wire formats in the text of messages, as recordings of models' raw output hold them.

They are known here by their spelling alone: what they mean when a model writes them is for rendering.parse.
"""

from __future__ import annotations

import re

from txagent_train.core.errors import DataError
from txagent_train.core.records import FINISH
from txagent_train.data.strict_json import strict_loads

FINAL_ANSWER = "[FinalAnswer]"
CALL_MARKERS = ("[TOOL_CALLS]", "<tool_call>")
"""What begins a call in text, in the formats of TxAgent and of Qwen and Hermes."""
THINK_TAGS = ("<think>", "</think>")
_THINK = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
_FINISH_TEXT = re.compile(
    r"\s*(?:\[TOOL_CALLS\]\s*(?P<list>\[.*\]|\{.*\})|<tool_call>(?P<block>.*)</tool_call>)\s*\Z", re.DOTALL
)


def split_think(text: str) -> tuple[str, str]:
    """What stands in a leading ``<think>...</think>``, or "", and the text after it.

    The opening tag may be missing, for servers leave it out whose template writes it into the prompt.
    """
    think = _THINK.match(text)
    if think:
        return think[1].strip(), text[think.end() :]
    opening, closing = THINK_TAGS
    before, tag, after = text.partition(closing)
    # The arguments of a call may hold the tag as data.
    alone = tag and opening not in text and closing not in after
    if alone and not any(marker in before for marker in CALL_MARKERS):
        return before.strip(), after.lstrip()
    return "", text


def check_no_think(text: str) -> None:
    """Raise DataError (reason ``think_in_text``) where hidden reasoning stands where none can be told from the text."""
    tag = next((tag for tag in THINK_TAGS if tag in text), None)
    if tag is not None:
        fix = "write the reasoning as reasoning_content of the message"
        raise DataError(f"the content holds {tag} inside its text", reason="think_in_text", fix=fix)


def split_answer(text: str) -> tuple[str, str]:
    """Thought and answer of a last message: parted by ``[FinalAnswer]``, or all answer; a Finish call is left out."""
    before, marker, after = _without_finish_text(text).partition(FINAL_ANSWER)
    return (before.strip(), after.strip()) if marker else ("", before)


def check_no_calls(text: str, step: int | None = None) -> None:
    """Raise DataError (reason ``calls_in_text``) where a text holds what begins a call."""
    marker = next((marker for marker in CALL_MARKERS if marker in text), None)
    if marker is not None:
        fix = "write the calls as tool_calls of the message, with their results as tool messages"
        raise DataError(
            f"the content holds {marker}: calls written as text", reason="calls_in_text", step=step, fix=fix
        )


def _without_finish_text(text: str) -> str:
    """The text without the Finish call that ends it; another call, or one that cannot be read, stays in it."""
    starts = [text.find(marker) for marker in CALL_MARKERS if marker in text]
    found = _FINISH_TEXT.fullmatch(text, min(starts)) if starts else None
    if found is None:
        return text
    try:
        value = strict_loads(found["list"] or found["block"])
    except ValueError:
        return text
    calls = value if isinstance(value, list) else [value]
    is_finish = len(calls) == 1 and isinstance(calls[0], dict) and calls[0].get("name") == FINISH
    return text[: found.start()].rstrip() if is_finish else text
