"""What the package says of itself agrees with what is tested of it."""

from __future__ import annotations

import configparser
import sys

from command_line import ROOT
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOX = configparser.ConfigParser(interpolation=None)
TOX.read(ROOT / "tox.ini", encoding="utf-8")


def requirements(lines: list[str]) -> dict[str, Requirement]:
    found = [Requirement(line) for line in lines if line and not line.startswith("{")]
    return {each.name: each for each in found}


def test_each_lower_bound_is_what_the_installed_package_is_tried_with() -> None:
    tried = requirements(TOX["testenv:package"]["deps"].splitlines())
    # Of torch the results are recorded, release by release; tomli is in the standard library of this Python.
    for name, allowed in requirements(PROJECT["dependencies"]).items():
        if name not in ("torch", "tomli"):
            (bound,) = allowed.specifier
            (pinned,) = tried[name].specifier
            assert (bound.operator, bound.version) == (">=", pinned.version), name


def test_the_environments_install_what_the_package_needs() -> None:
    base = requirements(TOX["base"]["deps"].splitlines())
    for name, needed in requirements(PROJECT["dependencies"]).items():
        if name != "torch":
            assert base[name].specifier == needed.specifier, name
