"""A small toolbox with awkward names, rewrites of it, and traces over it in which names stand in every odd place."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from txagent_train.config.sft import AugmentSection
from txagent_train.core.records import TOOL_RAG, Step, StepStatus, ToolCall, ToolResult, ToolSpec, Trace, UserMessage
from txagent_train.data.augment import HELD_OUT, OUTSIDE_FRACTION, Augmenter
from txagent_train.data.candidates import Neighbours
from txagent_train.data.rewrites import ArgumentRewrite, RewriteSet, ToolRewrite
from txagent_train.data.toolbox import Toolbox
from txagent_train.data.virtual import RAG_TOOL
from txagent_train.data.withheld import Withheld


def tool(name: str, description: str, **arguments: str) -> ToolSpec:
    """A tool whose arguments are all required; the values are their types."""
    properties = {name: {"type": kind, "description": f"The {name}."} for name, kind in arguments.items()}
    return ToolSpec(
        name, description, {"type": "object", "properties": properties, "required": list(arguments)}, {"raw": name}
    )


GET_DOSE = tool("get_dose", "Retrieve the dose of a drug. Unlike get_dose_form.", drug_name="string", limit="integer")
TOOLS = (
    GET_DOSE,
    tool("get_dose_form", "The form of a dose; see also get_dose.", drug_name="string"),
    tool("search", "Find drugs. The tool 'search' is slow.", query_text="string", drug_name="string"),
    tool("v1-get_dose", "An older one.", target="string"),
    tool("checkPair", "Known interactions of two drugs", drugA="string", drugB="string"),
    tool("lookup_route", "", drug_name="string"),
)
"""One name is the beginning of another, one an ordinary word, one holds another behind a hyphen; some name others."""
TOOLBOX = Toolbox((RAG_TOOL, *TOOLS))
_STEMS = {
    "get_dose": "find_strength",
    "get_dose_form": "fetch_shape",
    "search": "finder",
    "v1-get_dose": "old_strength",
    "checkPair": "pair_risk",
    "lookup_route": "way_in",
}
_NEW_ARGUMENTS = {"drug_name": "medicine_name", "limit": "top", "query_text": "asked_for", "drugA": "first_drug"}


def versions(spec: ToolSpec, count: int = 3, *, held_out: int = 1) -> tuple[ToolRewrite, ...]:
    """``count`` versions of a tool, the last ``held_out`` of them for evaluation only."""
    return tuple(
        ToolRewrite(
            spec.name,
            number,
            _STEMS[spec.name] if number == 1 else f"{_STEMS[spec.name]}_{number}",
            f"Version {number}: {spec.description}",
            {
                old: ArgumentRewrite(f"{_NEW_ARGUMENTS.get(old, old)}{number}", f"Argument {number}.")
                for old in spec.parameters["properties"]
            },
            held_out=number > count - held_out,
        )
        for number in range(1, count + 1)
    )


def rewrite_set(toolbox: Toolbox = TOOLBOX, *, held_out_tools: frozenset[str] = frozenset()) -> RewriteSet:
    """Rewrites of every tool."""
    by_tool = {
        spec.name: versions(spec, held_out=3 if spec.name in held_out_tools else 1)
        for spec in toolbox.tools
        if spec.name != TOOL_RAG
    }
    return RewriteSet(toolbox.hash, held_out_tools, by_tool)


def augmenter(
    *, held_out: frozenset[str] = frozenset(), outside: frozenset[str] = frozenset(), **settings: Any
) -> Augmenter:
    """An augmenter over the small toolbox; by default it only renames, and every tool it can."""
    section = AugmentSection.model_validate(
        {"toolbox": "toolbox.json", "rewrites": "rewrites.jsonl", "neighbours": "n.json", "originals": False} | settings
    )
    names = [spec.name for spec in TOOLS]
    near = {name: tuple(other for other in names[place:] + names[:place] if other != name) for place, name in
            enumerate(names)}  # fmt: skip
    withheld = (
        Withheld(held_out, HELD_OUT, "which is held out"),
        Withheld(outside, OUTSIDE_FRACTION, "which is outside"),
    )
    return Augmenter(TOOLBOX, rewrite_set(held_out_tools=held_out), Neighbours(near), section, withheld)


# ---- traces ----

_NAMES = [spec.name for spec in TOOLS]
_WORDS = [
    *_NAMES,
    *(f'"{name}"' for name in _NAMES),
    *(f"{name}_x" for name in _NAMES),
    *(rewrite.name for spec in TOOLS for rewrite in versions(spec)),
    "drug_name", "query_text", "drugA", "medicine_name1", "asked_for2", "limit", "the dose", "42", TOOL_RAG,
]  # fmt: skip
texts = st.lists(st.sampled_from(_WORDS), max_size=5).flatmap(
    lambda words: st.lists(st.sampled_from([" ", ", ", "\n", "-", "(", ".", "/"]), min_size=5, max_size=5).map(
        lambda borders: "".join(f"{word}{border}" for word, border in zip(words, borders, strict=False))
    )
)
some_text = texts.map(lambda text: f"I say: {text}")
# Words alone, too: a text that is a name as a whole.
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.integers(0, 9), st.none(), texts, st.sampled_from(_WORDS)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_WORDS), inner, max_size=3)),
    max_leaves=5,
)


def arguments_for(spec: ToolSpec, draw: st.DrawFn) -> dict[str, Any]:
    """Arguments that fit a tool's schema, sometimes with one that it does not know."""
    kinds = {"string": texts, "integer": st.integers(0, 9)}
    made = {name: draw(kinds[schema["type"]]) for name, schema in spec.parameters["properties"].items()}
    if draw(st.integers(0, 3)) == 0:
        made["medicine_name1"] = "x"
    return made


def _as_retrieved(specs: list[ToolSpec], draw: st.DrawFn) -> Any:
    """The forms in which Tool_RAG's results come."""
    names = [spec.name for spec in specs]
    full = [{"name": spec.name, "description": spec.description, "parameter": spec.parameters} for spec in specs]
    wrapped = [{"type": "function", "function": {**item, "parameters": item["parameter"]}} for item in full]
    lines = "".join(f"{number}. {spec.name}: {spec.description}\n" for number, spec in enumerate(specs, 1))
    plain = [names, full, wrapped, dict.fromkeys(names, 0.5), {"tools": names}, [[name, 0.5] for name in names],
             [{"tool_name": spec.name, "description": spec.description} for spec in specs]]  # fmt: skip
    chosen = draw(st.sampled_from(plain))
    text = json.dumps(full, indent=draw(st.sampled_from([None, 2])))
    packed = [json.dumps(chosen), str(chosen), {"content": text}, [json.dumps(item) for item in full]]
    return draw(st.sampled_from([chosen, *packed, text, ", ".join(names), f"Found: {', '.join(names)}.", lines]))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """A trace whose calls fit the tools that it shows."""
    seen = draw(st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3, unique_by=lambda spec: spec.name))
    initial = (*seen, RAG_TOOL)
    turns: list[UserMessage | Step] = [UserMessage(draw(st.one_of(st.just("What?"), some_text)))]
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["call", "call", "rag", "unparsable", "user"]))
        if kind == "user":
            turns.append(UserMessage(draw(st.one_of(st.just("And?"), some_text))))
        elif kind == "unparsable":
            error = ToolResult(None, draw(some_text), is_error=True)
            turns.append(Step(raw_output=draw(some_text), status=StepStatus.UNPARSABLE, results=(error,)))
        elif kind == "rag":
            added = draw(st.lists(st.sampled_from(TOOLS), max_size=2, unique_by=lambda spec: spec.name))
            call = ToolCall(TOOL_RAG, {"description": draw(texts), "limit": 3})
            result = ToolResult(0, _as_retrieved(added, draw))
            turns.append(Step(draw(texts), calls=(call,), results=(result,), tools_added=tuple(added)))
            seen = [*seen, *added]
        else:
            spec = draw(st.sampled_from(seen))
            content = draw(st.one_of(st.just({"dose": 1}), values))
            result = ToolResult(0, content, is_error=draw(st.booleans()))
            call = ToolCall(spec.name, arguments_for(spec, draw))
            summary = draw(st.one_of(st.none(), some_text))
            turns.append(Step(draw(texts), reasoning=draw(texts), calls=(call,), results=(result,), summary=summary))
    return Trace(
        id=f"t{draw(st.integers(0, 99))}",
        turns=(*turns, Step(draw(texts))),
        answer=draw(some_text),
        system=draw(st.one_of(st.none(), st.just("Use tools."), texts)),
        initial_tools=initial,
        metadata={"summaries": {"0": draw(some_text)}, "kind": "x"},
    )
