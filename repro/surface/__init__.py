"""The race surface: what the compile stack of a torch release keeps for the whole process, found in its source.

An upgrade can bring a race that nobody has named. So this reads torch without importing it: :func:`inventory` lists
each global and class attribute that functions change, who changes and who reads it, and how dangerous that is
(``inventory.py``); :func:`compare` says what came, went or moved into a thread between two releases (``diff.py``);
``probe.py`` drives two threads through what the list suspects.
"""

from __future__ import annotations

import ast
import fnmatch
import importlib.util
import os
import subprocess
from functools import cache
from pathlib import Path

from packaging.version import InvalidVersion, Version

from repro.expectations import fixtures
from repro.surface.diff import KINDS, Difference, between
from repro.surface.inventory import Global, Inventory, Nothing, counts, dumps, loads, take
from repro.torch_names import entries

__all__ = [
    "KINDS",
    "BadSurface",
    "Difference",
    "Global",
    "Inventory",
    "Nothing",
    "compare",
    "counts",
    "dumps",
    "installed",
    "inventory",
    "judgement",
    "releases",
]

# What a user of attention calls, directly or around it; by these names the reach of everything else is judged.
ENTRIES = (
    "compile",
    "create_block_mask",
    "export",
    "flex_attention",
    "make_fx",
    "optimize",
    "set_stance",
    "symbolic_trace",
)


class BadSurface(ValueError):
    """Neither a release, an inventory, an interpreter nor a folder with torch; the message says what to do."""


def releases() -> list[str]:
    """The releases whose inventories are committed, oldest first."""
    found = [path.stem.removeprefix("torch-") for path in (fixtures() / "surface").glob("torch-*.json")]
    return sorted(found, key=Version)


def inventory(what: str | None = None) -> Inventory:
    """The inventory of ``what``, or of the torch that this interpreter would import.

    ``what`` is a release with a committed inventory (``2.13.0``), the file of an inventory, a Python interpreter, or
    a folder that holds torch. Raises :class:`BadSurface` and :class:`Nothing`.
    """
    if what is None:
        return _of_folder(installed())
    if what in releases():
        return _of_file(fixtures() / "surface" / f"torch-{what}.json")
    path = Path(what)
    if path.is_file() and os.access(path, os.X_OK):
        return _of_folder(_of_interpreter(what))
    if path.is_file():
        return _of_file(path)
    if path.is_dir():
        return _of_folder(path / "torch" if (path / "torch" / "__init__.py").is_file() else path)
    raise BadSurface(
        f"{what!r} is no recorded release ({', '.join(releases())}), no inventory, no interpreter and no folder"
    )


def compare(old: str, new: str | None = None) -> Difference:
    """What changed from ``old`` to ``new`` (by default the installed torch); both as for :func:`inventory`."""
    return between(inventory(old), inventory(new))


def judgement(name: str, torch: str) -> str:
    """Why the global ``name`` was judged to be no danger on that release; empty where nobody has judged it."""
    return next((reason for pattern, reason in _judgements(torch) if fnmatch.fnmatchcase(name, pattern)), "")


@cache
def _judgements(torch: str) -> list[tuple[str, str]]:
    judged = [*entries("benign", torch), *entries("judged", torch)]
    return [(pattern, f"{entry['name']}: {entry['reason']}") for entry in judged for pattern in entry["patterns"]]


def installed() -> Path:
    """The folder of the torch that this interpreter would import."""
    # looks for the package without importing it
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise Nothing("torch is not installed here")
    return Path(spec.origin).parent


def _of_interpreter(python: str) -> Path:
    code = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s else '')"
    try:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        raise BadSurface(f"{python} is not a Python interpreter that runs") from None
    if not done.stdout.strip():
        raise Nothing(f"{python} has no torch")
    return Path(done.stdout.strip()).parent


def _of_file(path: Path) -> Inventory:
    try:
        return loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSurface(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadSurface(f"{path}: {error}; write one with python -m repro surface --json FILE") from None


def _of_folder(root: Path) -> Inventory:
    version = _version(root)
    # a development build is read like the release that it comes before
    packages = [entry["name"] for kind in ("state", "surface") for entry in entries(kind, version)]
    return take(root, packages, ENTRIES, version)


def _version(root: Path) -> str:
    try:
        tree = ast.parse((root / "version.py").read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        raise Nothing(f"{root} is not an installed torch: it has no version.py") from None
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and any(isinstance(target, ast.Name) and target.id == "__version__" for target in node.targets)
        ):
            try:
                return Version(str(node.value.value)).public
            except InvalidVersion:
                break
    raise Nothing(f"{root} is not an installed torch: its version.py names no version")
