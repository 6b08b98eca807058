from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
]


@pytest.mark.parametrize("line", REQUIREMENTS)
def test_the_pinned_releases_satisfy_the_project(line: str) -> None:
    pins = {}
    for pin in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if pin and not pin.startswith("#"):
            name, _, version = pin.partition("==")
            pins[canonicalize_name(name)] = Version(version)
    requirement = Requirement(line)
    assert pins[canonicalize_name(requirement.name)] in requirement.specifier
