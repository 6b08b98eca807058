"""The paths in a recipe.

A relative one is looked for beside the file that names it, then in the working directory; one of an override in the
working directory only, where the shell completes it.
"""

from __future__ import annotations

import os
from pathlib import Path

from txagent_train.config.nodes import Key, Node, find, replace
from txagent_train.config.sft import SftRecipe
from txagent_train.core.errors import RecipeError

AUGMENT_FILES = ("toolbox", "rewrites", "neighbours")
"""The keys of data.augment that name a file."""


def resolve_paths(root: Node) -> Node:
    """The tree with the paths to data, adapters and local models made absolute."""
    keys: list[Key] = [("adapter", "init_from"), ("model", "name_or_path"), ("data", "prepared_dir")]
    keys += [("data", "augment", name) for name in AUGMENT_FILES]
    for part in ("sources", "eval"):
        sources = find(root, ("data", part))
        if sources is not None and isinstance(sources.value, list):
            keys += [("data", part, index, "path") for index in range(len(sources.value))]
    for part in ("exclude", "frozen"):
        files = find(root, ("data", part))
        if files is not None and isinstance(files.value, list):
            keys += [("data", part, index) for index in range(len(files.value))]
    for key in keys:
        node = find(root, key)
        if node is not None and isinstance(node.value, str) and node.value:
            root = replace(root, key, Node(_resolve(node, is_model=key[0] == "model"), node.place))
    return root


def _resolve(node: Node, *, is_model: bool) -> str:
    """An absolute path; the name of a model that is no folder here stays as it is."""
    written = Path(node.value).expanduser()
    folders = [Path.cwd()] if node.place.file is None else [node.place.file.parent, Path.cwd()]
    for folder in folders:
        if os.path.exists(folder / written):  # Path.exists raises where a name is too long
            return os.path.abspath(folder / written)
    return str(node.value) if is_model else os.path.abspath(written)


_SAVED = ("state.json", "dataset_dict.json", "dataset_info.json")
"""Files that ``datasets`` writes beside what it saves."""


def _holds_table(folder: Path) -> bool:
    """Whether a folder looks like a data set of Parquet or Arrow files; reading it says what is wrong with it."""
    try:
        files = os.listdir(folder)
    except OSError:
        return False
    return any(name in _SAVED or name.endswith((".parquet", ".arrow")) for name in files)


def check_files(recipe: SftRecipe, *, where: str = "") -> None:
    """Check that the files and folders a recipe names are there; ``where`` is its file, for the message.

    Raises:
        RecipeError: every one that is missing.
    """
    problems = []
    for part, sources in (("sources", recipe.data.sources), ("eval", recipe.data.eval)):
        for index, source in enumerate(sources):
            key = f"data.{part}.{index}.path"
            if os.path.isdir(source.path):
                if not _holds_table(source.path):
                    problems.append(f"{key}: this is a folder without a data set: {source.path}; name a file in it")
            elif not os.path.isfile(source.path):
                problems.append(f"{key}: no such file: {source.path}; put it there, or set {key}=FILE")
    for part, files in (("exclude", recipe.data.exclude), ("frozen", recipe.data.frozen)):
        for index, file in enumerate(files):
            if not os.path.isfile(file):
                problems.append(f"data.{part}.{index}: no such file: {file}")
    for name in AUGMENT_FILES:
        named = None if recipe.data.augment is None else getattr(recipe.data.augment, name)
        if named is not None and not os.path.isfile(named):
            problems.append(f"data.augment.{name}: no such file: {named}")
    start = recipe.adapter.init_from
    if start is not None and not os.path.isfile(start / "adapter_config.json"):
        problems.append(f"adapter.init_from: no adapter (adapter_config.json) in {start}")
    name = recipe.model.name_or_path
    if name.startswith(("/", "./", "../", "~")) and not os.path.isdir(Path(name).expanduser()):
        problems.append(f"model.name_or_path: no such folder: {name}")
    if problems:
        raise RecipeError(where or recipe.name, problems)
