"""A trace as it was recorded beside what augmentation made of it, with the differences marked word by word.

Marked by colour and by signs: ``[-before-]`` on the left, ``{+after+}`` on the right.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from txagent_train.cli.data.judging import Judged
from txagent_train.cli.data.shared import print_json
from txagent_train.core.errors import UserError
from txagent_train.core.records import JsonObject, Step, ToolSpec, Trace, UserMessage
from txagent_train.data.augment import Augmented
from txagent_train.rendering.preview import visible
from txagent_train.sft.prepare import AUGMENTED

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_LONGEST = 2_000
"""Characters of a result or description that are compared."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same place in both traces. An empty side is not there."""

    where: str
    before: str
    after: str


def compare(title: str, found: Judged, *, as_json: bool) -> None:
    """Print a record beside what it is in training.

    Raises:
        UserError: the record has no trace to compare.
    """
    if found.original is None or found.augmented is None:
        reason = f" ({found.fault.reason}): {found.fault.problem}" if found.fault is not None else ""
        raise UserError(f"the record is not trained on{reason}", fix="show it without --beside")
    pairs = list(_pairs(found.original, found.augmented))
    if as_json:
        rows: list[JsonObject] = [
            {"where": pair.where, "before": pair.before, "after": pair.after, "changed": pair.before != pair.after}
            for pair in pairs
        ]
        print_json(
            {"id": found.id, "renamed": dict(found.augmented.renamed), "rows": rows, "counts": found.augmented.counts}
        )
        return
    console = Console(highlight=False)
    console.print(Text(visible(title), style="bold"))
    told = [f"{AUGMENTED[name]}: {count}" for name, count in sorted(found.augmented.counts.items())]
    console.print(Text("\n".join(told) or "nothing is augmented"))
    table = Table(show_lines=True, expand=True)
    table.add_column("", no_wrap=False, ratio=1)
    table.add_column("as recorded", ratio=3, overflow="fold")
    table.add_column("as trained on", ratio=3, overflow="fold")
    for pair in pairs:
        before, after = marked(pair.before, pair.after)
        table.add_row(Text(visible(pair.where), style="bold" if pair.before != pair.after else "dim"), before, after)
    console.print(table)


def marked(before: str, after: str) -> tuple[Text, Text]:
    """Two texts with what differs marked, by words; where one is empty, the other is all new or all gone."""
    left, right = _WORDS.findall(before), _WORDS.findall(after)
    out = Text(), Text()
    for tag, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            for text in out:
                text.append(visible("".join(left[a:b])), style="dim")
            continue
        if a < b:
            out[0].append(f"[-{visible(''.join(left[a:b]))}-]", style="red")
        if c < d:
            out[1].append(f"{{+{visible(''.join(right[c:d]))}+}}", style="green bold")
    return out


# ---- what stands beside what ----


def _pairs(original: Trace, augmented: Augmented) -> Iterator[Pair]:
    if original.system:
        yield Pair("system", original.system, augmented.trace.system or "")
    yield from _tools("tool", original.initial_tools, augmented.trace.initial_tools, augmented)
    before, after = _aligned(original, augmented)
    number = 0
    for old, new in zip(before, after, strict=True):
        if isinstance(new, UserMessage):
            yield Pair("user", old.content if isinstance(old, UserMessage) else "", new.content)
            continue
        was = old if isinstance(old, Step) else None
        yield from _step(number, was, new, augmented)
        number += 1
    if original.answer is not None:
        yield Pair("answer", original.answer, augmented.trace.answer or "")


def _aligned(
    original: Trace, augmented: Augmented
) -> tuple[list[UserMessage | Step | None], Sequence[UserMessage | Step]]:
    """The turns of both; where a turn was added, there is None on the left."""
    made = augmented.trace.turns
    added = len(made) - len(original.turns)
    rest = list(original.turns)
    out: list[UserMessage | Step | None] = []
    for turn in augmented.undo().turns:
        # An added step asks for tools; the one that it stands before is still to come, so the next one does not fit.
        if added and isinstance(turn, Step) and (not rest or not _same_step(turn, rest[0])):
            out.append(None)
            added -= 1
        else:
            out.append(rest.pop(0))
    return out, made


def _same_step(made: Step, recorded: UserMessage | Step) -> bool:
    return isinstance(recorded, Step) and made.calls == recorded.calls and made.raw_output == recorded.raw_output


def _step(number: int, old: Step | None, new: Step, augmented: Augmented) -> Iterator[Pair]:
    where = f"step {number}" + (" (added)" if old is None else "")
    for part in ("reasoning", "thought", "raw_output", "summary"):
        before, after = (getattr(step, part) or "" if step is not None else "" for step in (old, new))
        if before or after:
            yield Pair(f"{where} {part}", before, after)
    for index, call in enumerate(new.calls):
        was = old.calls[index] if old is not None else None
        yield Pair(
            f"{where} call",
            "" if was is None else f"{was.name} {_json(was.arguments)}",
            f"{call.name} {_json(call.arguments)}",
        )
    for index, result in enumerate(new.results):
        content = old.results[index].content if old is not None else None
        yield Pair(f"{where} result", "" if old is None else _json(content), _json(result.content))
    yield from _tools(f"{where} brings", () if old is None else old.tools_added, new.tools_added, augmented)


def _tools(where: str, before: Sequence[ToolSpec], after: Sequence[ToolSpec], augmented: Augmented) -> Iterator[Pair]:
    """Each tool beside what it became; then those that were added, or taken away."""
    made = {spec.name: spec for spec in after}
    for spec in before:
        new = made.pop(augmented.renamed.get(spec.name, spec.name), None)
        yield Pair(where if new else f"{where} (taken away)", _spec(spec), _spec(new) if new else "")
    for spec in made.values():
        yield Pair(f"{where} (added)", "", _spec(spec))


def _spec(spec: ToolSpec) -> str:
    properties = spec.parameters.get("properties") or {}
    lines = [spec.name, spec.description]
    for name, schema in properties.items():
        told = schema.get("description", "") if isinstance(schema, dict) else ""
        lines.append(f"  {name}: {told}".rstrip(": ") if not told else f"  {name}: {told}")
    return "\n".join(lines)[:_LONGEST]


def _json(value: object) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:_LONGEST]
