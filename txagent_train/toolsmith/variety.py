"""How much the versions of a tool differ from each other and from the original."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from statistics import mean

from txagent_train.core.records import JsonObject
from txagent_train.data.rewrites import RewriteSet, ToolRewrite
from txagent_train.data.toolbox import Toolbox
from txagent_train.toolsmith.words import identifier_words, text_words


def variety(rewrites: RewriteSet, toolbox: Toolbox) -> JsonObject:
    """Averages over tools, and for the measures that fall short first the tool that does worst.

    distinct_1, distinct_2: distinct words and pairs of words of the descriptions of a tool, over all of them (1: no
    word comes twice). jaccard: shared words of two descriptions of a tool over all words of both, the mean of all
    pairs (0: nothing in common). Changed: unlike the original.
    """
    rows = {
        tool: _of_tool(versions, toolbox.by_name[tool].description)
        for tool, versions in rewrites.by_tool.items()
        if len(versions) > 1
    }
    if not rows:
        return {}
    measures = {name: mean(row[name] for row in rows.values()) for name in next(iter(rows.values()))}
    all_versions = [rewrite for versions in rewrites.by_tool.values() for rewrite in versions]
    worst = max(rows, key=lambda tool: rows[tool]["jaccard"])
    return {
        **{name: round(value, 4) for name, value in measures.items()},
        "longest_name": max(len(rewrite.name) for rewrite in all_versions),
        "distinct_names": len({rewrite.name for rewrite in all_versions}) / len(all_versions),
        "least_varied_tool": worst,
        "least_varied_jaccard": round(rows[worst]["jaccard"], 4),
    }


def _of_tool(versions: Sequence[ToolRewrite], original: str) -> dict[str, float]:
    texts = [text_words(rewrite.description) for rewrite in versions]
    pairs = [list(pairwise(words)) for words in texts]
    arguments = [(old, new) for rewrite in versions for old, new in rewrite.arguments.items()]
    return {
        "distinct_1": _distinct([word for words in texts for word in words]),
        "distinct_2": _distinct([pair for found in pairs for pair in found]),
        "jaccard": mean(_jaccard(first, second) for first, second in combinations(map(frozenset, texts), 2)),
        "jaccard_with_original": mean(_jaccard(frozenset(words), frozenset(text_words(original))) for words in texts),
        "name_changed": mean(rewrite.name != rewrite.tool for rewrite in versions),
        "name_jaccard": mean(
            _jaccard(first, second) for first, second in combinations([_name_words(item) for item in versions], 2)
        ),
        "argument_names_changed": mean(old != new.name for old, new in arguments) if arguments else 1.0,
        "length_ratio": mean(len(rewrite.description) for rewrite in versions) / max(len(original), 1),
    }


def _name_words(rewrite: ToolRewrite) -> frozenset[str]:
    return frozenset(word.lower() for word in identifier_words(rewrite.name))


def _distinct(items: Sequence[object]) -> float:
    return len(set(items)) / max(len(items), 1)


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    return len(first & second) / max(len(first | second), 1)
