"""What each torch release must show: ``fixtures/expectations/RACE.toml``.

A file is a list of ``[[release]]`` tables; the first whose ``torch`` range holds the release counts::

    [[release]]
    torch = ">=2.9,<2.14"
    upstream = "https://github.com/pytorch/pytorch/issues/126024"
    [release.outcomes]
    none = "poisoned"
    lock = "ok"

A last range without an upper end also stands for releases that nobody has recorded yet. A range in which anything
is expected to fail needs its ``upstream`` link. The tables are of the CPU, but for races on CUDA alone; what others
come to on CUDA is what was recorded there (:func:`repro.results.expectation`). People edit these files, and so does
:func:`update`, which keeps what it does not have to change, comments too.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
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


_INSTALLED = Path(__file__).parent / "fixtures"


def installed() -> bool:
    """Whether this is an installed package, and no checkout."""
    return _INSTALLED.is_dir()


def fixtures() -> Path:
    """The fixtures: inside the package where it is installed, beside it in a checkout."""
    return _INSTALLED if installed() else Path(__file__).parent.parent / "fixtures"


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
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise ExpectationError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExpectationError(f"{path}: not valid TOML: {error}") from None
    releases = document.get("release")
    if not isinstance(releases, list) or not releases or set(document) != {"release"}:
        raise ExpectationError(f"{path}:1: expected a list of [[release]] tables and nothing else")
    return [_entry(entry, _Place(path, text, number)) for number, entry in enumerate(releases, start=1)]


@dataclass(frozen=True)
class _Place:
    """One table of a file, for messages."""

    path: Path
    text: str
    number: int

    def error(self, why: str, key: str = "") -> ExpectationError:
        """Names the line of ``key``; where that stands nowhere, the line that opens the table."""
        line = 1
        tables = 0
        for number, content in enumerate(self.text.splitlines(), start=1):
            tables += _HEADER.match(content) is not None
            if tables == self.number:
                if _HEADER.match(content):
                    line = number
                elif key and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", content):
                    line = number
                    break
        return ExpectationError(f"{self.path}:{line}: [[release]] number {self.number}: {why}")


_HEADER = re.compile(r"\s*\[\[\s*release\s*\]\]")


def _entry(entry: Any, place: _Place) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise place.error(f"{entry!r} is not a table")
    if unknown := sorted(set(entry) - {"torch", "upstream", "outcomes"}):
        raise place.error(f"unknown key {unknown[0]!r}; known are torch, upstream, outcomes", unknown[0])
    try:
        releases = SpecifierSet(entry["torch"])
    except KeyError:
        raise place.error("no torch range, such as torch = '>=2.9,<2.14'") from None
    except (InvalidSpecifier, TypeError, AttributeError):
        raise place.error(f"{entry['torch']!r} is not a version range (PEP 440)", "torch") from None
    named = entry.get("outcomes")
    if not isinstance(named, dict) or not named:
        raise place.error("no [release.outcomes] table, such as none = 'error'", "outcomes")
    outcomes = {}
    for fix, value in named.items():
        try:
            outcomes[fix] = Kind(value)
        except ValueError:
            kinds = ", ".join(kind.value for kind in Kind)
            raise place.error(f"{fix} = {value!r} is not an outcome; those are {kinds}", fix) from None
    upstream = entry.get("upstream")
    if upstream is not None and not isinstance(upstream, str):
        raise place.error(f"upstream = {upstream!r} is not a link", "upstream")
    if upstream is None and any(kind is not Kind.OK for kind in outcomes.values()):
        raise place.error("something is expected to fail, so the upstream link is needed")
    return {"torch": releases, "upstream": upstream, "outcomes": outcomes}


# ---- writing ------------------------------------------------------------------------------------------------------


def update(
    race: str,
    torch: str,
    seen: Mapping[str, Kind],
    *,
    link: Callable[[], str | None],
    recorded: Collection[str] = (),
    folder: Path | None = None,
) -> bool:
    """Write down that ``race`` came to ``seen`` (by fix) on the release ``torch``; whether that changed the file.

    Nothing else that the file says of a release in ``recorded`` changes, nor of a fix that was not seen. Releases
    that nobody recorded go with the recorded one before them. ``link`` gives the link for a table that needs one and
    has none. Raises :class:`ExpectationError`.
    """
    path = (folder or fixtures() / "expectations") / f"{race}.toml"
    assert Kind.INCONCLUSIVE not in seen.values(), "an inconclusive cell says nothing of a release"
    preamble, tables = _tables(path) if path.is_file() else ("", [])
    before = _join(preamble, tables)
    release = Version(Version(torch).base_version)
    others = {Version(Version(other).base_version) for other in recorded} - {release}
    _place_release(tables, release, dict(seen), link, others, path)
    after = _join(preamble, tables)
    if after == before:
        return False
    path.write_text(after, encoding="utf-8")
    _read(path)
    return True


@dataclass
class _Table:
    """One [[release]] table as it is written, with the comment above it."""

    text: str
    torch: SpecifierSet
    upstream: str | None
    outcomes: dict[str, Kind]

    @property
    def interval(self) -> tuple[Version, Version | None] | None:
        """``>=low,<high`` or ``>=low``; ``None`` for a range of another form, which a person wrote."""
        ends = {specifier.operator: specifier.version for specifier in self.torch}
        if len(ends) != len(self.torch) or ">=" not in ends or set(ends) - {">=", "<"}:
            return None
        return Version(ends[">="]), Version(ends["<"]) if "<" in ends else None


def _tables(path: Path) -> tuple[str, list[_Table]]:
    """What stands before the first table, and the tables."""
    entries = _read(path)
    parts = [""]
    above: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if _HEADER.match(line):
            parts.append("".join([*above, line]))
            above = []
        elif line.lstrip().startswith("#"):
            above.append(line)
        else:
            parts[-1] += "".join([*above, line])
            above = []
    parts[-1] += "".join(above)
    preamble, *texts = parts
    if len(texts) != len(entries):
        raise ExpectationError(f"{path}:1: write each release as a [[release]] table of its own to update it")
    return preamble, [_Table(text, **entry) for text, entry in zip(texts, entries, strict=True)]


def _join(preamble: str, tables: Iterable[_Table]) -> str:
    parts = [part.strip("\n") for part in (preamble, *(table.text for table in tables))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _place_release(
    tables: list[_Table],
    release: Version,
    seen: dict[str, Kind],
    link: Callable[[], str | None],
    others: set[Version],
    path: Path,
) -> None:
    at = next((number for number, table in enumerate(tables) if release in table.torch), None)
    old = None if at is None else tables[at]
    outcomes = {**(old.outcomes if old else {}), **seen}
    if old is not None and outcomes == old.outcomes:
        return
    upstream = None
    if any(kind is not Kind.OK for kind in outcomes.values()):
        alike = (table.upstream for table in tables if table.outcomes == outcomes)
        upstream = (old.upstream if old else None) or next(filter(None, alike), None) or link()
        if upstream is None:
            raise ExpectationError(f"{path}: fails on {release}, and the race has no upstream link; give it one")
    bounds = [table.interval for table in tables]
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds) or any(a[1] is None or a[1] > b[0] for a, b in itertools.pairwise(known)):
        # The ranges are a person's own; the first that holds a release counts, so one table for this release alone.
        tables.insert(at or 0, _new(f"=={release}", upstream, outcomes))
        return
    if old is None or at is None:
        at = sum(low <= release for low, _ in known)
        high = known[at][0] if at < len(known) else None
        tables.insert(at, _new(_range(release, high), upstream, outcomes))
    else:
        at = _split(tables, at, release, upstream, outcomes, others)
    _merge(tables, at)


def _split(
    tables: list[_Table],
    at: int,
    release: Version,
    upstream: str | None,
    outcomes: dict[str, Kind],
    others: set[Version],
) -> int:
    """Give ``release`` a table of its own out of the one at ``at``; returns where it is."""
    old = tables[at]
    assert old.interval is not None
    low, high = old.interval
    after = min((other for other in others if other > release and other in old.torch), default=None)
    earlier = any(other < release and other in old.torch for other in others)
    adds = all(outcomes[fix] is kind for fix, kind in old.outcomes.items())
    # What only adds a fix takes the unrecorded releases before it along: nothing is said against what stood there.
    keeps_left = low < release and (earlier or not adds)
    middle = _range(release if keeps_left else low, after or high)
    if keeps_left:
        right = [] if after is None else [_new(_range(after, high), old.upstream, old.outcomes)]
        tables[at : at + 1] = [_edited(old, torch=_range(low, release)), _new(middle, upstream, outcomes), *right]
        return at + 1
    if after is not None:
        tables[at : at + 1] = [_new(middle, upstream, outcomes), _edited(old, torch=_range(after, high))]
        return at
    tables[at] = _edited(old, torch=middle, upstream=upstream, outcomes=outcomes)
    return at


def _merge(tables: list[_Table], at: int) -> None:
    """Let the table at ``at`` and its neighbours be one where they say the same."""
    for first in (at, at - 1):
        if not 0 <= first < len(tables) - 1:
            continue
        left, right = tables[first], tables[first + 1]
        links = {left.upstream, right.upstream} - {None}
        if left.outcomes == right.outcomes and len(links) < 2 and left.interval and right.interval:
            wide = _edited(left, torch=_range(left.interval[0], right.interval[1]), upstream=next(iter(links), None))
            wide.text = "".join(f"{comment}\n" for comment in _comments(right)) + wide.text
            tables[first : first + 2] = [wide]


def _range(low: Version, high: Version | None) -> str:
    return f">={low}" if high is None else f">={low},<{high}"


def _new(torch: str, upstream: str | None, outcomes: Mapping[str, Kind]) -> _Table:
    lines = ["[[release]]", f'torch = "{torch}"']
    if upstream is not None:
        lines.append(f'upstream = "{upstream}"')
    lines += ["[release.outcomes]", *(f'{_key(fix)} = "{kind}"' for fix, kind in outcomes.items())]
    return _Table("\n".join(lines) + "\n", SpecifierSet(torch), upstream, dict(outcomes))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def _edited(
    table: _Table, *, torch: str, upstream: str | None = None, outcomes: Mapping[str, Kind] | None = None
) -> _Table:
    """``table`` with other values, and everything else as it is written."""
    # Only who writes needs it, so reading does without.
    import tomlkit

    document = tomlkit.parse(table.text)
    # Tools that check the text see any value; a table that was read has this shape.
    written: Any = document["release"][0]
    if SpecifierSet(written["torch"]) != SpecifierSet(torch):
        written["torch"] = torch
    if upstream is not None and "upstream" not in written:
        # Values come before tables, or they would belong to the last of those.
        fresh = _new(torch, upstream, {**table.outcomes, **(outcomes or {})})
        fresh.text = "".join(f"{comment}\n" for comment in _comments(table)) + fresh.text
        return fresh
    for fix, kind in (outcomes or {}).items():
        if written["outcomes"].get(fix) != kind.value:
            written["outcomes"][fix] = kind.value
    return _Table(
        tomlkit.dumps(document), SpecifierSet(torch), table.upstream, {**table.outcomes, **(outcomes or {})}
    )


def _comments(table: _Table) -> list[str]:
    """Every comment of a table, on lines of their own."""
    import tomlkit
    from tomlkit.items import AoT, Table, Whitespace

    def walk(table: Any) -> Iterable[str]:
        for _, item in table.body:
            if not isinstance(item, Whitespace) and item.trivia.comment:
                yield item.trivia.comment
            for inner in item.body if isinstance(item, AoT) else [item]:
                if isinstance(inner, Table):
                    yield from walk(inner.value)

    return list(walk(tomlkit.parse(table.text)))
