"""The options of peft.LoraConfig, read from peft's source: importing peft would import torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_OTHER_NAMES = {
    "rank": "r",
    "lora_r": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "target": "target_modules",
    "targets": "target_modules",
    "lora_target": "target_modules",
}
"""What other tools and the papers call these options; peft's names are not near them."""


@cache
def lora_option_names() -> frozenset[str]:
    """Names of the fields that peft.LoraConfig itself declares (those of its base class are set by the run)."""
    spec = find_spec("peft")
    assert spec is not None and spec.origin is not None, "peft is a dependency of this package"
    source = Path(spec.origin).parent / "tuners" / "lora" / "config.py"
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "LoraConfig":
            fields = [item.target for item in node.body if isinstance(item, ast.AnnAssign)]
            return frozenset(target.id for target in fields if isinstance(target, ast.Name))
    raise AssertionError(f"{source} has no class LoraConfig")


def unknown_lora_options(names: Iterable[str]) -> list[tuple[str, str]]:
    """(name, what is wrong) for each name that is no option of this peft version."""
    problems = []
    for name in names:
        if name not in lora_option_names():
            near = _OTHER_NAMES.get(name) or next(iter(get_close_matches(name, lora_option_names(), n=1)), "")
            hint = f"; did you mean adapter.lora.{near}?" if near else ""
            problems.append((name, f"peft.LoraConfig has no such option{hint}"))
    return problems
