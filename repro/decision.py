"""Which fix for which situation, from what is recorded: pure functions on reports.

Nothing here knows a race: what a situation needs is what fails without a fix on that release, and a fix covers it
when it holds against all of that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import fixes, races, results
from repro.expectations import PROCESSES
from repro.fixes import NONE
from repro.outcome import Kind
from repro.recording import release_of
from repro.results import Report, ReportError


@dataclass(frozen=True)
class Cost:
    """Throughput under a fix as a share of that without, with 95 % bounds, and what was compiled and held for it."""

    ratio: float
    low: float
    high: float
    recompiles: int
    peak_bytes: int


# By fix and workload: what it costs, or what a drafter raised under it.
Costs = Mapping[tuple[str, str], Cost | str]


@dataclass(frozen=True)
class Covered:
    """What one fix comes to against the races of a situation that show without a fix."""

    fix: str
    holds: tuple[str, ...]
    fails: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return not self.fails


@dataclass(frozen=True)
class Situation:
    """``needed`` are the races that show without a fix on this release; ``fixes`` the best first."""

    text: str
    needed: tuple[str, ...]
    fixes: tuple[Covered, ...]


@dataclass(frozen=True)
class Broken:
    """A trap, and a recorded schedule by which it fails while the fix that it looks like, ``proper``, holds.

    ``race`` is ``None`` where there is no such schedule.
    """

    trap: str
    proper: str
    fails: tuple[str, ...]
    tried: int
    race: str | None
    outcome: str
    schedule: str


@dataclass(frozen=True)
class Release:
    """All that is said of one release."""

    torch: str
    situations: tuple[Situation, ...]
    traps: tuple[Broken, ...]
    costs: Costs


def releases(records: Sequence[Report], apart: Sequence[Report], costs: Mapping[str, Costs]) -> list[Release]:
    """Each recorded release, the newest first; of several Pythons the newest one counts."""
    found = []
    for version, record in sorted({record.version: record for record in records}.items(), reverse=True):
        beside = results.best(apart, version, record.minor)
        cells = {**record.cells, **(beside.cells if beside else {})}
        cost = costs.get(str(version), {})
        found.append(
            Release(
                str(version),
                tuple(_situations(cells)),
                tuple(_broken(trap, cells) for trap in fixes.traps() if any(fix == trap for _, fix in cells)),
                cost,
            )
        )
    return found


def traps_on_cuda(records: Sequence[Report], apart: Sequence[Report]) -> list[tuple[str, Broken]]:
    """What looks like a fix, is none, and can be told on CUDA alone, by release; all reports are of there."""
    found = []
    for beside in apart:
        record = results.best(records, beside.version, beside.minor)
        cells = {**(record.cells if record else {}), **beside.cells}
        found += [(str(beside.version), _broken(trap, cells)) for trap in fixes.ON_CUDA]
    return found


_Cells = Mapping[tuple[str, str], results.Seen]


def _situations(cells: _Cells) -> Iterable[Situation]:
    shown = [race for (race, fix), cell in cells.items() if fix == NONE and cell.failed]
    threads = [race for race in races.names(races.THREADS) if race in shown]
    # Without a switch the threads run one after another: one of them does not need the others to fail.
    alone = [race for race in threads if cells[race, NONE].schedule == "-"]
    together = [race for race in threads if race not in alone and not race.endswith(races.FOREIGN)]
    # Right and block-sparse: a matter of how attention is called, not of who calls at the same time.
    costly = [race for race in alone if cells[race, NONE].outcome is Kind.WASTEFUL]
    processes = [race for race in races.names(races.PROCESSES) if race in shown]
    for text, needed in (
        ("threads of yours, each of them right by itself", together),
        (
            "many masks, a mistaken call, a limit that was raised in another thread: one thread is enough",
            [race for race in alone if race not in costly],
        ),
        (
            "all of these, and a library that traces or compiles beside you",
            [race for race in threads if race not in costly],
        ),
        ("another length on every call, or a mask of very many tokens: one thread is enough", costly),
        ("processes on one cache directory", processes),
    ):
        yield _situation(text, tuple(needed), cells)


def _situation(text: str, needed: tuple[str, ...], cells: _Cells) -> Situation:
    covered = []
    for fix in dict.fromkeys(fix for _, fix in cells):
        seen = {race: cells[race, fix] for race in needed if (race, fix) in cells}
        # A fix counts where it was tried against everything.
        if fix in (NONE, PROCESSES, *fixes.traps()) or len(seen) < len(needed) or not seen:
            continue
        holds = tuple(race for race, cell in seen.items() if cell.outcome is Kind.OK)
        covered.append(Covered(fix, holds, tuple(race for race in needed if race not in holds)))

    # Not by cost: on the CPU the differences are within what the measurement is off.
    best_first = sorted(covered, key=lambda one: (len(one.fails), len(fixes.parts(one.fix)), one.fix))
    return Situation(text, needed, tuple(best_first))


def _broken(trap: str, cells: _Cells) -> Broken:
    kind = trap.partition("-")[0]
    proper = kind if kind in fixes.names() else "lock"
    tried = [race for race, fix in cells if fix == trap and (race, NONE) in cells and cells[race, NONE].failed]
    fails = [race for race in tried if cells[race, trap].failed]

    def told(race: str) -> tuple[int, int, str]:
        """What few other traps fail by, and what needs few switches, tells most."""
        others = sum((race, other) in cells and cells[race, other].failed for other in fixes.traps())
        return others, cells[race, trap].schedule.count(">"), race

    telling = [race for race in fails if (race, proper) in cells and cells[race, proper].outcome is Kind.OK]
    race = min(telling, key=told, default=None)
    shown = None if race is None else cells[race, trap]
    return Broken(
        trap,
        proper,
        tuple(fails),
        len(tried),
        race,
        "" if shown is None else str(shown.outcome),
        "" if shown is None else shown.schedule,
    )


def load_costs(folder: Path | None = None) -> dict[str, Costs]:
    """By release what ``tests/benchmarks/fixes.py`` recorded. Raises :class:`ReportError`."""
    found: dict[str, Costs] = {}
    for file in sorted((folder or results.folder()).glob("throughput-torch-*.json")):
        try:
            document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            costs: dict[tuple[str, str], Cost | str] = {
                (row["fix"], row["workload"]): row["said"].partition(" (")[0] for row in document["failed"]
            }
            costs |= {
                (row["fix"], row["workload"]): Cost(
                    row["ratio"], row["low"], row["high"], row["recompiles"], row["peak_bytes"]
                )
                for row in document["rows"]
            }
            found[release_of(document["torch"])] = costs
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReportError(f"{file}: not what tests/benchmarks/fixes.py writes: {error!r}") from None
    return found
