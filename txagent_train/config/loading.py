"""Recipes from files: reads, merges, overrides, resolves and validates; reports every problem at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from txagent_train.config.nodes import Key, Node, Place, YamlProblem, child, dump_yaml, merge, plain, read_yaml
from txagent_train.config.overrides import apply_override
from txagent_train.config.paths import resolve_paths
from txagent_train.config.problems import describe, errors_of, keys_of, where
from txagent_train.config.sft import SftRecipe
from txagent_train.config.shipped import shipped_recipe
from txagent_train.core.errors import RecipeError, UserError
from txagent_train.core.records import JsonObject

KINDS: Mapping[str, type[SftRecipe]] = {"sft": SftRecipe}
"""The schema of each ``kind:``."""

# Only these may differ between a run and its resume: they change speed, memory, or what is written when.
FREE_ON_RESUME = {
    "model": {"gradient_checkpointing"},
    "data": {"prepared_dir", "workers"},
    "train": {"rows_per_forward", "packing", "row_tokens", "eval_every", "save_every", "keep_last"},
}
RESUMED_SECTIONS = ("kind", "seed", "model", "adapter", "wire", "data", "train")


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> SftRecipe:
    """A recipe with its ``extends:`` chain merged, overrides applied and paths absolute.

    ``extends:`` names a file beside the recipe, or a shipped recipe. A relative path to data or to an adapter is
    looked for beside the file that names it, then in the working directory; one of an override in the working
    directory only. No file but the recipes is opened.

    Raises:
        RecipeError: every problem of the recipe and the overrides, each with its key and line.
    """
    problems: list[str] = []
    root = _read_chain(path, path, problems, ())
    for text in overrides:
        try:
            root = apply_override(root, text)
        except ValueError as error:
            problems.append(str(error))
    schema = _schema_of(root, path, problems)
    root = resolve_paths(root)
    recipe, errors = _validate(schema, plain(root))
    problems += describe(errors, schema, root, path)
    if recipe is None or problems:
        raise RecipeError(str(path), problems)
    return recipe


def _read_chain(path: Path, recipe: Path, problems: list[str], seen: tuple[Path, ...]) -> Node:
    """The tree of ``path`` laid on what it extends. ``recipe`` is the file that the user named."""
    root = read_file(path, recipe, problems)
    base = child(root, "extends")
    if base is None:
        return root
    own = Node({key: node for key, node in root.value.items() if key != "extends"}, root.place)
    place = where(base.place, recipe)
    if not isinstance(base.value, str) or not base.value:
        problems.append(f"extends: must be the path of one recipe, or the name of a shipped one{place}")
        return own
    below = path.parent / base.value
    if not os.path.isfile(below):  # answers where Path.is_file raises: for a name that is too long to be one
        try:
            below = shipped_recipe(base.value.removesuffix(".yaml"))
        except UserError as error:
            text = f"extends: no such file: {below}, nor a shipped recipe of that name{place}"
            hint = f"; {error.fix}" if error.fix else ""
            raise RecipeError(str(recipe), [*problems, text + hint]) from None
    chain = (*seen, path.resolve())
    if below.resolve() in chain:
        names = " -> ".join(file.name for file in (*chain, below))
        raise RecipeError(str(recipe), [*problems, f"extends: a cycle, {names}{place}"])
    return merge(_read_chain(below, recipe, problems, chain), own)


def read_file(path: Path, recipe: Path, problems: list[str], *, what: str = "the recipe") -> Node:
    """The tree of one YAML file. ``recipe`` is the file that the user named; ``problems`` gets what leaves it readable.

    Raises:
        RecipeError: it cannot be read, or is no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise RecipeError(str(path), ["there is no such file"], what=what) from None
    except UnicodeDecodeError as error:
        raise RecipeError(str(path), [f"not a UTF-8 text ({error.reason} at byte {error.start})"], what=what) from None
    except OSError as error:
        raise RecipeError(str(path), [f"cannot be read: {error.strerror}"], what=what) from None
    try:
        root, found = read_yaml(text, path)
    except YamlProblem as problem:
        text = problem.text + where(Place(path, problem.line), recipe)
        raise RecipeError(str(recipe), [*problems, text], what=what) from None
    problems += [problem.text + where(Place(path, problem.line), recipe) for problem in found]
    if not isinstance(root.value, dict):
        wrong = "is empty" if root.value is None else "must be a mapping of keys to values"
        raise RecipeError(str(path), [*problems, f"{what} {wrong}"], what=what)
    return root


def _schema_of(root: Node, path: Path, problems: list[str]) -> type[SftRecipe]:
    kind = child(root, "kind")
    known = " | ".join(KINDS)
    if kind is None:
        raise RecipeError(str(path), [*problems, f"kind: missing; known: {known}"])
    if not isinstance(kind.value, str) or kind.value not in KINDS:
        text = f"kind: {plain(kind)!r} is not a kind of recipe{where(kind.place, path)}; known: {known}"
        raise RecipeError(str(path), [*problems, text])
    return KINDS[kind.value]


def _validate(schema: type[SftRecipe], data: JsonObject) -> tuple[SftRecipe | None, list[ErrorDetails]]:
    """The recipe, or every error. Checks between keys run only in a section whose keys are all right by themselves.

    So that those problems show in the same go, wrong keys are left at their defaults and the rest is checked again.
    """
    errors: list[ErrorDetails] = []
    while True:
        try:
            recipe = schema.model_validate(data)
        except ValidationError as error:
            found = errors_of(error)
        else:
            return (None if errors else recipe), errors
        # After the first round, what is missing is what was taken out.
        errors += [item for item in found if not errors or item["type"] != "missing"]
        rest = _without(data, [key for item in found for key in keys_of(item)])
        if rest == data:
            return None, errors
        data = rest


def _without(value: Any, keys: Sequence[Key]) -> Any:
    """A copy of plain data without the mapping entries at ``keys``."""

    def below(part: str | int) -> list[Key]:
        return [key[1:] for key in keys if key and key[0] == part]

    if isinstance(value, list):
        return [_without(item, below(index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {name: _without(item, below(name)) for name, item in value.items() if () not in below(name)}
    return value


def to_yaml(recipe: SftRecipe) -> str:
    """The resolved recipe, every key written out; ``load_recipe`` reads it back as the same recipe."""
    return dump_yaml(recipe.model_dump(mode="json"))


def fingerprint(recipe: SftRecipe) -> JsonObject:
    """What must not change between a run and its resume: all that decides what is learned, in which order."""
    whole = recipe.model_dump(mode="json")
    kept = {section: whole[section] for section in RESUMED_SECTIONS}
    for section, free in FREE_ON_RESUME.items():
        kept[section] = {key: value for key, value in kept[section].items() if key not in free}
    return kept
