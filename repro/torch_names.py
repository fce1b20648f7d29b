"""Reads ``torch_names.toml``, the one place where private names of torch are written down.

Each entry is a table with at least ``name`` and ``torch``, the releases that it holds for as a PEP 440 range.
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@functools.cache
def _tables() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(Path(__file__).with_name("torch_names.toml").read_text(encoding="utf-8"))


def entries(kind: str, torch_version: str) -> list[dict[str, Any]]:
    """The entries of one ``kind`` (``seam``, ``state``, ...) that hold for ``torch_version``, in file order."""
    release = Version(Version(torch_version).base_version)
    return [entry for entry in _tables()[kind] if release in SpecifierSet(entry["torch"])]


def function(name: str) -> Any:
    """The ``[[function]]`` called ``name``, of the installed torch. Raises :class:`LookupError` if it has none."""
    import torch

    for entry in entries("function", torch.__version__):
        if entry["name"] == name:
            module, _, attribute = entry["target"].partition(":")
            return getattr(importlib.import_module(module), attribute)
    raise LookupError(f"torch {torch.__version__} has no {name} that torch_names.toml knows of")
