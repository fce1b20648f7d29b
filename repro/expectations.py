"""What each torch release must show: ``fixtures/expectations/RACE.toml``.

A file is a list of ``[[release]]`` tables; the first whose ``torch`` range holds the release counts::

    [[release]]
    torch = ">=2.9,<2.14"
    upstream = "https://github.com/pytorch/pytorch/issues/126024"
    [release.outcomes]
    none = "poisoned"
    lock = "ok"

A last range without an upper end also stands for releases that nobody has recorded yet. A range in which anything
is expected to fail needs its ``upstream`` link.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from repro.outcome import Kind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROCESSES = "processes"


class ExpectationError(ValueError):
    """An expectation file that cannot be read; the message names the file, the place and what to do."""


@dataclass(frozen=True)
class Expected:
    """The outcome that a cell must have on a release, and the thread that says so where it is a failure."""

    outcome: Kind
    upstream: str | None


def fixtures() -> Path:
    """The fixtures: inside the package where it is installed, beside it in a checkout."""
    inside = Path(__file__).parent / "fixtures"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "fixtures"


def expected(race: str, fix: str, torch: str, folder: Path | None = None) -> Expected | None:
    """What ``race`` under ``fix`` must come to on ``torch``; ``None`` where nothing is written down.

    Raises :class:`ExpectationError`.
    """
    path = (folder or fixtures() / "expectations") / f"{race}.toml"
    if not path.is_file():
        return None
    release = Version(Version(torch).base_version)
    for entry in _read(path):
        if release in entry["torch"]:
            outcome = entry["outcomes"].get(fix)
            return None if outcome is None else Expected(outcome, entry["upstream"])
    return None


def recorded(race: str, fix: str, folder: Path | None = None) -> list[tuple[str, Kind]]:
    """Every range of releases that is written down for ``race`` under ``fix``, and what it comes to there.

    Raises :class:`ExpectationError`.
    """
    path = (folder or fixtures() / "expectations") / f"{race}.toml"
    if not path.is_file():
        return []
    return [(str(entry["torch"]), entry["outcomes"][fix]) for entry in _read(path) if fix in entry["outcomes"]]


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExpectationError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path}: not valid TOML: {error}") from None
    releases = document.get("release")
    if not isinstance(releases, list) or not releases or set(document) != {"release"}:
        raise ExpectationError(f"{path}: expected a list of [[release]] tables and nothing else")
    return [_entry(entry, f"{path}: [[release]] number {number}") for number, entry in enumerate(releases, start=1)]


def _entry(entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise ExpectationError(f"{where}: {entry!r} is not a table")
    if unknown := set(entry) - {"torch", "upstream", "outcomes"}:
        raise ExpectationError(f"{where}: unknown key {sorted(unknown)[0]!r}; known are torch, upstream, outcomes")
    try:
        releases = SpecifierSet(entry["torch"])
    except KeyError:
        raise ExpectationError(f"{where}: no torch range, such as torch = '>=2.9,<2.14'") from None
    except (InvalidSpecifier, TypeError, AttributeError):
        raise ExpectationError(f"{where}: {entry['torch']!r} is not a version range (PEP 440)") from None
    named = entry.get("outcomes")
    if not isinstance(named, dict) or not named:
        raise ExpectationError(f"{where}: no [release.outcomes] table, such as none = 'error'")
    outcomes = {}
    for fix, value in named.items():
        try:
            outcomes[fix] = Kind(value)
        except ValueError:
            kinds = ", ".join(kind.value for kind in Kind)
            raise ExpectationError(f"{where}: {fix} = {value!r} is not an outcome; those are {kinds}") from None
    upstream = entry.get("upstream")
    if upstream is not None and not isinstance(upstream, str):
        raise ExpectationError(f"{where}: upstream = {upstream!r} is not a link")
    if upstream is None and any(kind is not Kind.OK for kind in outcomes.values()):
        raise ExpectationError(f"{where}: something is expected to fail, so the upstream link is needed")
    return {"torch": releases, "upstream": upstream, "outcomes": outcomes}
