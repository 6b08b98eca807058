"""``key=value`` on the command line: ``train.learning_rate=1e-4``, ``data.sources.0.path=mine.jsonl``.

The value is YAML, so ``tracking.tags=[a, b]`` is a list, ``seed=null`` is null and ``seed=`` too.
"""

from __future__ import annotations

from txagent_train.config.nodes import Node, YamlProblem, parse_key, read_yaml, replace


def apply_override(root: Node, text: str) -> Node:
    """The tree with one override in it.

    Raises:
        ValueError: the override cannot be read or has no place to go; the message names it.
    """
    name, equals, value = text.partition("=")
    key = parse_key(name.strip())
    if not equals or "" in key:
        raise ValueError(f"{text}: an override is written key=value, as in train.epochs=2")
    try:
        node, problems = read_yaml(value, None)
    except YamlProblem as problem:
        problems = [problem]
    if problems:
        raise ValueError(f"{name}: {problems[0].text} (override {text})")
    try:
        return replace(root, key, node)
    except ValueError as error:
        raise ValueError(f"{error} (override {text})") from None
