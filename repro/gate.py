"""The upgrade gate: one red or green answer about a release of torch, with reasons. Pure functions on reports.

Strict both ways: a race that should appear and does not is as red as one that should not and does. Good news is red
until somebody acknowledges it (``gate --update``), or nobody would learn that a workaround can go. A failure is known
by its exception type, the torch frame and, on the same Python, the seam trace; never by its message.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from packaging.version import Version

from repro import expectations, races, recording, results, surface
from repro.expectations import PROCESSES, Expected
from repro.fixes import NONE
from repro.interleave.schedule import first_divergence
from repro.outcome import Kind
from repro.results import Place, Report, Seen
from repro.surface import Difference
from repro.verdict import Standing

ACKNOWLEDGE = "acknowledge with gate --update" + (", in a checkout" if expectations.installed() else "")


class Word(str, Enum):
    """What one cell is, against what is known of it."""

    SAME = "as recorded"
    BETTER = "better"
    WORSE = "worse"
    OTHER = "other"
    NEW = "new"
    LOST = "lost"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Known:
    """The yardstick: outcomes by cell, and the report that has their signatures, where there is one."""

    label: str
    outcomes: Mapping[Place, Expected]
    report: Report | None = None
    notes: tuple[str, ...] = ()
    # Another release: what differs from it is no news about this one, to be acknowledged or not.
    other: bool = False


@dataclass(frozen=True)
class Change:
    """One cell, or one seam (``race`` is then :data:`SEAM`), in a word and a sentence."""

    race: str
    fix: str
    word: Word
    text: str
    was: str = ""
    now: str = ""
    upstream: str | None = None

    @property
    def red(self) -> bool:
        return self.word is not Word.SAME

    @property
    def id(self) -> str:
        """The same on every release."""
        return f"{self.race}/{self.fix}"


SEAM = "seam"
SEARCH = "search"
# So many cells are named though nothing is wrong with them: somebody has asked for them by name.
FEW = 12


@dataclass(frozen=True)
class Gate:
    """The answer. ``meaning`` says by fix what the changes come to; ``notes`` what else a reader must know.

    ``surface`` is what changed in torch's source against the release that this one is compared with: it is no
    verdict, and makes nothing red.
    """

    torch: str
    python: str
    against: str
    changes: tuple[Change, ...]
    gained: tuple[str, ...] = ()
    meaning: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    surface: Difference | None = None
    device: str = results.CPU

    @property
    def title(self) -> str:
        return f"torch {self.torch}{results.on(self.device)}"

    @property
    def red(self) -> list[Change]:
        return [change for change in self.changes if change.red]

    @property
    def told(self) -> list[Change]:
        """What is named one by one: the red ones, and of an answer about few cells every one."""
        return list(self.changes) if len(self.changes) <= FEW else self.red

    @property
    def standing(self) -> Standing:
        """Inconclusive before anything else, as everywhere: no cell at all, or one that says nothing."""
        unsaid = (Word.INCONCLUSIVE, Word.LOST)
        cells = [change for change in self.changes if change.race != SEAM]
        if not cells or any(change.word in unsaid for change in cells):
            return Standing.INCONCLUSIVE
        return Standing.NOT if self.red else Standing.AS_EXPECTED


# ---- yardsticks ---------------------------------------------------------------------------------------------------


def release(
    report: Report,
    places: Iterable[Place],
    records: Sequence[Report],
    expected: Path | None = None,
    *,
    apart: Sequence[Report] = (),
) -> Known:
    """What is written down of the report's own release, and of a new one what is known of the newest.

    On a device nothing is written down but records: what is known is what its own release came to there, or the
    newest. ``records`` are of the report's sort of device; ``apart`` are those of what is no column of the matrix.
    """
    own = results.best(records, report.version, report.minor)
    older = None if own is not None else results.newest(records, report.version, report.minor)
    there = own or older
    outcomes = {}
    beside = results.best(apart, report.version, report.minor)
    for race, fix in places:
        known = expectations.expected(race, fix, report.torch, expected)
        if report.device != results.CPU:
            seen = there.cells.get((race, fix)) if there is not None else None
            known = None if seen is None else Expected(seen.outcome, known.upstream if known else None)
        if known is None and beside is not None and (race, fix) in beside.cells:
            known = Expected(beside.cells[race, fix].outcome, None)
        if known is not None:
            outcomes[race, fix] = known
    if own is not None:
        return Known(f"what is recorded of {own.title}", outcomes, own)
    if older is None:
        return Known("what is expected of this release", outcomes, notes=("no release is recorded yet",))
    last = max(record.version for record in records)
    why = "is newer than any recorded release" if report.version > last else "is not recorded"
    note = f"{report.title} {why}: it is compared with torch {older.version}"
    return Known(f"what is known of {older.title}", outcomes, older, (note,))


def other(report: Report) -> Known:
    """Another release, by its report."""
    return Known(
        f"{report.title} (Python {report.minor})",
        {place: Expected(seen.outcome, None) for place, seen in report.cells.items() if seen.conclusive},
        report,
        other=True,
    )


def upgrade(old: Version, new: Version, *, here: bool) -> tuple[Difference | None, list[str]]:
    """What changed on the surface between two releases, or in words why that is not known; of one release nothing.

    Inventories are committed; of a ``new`` one that has none the source is read where it is the torch that is
    ``here``, which takes some twenty seconds.
    """
    if old == new:
        return None, []
    missing = [str(version) for version in (old, new) if str(version) not in surface.releases()]
    if not missing:
        return surface.compare(str(old), str(new)), []
    if missing == [str(new)] and here:
        return surface.compare(str(old)), []
    hint = f"python -m repro surface --diff {old} {new}, with a Python that has it in its place, reads the source"
    return None, [f"no inventory of torch {' and '.join(missing)} is recorded: {hint}"]


# ---- comparison ---------------------------------------------------------------------------------------------------


def compare(
    known: Known,
    report: Report,
    places: Iterable[Place],
    *,
    notes: Iterable[str] = (),
    surface: Difference | None = None,
) -> Gate:
    """Every cell of ``places`` against the yardstick, and the seams; nothing is left out in silence.

    ``surface`` is what :func:`upgrade` found.
    """
    wanted = list(dict.fromkeys(places))
    cells = [_cell(place, known, report) for place in wanted]
    elsewhere = [
        Change(look.race, SEARCH, Word.WORSE, f"appears by another schedule, {look.found}: {look.text}")
        for look in report.looks
        if look.found
    ]
    lost, gained = _seams(known.report, report, {race for race, _ in wanted})
    gone = "does not stand any more" + ("" if known.other else f": mend repro/torch_names.toml, or {ACKNOWLEDGE}")
    return Gate(
        torch=report.torch,
        python=report.python,
        against=known.label,
        changes=(*cells, *elsewhere, *(Change(SEAM, name, Word.LOST, f"seam {name} {gone}") for name in lost)),
        gained=tuple(gained),
        meaning=tuple(_meaning(cells, known)),
        notes=(*known.notes, *notes, *(f"{look.race}: {look.text}" for look in report.looks if not look.found)),
        surface=surface,
        device=report.device,
    )


def _cell(place: Place, known: Known, report: Report) -> Change:
    race, fix = place
    was = known.outcomes.get(place)
    seen = report.cells.get(place)
    say = "" if known.other else f"; {ACKNOWLEDGE}"

    def change(word: Word, text: str) -> Change:
        before = "" if was is None else was.outcome.value
        now = "" if seen is None else seen.outcome.value
        return Change(race, fix, word, text, before, now, None if was is None else was.upstream)

    if seen is None:
        return change(Word.LOST, "did not run")
    if not seen.conclusive:
        return change(Word.INCONCLUSIVE, f"says nothing: {seen.reason or 'the run was inconclusive'}")
    if was is None:
        return change(Word.NEW, f"nothing is recorded of it; it came to {seen.outcome}{say}")
    if was.outcome is Kind.OK and seen.outcome is not Kind.OK:
        return change(Word.WORSE, _worse(fix, seen.outcome))
    if was.outcome is not Kind.OK and seen.outcome is Kind.OK:
        bare = report.cells.get((race, NONE))
        gone = bare is not None and bare.outcome is Kind.OK
        return change(Word.BETTER, f"{_better(fix, was.outcome, gone=gone)}{say}")
    if seen.by == "search":
        # A search may meet another failure first than the one that is written down.
        return change(Word.SAME, str(seen.outcome))
    if was.outcome is not seen.outcome:
        return change(Word.OTHER, f"fails in another way: {seen.outcome}, recorded {was.outcome}")
    reference = known.report.cells.get(place) if known.report is not None else None
    if known.report is not None and reference is not None and reference.outcome is seen.outcome and seen.failed:
        if reference.signature != seen.signature:
            return change(Word.OTHER, f"fails in another way: {seen.signature}, recorded {reference.signature}")
        if path := _parted(race, known.report, reference, report, seen):
            return change(Word.OTHER, f"fails in another way: {seen.signature} by another path, {path}")
    return change(Word.SAME, str(seen.outcome))


def _seams(before: Report | None, now: Report, races: Iterable[str]) -> tuple[list[str], list[str]]:
    """The seams that were lost and those that came, over the races of which both reports know the seams."""
    lost: dict[str, None] = {}
    gained: dict[str, None] = {}
    for race in sorted(races):
        old, new = (before.seams.get(race) if before else None), now.seams.get(race)
        if old and new:
            lost.update(dict.fromkeys(name for name in old if name not in new))
            gained.update(dict.fromkeys(name for name in new if name not in old))
    return list(lost), list(gained)


def _parted(race: str, before: Report, reference: Seen, now: Report, seen: Seen) -> str | None:
    """Where two runs went apart, at the seams that both releases have; ``None`` where nowhere.

    On another Python the way to the same failure may be another.
    """
    if before.minor != now.minor or not (reference.trace and seen.trace):
        return None
    one_sided = set(before.seams.get(race, ())) ^ set(now.seams.get(race, ()))

    def shared(trace: Sequence[str]) -> list[str]:
        return [step for step in trace if _seam(step) not in one_sided]

    return first_divergence(shared(reference.trace), shared(seen.trace))


def _seam(step: str) -> str:
    """The seam, or the modelled lock, at which a step of a trace stands."""
    return step.partition(":")[2].rpartition("#")[0].removeprefix("wait:").removesuffix(".acquire")


def _worse(fix: str, now: Kind) -> str:
    if fix == NONE:
        return f"appears ({now}), which it did not"
    if fix == PROCESSES:
        return f"appears in processes too ({now}), which share no Python state"
    return f"fix {fix} no longer holds ({now})"


def _better(fix: str, was: Kind, *, gone: bool) -> str:
    """``gone``: the race does not appear without a fix either, so it is not the fix that helps."""
    if fix == NONE:
        remove = "remove the workaround, where it is for this race alone"
        return f"does not appear any more (it was {was}): fixed upstream: {remove}"
    if fix == PROCESSES:
        return f"does not appear in processes any more (it was {was})"
    if gone:
        return f"does not appear any more (it was {was}), with fix {fix} as without"
    return f"fix {fix} holds now (it was {was})"


def _meaning(cells: Iterable[Change], known: Known) -> Iterable[str]:
    """What the changes mean to somebody who uses a fix. Nothing where nothing changed between ok and not ok.

    That a fix can go is said only where every race was judged that it is known to hold against.
    """
    by_place = {(cell.race, cell.fix): cell for cell in cells}
    everything = _seen(known)
    ever = [race for (race, fix), outcome in everything.items() if fix == NONE and outcome is not Kind.OK]
    bare = {race: cell for (race, fix), cell in by_place.items() if fix == NONE and cell.was and cell.now}
    showed = [race for race, cell in bare.items() if cell.was != Kind.OK.value]
    shows = [race for race, cell in bare.items() if cell.now not in (Kind.OK.value, Kind.INCONCLUSIVE.value)]
    gone = [race for race in showed if bare[race].now == Kind.OK.value]
    if gone:
        yield f"no fix: {len(gone)} of {len(showed)} races are gone: {', '.join(gone)}"
    for fix in dict.fromkeys(fix for _, fix in by_place if fix not in (NONE, PROCESSES)):
        mine = {race: cell for (race, column), cell in by_place.items() if column == fix}
        said = []
        if broken := [race for race, cell in mine.items() if cell.word is Word.WORSE]:
            said.append(f"no longer holds against {', '.join(broken)}")
        if mended := [race for race, cell in mine.items() if cell.word is Word.BETTER and race in shows]:
            said.append(f"holds now against {', '.join(mended)}")
        held = [race for race, cell in mine.items() if race in showed and cell.was == Kind.OK.value]
        holds = [race for race, cell in mine.items() if race in shows and cell.now == Kind.OK.value]
        needless = [race for race in held if race in gone]
        unasked = [race for race in ever if race not in mine and everything.get((race, fix)) is Kind.OK]
        if needless and not holds and not unasked and len(needless) == len(held):
            said.append(f"can go: all {len(held)} races that it held against are gone")
        elif needless:
            said.append(f"no longer needed against {', '.join(needless)}")
            if holds:
                said.append(f"still holds against {len(holds)}")
                # As before: what became worse was said.
                fails = [race for race, cell in mine.items() if race in shows and race not in [*holds, *broken]]
                said += [f"does not hold against {', '.join(fails)}"] if fails else []
            elif unasked:
                said.append(f"not asked about {len(unasked)} more races that it held against")
        if said:
            yield f"{fix}: {'; '.join(said)}"
    if gone and not shows and bare.keys() >= set(ever):
        yield "no race appears without a fix on this release: workarounds against these races can go"


def _seen(known: Known) -> Mapping[Place, Kind]:
    """Every outcome of the yardstick, of cells that nobody asked about too."""
    seen = {place: cell.outcome for place, cell in known.report.cells.items()} if known.report else {}
    return {**seen, **{place: expected.outcome for place, expected in known.outcomes.items()}}


# ---- records ------------------------------------------------------------------------------------------------------


def acknowledge(
    report: Report,
    link: Callable[[str], str | None],
    expected: Path | None = None,
    recorded: Path | None = None,
    schedules: Path | None = None,
) -> list[Path]:
    """Write what was seen as what is expected of exactly this release; returns the files that changed.

    A race that shows has the schedule recorded for this release too, unless there is one.

    A cell that said nothing is not written. ``link`` gives the upstream link of a race; it is asked only where a
    failure is new.
    """
    report, apart = results.split(report)
    mine = recorded or results.folder(report.device)
    records = results.recorded(mine)
    changed = []
    for race in dict.fromkeys(race for race, _ in report.cells):
        seen = {
            fix: cell.outcome
            for (its, fix), cell in report.cells.items()
            if its == race and cell.conclusive and cell.by == "replay"
        }
        known_on = [str(record.release) for record in records if any(its == race for its, _ in record.cells)]
        if report.device != results.CPU and race not in races.names(races.CUDA):
            # What is written down of it, and its schedules, are of the CPU.
            continue
        if seen and expectations.update(
            race, report.torch, seen, link=functools.partial(link, race), recorded=known_on, folder=expected
        ):
            changed.append((expected or expectations.fixtures() / "expectations") / f"{race}.toml")
        bare = report.cells.get((race, NONE))
        if bare is not None and bare.failed and bare.trace and bare.by == "replay":
            file = recording.add(race, _run(race, bare, report), str(report.version), schedules)
            changed += [] if file is None else [file]
    for part, where in ((report, mine), (apart, results.apart(mine))):
        place = where / part.name
        before = place.read_bytes() if place.is_file() else b""
        if part.cells and results.record(part, where).read_bytes() != before:
            changed.append(place)
    return changed


def _run(race: str, seen: Seen, report: Report) -> dict[str, object]:
    """One run without a fix, as ``replay`` reads it."""
    return {
        "race": race,
        "fix": NONE,
        "outcome": seen.outcome.value,
        "signature": seen.signature,
        "schedule": seen.schedule,
        "seams": list(report.seams.get(race, ())),
        "trace": list(seen.trace),
    }


@dataclass(frozen=True)
class Span:
    """Recorded releases in a row, ``first`` to ``last``, on which a cell came to the same."""

    first: Version
    last: Version
    seen: Seen

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


def bisect(records: Sequence[Report], race: str, fixes: Sequence[str]) -> dict[str, list[Span]]:
    """By column, what ``race`` came to over the recorded releases; the oldest stands first.

    Of a release that is recorded on several Pythons that one counts which most releases are recorded on: a change
    must be one of torch.
    """
    pythons = Counter(record.minor for record in records)
    usual = max(pythons, key=lambda python: pythons[python], default="")
    versions = sorted({record.version for record in records})
    found: dict[str, list[Span]] = {}
    for fix in fixes:
        own = [record for record in records if (race, fix) in record.cells]
        line: list[Span] = []
        for before, version in zip([None, *versions], versions, strict=False):
            record = results.best(own, version, usual)
            if record is None:
                continue
            seen = record.cells[race, fix]
            if line and line[-1].last == before and line[-1].seen.signature == seen.signature:
                line[-1] = replace(line[-1], last=version)
            else:
                line.append(Span(version, version, seen))
        if line:
            found[fix] = line
    return found
