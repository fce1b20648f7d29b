"""Tiny packages whose surface is known, written to a folder."""

from __future__ import annotations

import textwrap
from pathlib import Path

from repro.surface.inventory import Global, Inventory, take


def write(folder: Path, **modules: str) -> Path:
    """A package ``toy`` with these modules; a name with ``__`` is one in a folder: ``inner__state``."""
    root = folder / "toy"
    for name, text in {"__init__": "", **modules}.items():
        file = root.joinpath(*name.split("__")).with_suffix(".py") if name != "__init__" else root / "__init__.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


def inventory(folder: Path, *, entries: tuple[str, ...] = ("entry",), **modules: str) -> Inventory:
    return take(write(folder, **modules), ["toy"], entries, "1.0")


def only(folder: Path, source: str) -> Global:
    """The one global of a package of one module ``state``."""
    (found,) = inventory(folder, state=source).globals.values()
    return found
