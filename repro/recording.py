"""A recorded run: what ``--json`` wrote, read back for an exact replay.

Forward compatible: the trace is compared at the seams and locks that stood when it was recorded, so a seam that a
release gains does not break an old schedule. Fields that are not known here are ignored; another schema is an error.

A file may hold one run for each of several releases: a cell with a ``torch`` of its own is of that release. On a
release that it does not list, the last one is replayed, and leaving its path says nothing about the race. Where it
holds several runs of one release, under several fixes or of several races, the one that shows a race is meant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from repro import fixes, races
from repro.expectations import PROCESSES, fixtures
from repro.experiment import Experiment, Observation
from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule, ScheduleError, first_divergence, steps_to_json
from repro.outcome import Kind
from repro.workloads import Workload

SCHEMA = 1
# The commands whose files hold runs that can be replayed.
RUNS = ("run", "explore", "audit", "matrix", "gate")
# So many runs are named where one must be chosen.
_NAMED = 6


@dataclass(frozen=True)
class Recording:
    """What was run (``race``, ``fix``, ``schedule``), where (``torch``, ``seams``), and what was seen.

    ``asked`` is the schedule that was meant to be followed, ``schedule`` the one that was: a lock may have refused a
    switch. ``workloads`` ``None`` are the race's own. ``signature`` is that of the observation, where it was kept.
    ``devices`` are those that it ran on, ``raised`` the type of what each thread raised, where that was kept. Of a
    callable that was audited, ``known`` are the races of the catalogue that it was found to have.
    """

    race: str
    fix: str
    torch: str
    schedule: Schedule
    seams: tuple[str, ...]
    trace: tuple[str, ...]
    outcome: Kind
    asked: Schedule
    workloads: tuple[Workload, ...] | None = None
    signature: str = ""
    devices: tuple[str, ...] = ("cpu",)
    raised: Mapping[str, str] = field(default_factory=dict)
    known: tuple[str, ...] = ()

    def experiment(self) -> Experiment:
        if self.fix == PROCESSES:
            return Experiment(race=self.race, processes=True, workloads=self.workloads, devices=self.devices)
        return Experiment(
            race=self.race,
            fix=self.fix,
            strategy=Replay(self.schedule),
            workloads=self.workloads,
            devices=self.devices,
        )

    def lists(self, torch: str) -> bool:
        """Whether this was recorded on the release ``torch``."""
        return release_of(self.torch) == release_of(torch)

    def alike(self, observation: Observation) -> bool:
        """Whether ``observation`` came to what was recorded: its signature, or the outcome where no more was kept."""
        kept = self.signature or self.outcome.value
        return observation.outcome.kind is self.outcome and kept in (observation.signature, self.outcome.value)

    def divergence(self, observation: Observation) -> str | None:
        """Where the seam trace of a replay left the recorded one; ``None`` where it did not."""
        new = set(observation.seams) - set(self.seams)
        # A modelled lock has two points of its own.
        known = [
            step
            for step in observation.steps
            if new.isdisjoint({step.seam, step.seam.removeprefix("wait:"), step.seam.removesuffix(".acquire")})
        ]
        return first_divergence(self.trace, steps_to_json(known))


def release_of(torch: str) -> str:
    """The release of a build: what follows ``+`` says only how it was built."""
    return torch.partition("+")[0]


def nondeterminism(runs: Sequence[Observation]) -> str | None:
    """How replays of one schedule differ among themselves, in words; ``None`` when they do not."""
    first = runs[0]
    for number, run in enumerate(runs[1:], start=2):
        if run.signature != first.signature:
            return f"run 1 ended {first.signature}, run {number} {run.signature}"
        if divergence := first_divergence(steps_to_json(first.steps), steps_to_json(run.steps)):
            return f"run 1 and run {number} part at {divergence}"
    return None


def unproven(runs: Sequence[Observation], recording: Recording | None = None, torch: str | None = None) -> str | None:
    """Why these replays say nothing, in words; ``None`` when they say something.

    Given the ``recording`` and the ``torch`` that replayed it, it counts too whether the path of another release was
    left.
    """
    for run in runs:
        if not run.conclusive:
            return run.outcome.reason
        absent = [switch for switch in run.switches if switch.status == "absent"]
        if absent and not run.failed:
            return f"the schedule was not reached: {absent[0]}"
        if not run.steps and not run.failed:
            return "no schedule ran"
    if differs := nondeterminism(runs):
        return f"not deterministic: {differs}"
    if recording is not None and torch is not None and not recording.lists(torch):
        divergence = next(filter(None, map(recording.divergence, runs)), None)
        if divergence is not None:
            return f"left the path of torch {recording.torch} at {divergence}"
    return None


def load(file: str, torch: str | None = None, place: tuple[str, str] | None = None) -> Recording:
    """Read the run of ``file`` that was recorded on ``torch``; without such a run, the last one.

    ``place``, a race and a fix, says which run is meant where there are several. Raises
    :class:`repro.interleave.ScheduleError`, which names the file and the place, or the errors for an unknown race or
    fix.
    """
    document = read(file, RUNS)
    if isinstance(document.get("traces"), dict):
        raise ScheduleError(
            f"{file} is a recorded result, which keeps no run whole; fixtures/schedules/ has the runs"
        )
    cells = required(document, "cells", list, file)
    if not cells:
        raise ScheduleError(f"{file}: no cell was recorded, so there is nothing to replay")
    default = required(document, "torch", str, file)
    own = [cell.get("torch") if isinstance(cell, dict) else None for cell in cells]
    torches = [each if isinstance(each, str) else default for each in own]
    number = _chosen(file, cells, torches, torch, place)
    cell = cells[number]
    where = _where(file, cells, number)
    try:
        Version(torches[number])
    except InvalidVersion:
        raise ScheduleError(f"{where}: 'torch' is {torches[number]!r}, which is no version") from None
    recording = Recording(
        race=required(cell, "race", str, where),
        fix=required(cell, "fix", str, where),
        torch=torches[number],
        schedule=_schedule(required(cell, "schedule", str, where), where),
        seams=strings(cell, "seams", where),
        trace=strings(cell, "trace", where),
        outcome=outcome_named(required(cell, "outcome", str, where), where),
        asked=_asked(cell, where),
        workloads=_workloads(cell, where),
        signature=required(cell, "signature", str, where) if "signature" in cell else "",
        devices=strings(document, "devices", file) if "devices" in document else ("cpu",),
        raised=_raised(cell),
        known=_known(document.get("found")),
    )
    races.documentation(recording.race)
    if recording.fix != PROCESSES:
        fixes.check(recording.fix)
    return recording


def _raised(cell: Any) -> dict[str, str]:
    """The type of what each thread raised; who only replays it needs none, so nothing is asked of the file."""
    details = cell.get("details")
    errors = details.get("errors") if isinstance(details, dict) else None
    return {
        thread: error["type"]
        for thread, error in (errors.items() if isinstance(errors, dict) else ())
        if isinstance(error, dict) and isinstance(error.get("type"), str)
    }


def _known(found: Any) -> tuple[str, ...]:
    """The races that an audit named; who only replays it needs none."""
    named = found.get("races") if isinstance(found, dict) else None
    return tuple(race for race in named if isinstance(race, str)) if isinstance(named, list) else ()


def _where(file: str, cells: Sequence[Any], number: int) -> str:
    return f"{file}: the last cell" if number == len(cells) - 1 else f"{file}: cell {number + 1}"


def _chosen(
    file: str, cells: Sequence[Any], torches: Sequence[str], torch: str | None, place: tuple[str, str] | None
) -> int:
    """Which of the ``cells`` is meant. Where nothing says so it is refused: a run must not stand for another one."""
    places = {}
    for number, cell in enumerate(cells):
        where = _where(file, cells, number)
        places[number] = (required(cell, "race", str, where), required(cell, "fix", str, where))
    numbers = [number for number, each in places.items() if place in (None, each)]
    if place is not None and not numbers:
        under = "without a fix" if place[1] == fixes.NONE else f"under {place[1]}"
        near = [each for each in places.values() if each[0] == place[0]] or places.values()
        raise ScheduleError(f"{file} has no run of {place[0]} {under}; it has {_names(near)}")
    # Of several releases: this one, or else the last.
    same = [number for number in numbers if torch and release_of(torches[number]) == release_of(torch)]
    same = same or [n for n in numbers if release_of(torches[n]) == release_of(torches[numbers[-1]])]
    if len({places[number] for number in same}) == 1:
        return same[-1]
    shown = [n for n in same if cells[n].get("outcome") not in (None, Kind.OK.value, Kind.INCONCLUSIVE.value)]
    if len(shown) == 1:
        return shown[0]
    raise ScheduleError(
        f"{file} has {len(same)} runs, of which {f'{len(shown)} show' if shown else 'none shows'} a race: choose one "
        f"with --cell RACE/FIX; there are {_names(places[number] for number in shown or same)}"
    )


def _names(places: Iterable[tuple[str, str]]) -> str:
    names = list(dict.fromkeys("/".join(place) for place in places))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def recorded_schedule(race: str, torch: str) -> Schedule | None:
    """The schedule that was recorded to show ``race`` on exactly this release; ``None`` where there is none."""
    file = fixtures() / "schedules" / f"{race}.json"
    if not file.is_file():
        return None
    recording = load(str(file), torch)
    shows = recording.outcome not in (Kind.OK, Kind.INCONCLUSIVE)
    return recording.schedule if shows and recording.fix == fixes.NONE and recording.lists(torch) else None


def add(race: str, cell: Mapping[str, Any], torch: str, folder: Path | None = None) -> Path | None:
    """Add a run to the recorded schedules of ``race``. Returns the file; ``None`` where it lists this release."""
    path = (folder or fixtures() / "schedules") / f"{race}.json"
    if not path.is_file() or load(str(path), torch).lists(torch):
        return None
    document = read(str(path))
    # The last one is replayed on releases that nobody recorded: it stays the last.
    document["cells"].insert(0, {**cell, "torch": torch})
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return path


def read(file: str, wrote: Sequence[str] = ()) -> Any:
    """The document that ``--json`` wrote into ``file``; if commands are given, by one of those that ``wrote`` it.

    What no command wrote is for the reader to judge. Raises :class:`repro.interleave.ScheduleError`.
    """
    try:
        document = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ScheduleError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ScheduleError(f"{file}: not valid JSON: {error}") from None
    schema = required(document, "schema", int, file)
    if schema != SCHEMA:
        raise ScheduleError(f"{file}: schema {schema} is not {SCHEMA}, the one this version reads; record it again")
    command = document.get("command")
    if wrote and isinstance(command, str):
        give = f"give what {' or '.join(filter(None, [', '.join(wrote[:-1]), wrote[-1]]))} wrote with --json"
        if command not in wrote:
            raise ScheduleError(f"{file} is what {command} wrote; {give}")
        if command == "gate" and "cells" not in document:
            raise ScheduleError(f"{file} is what gate wrote without measuring, so no cell is in it; {give}")
    return document


def required(data: Any, name: str, kind: type, where: str) -> Any:
    """``data[name]``, which must be a ``kind``. Raises :class:`repro.interleave.ScheduleError`."""
    if not isinstance(data, dict) or name not in data:
        raise ScheduleError(f"{where}: no field {name!r}; is this a file that --json wrote?")
    if type(data[name]) is not kind:
        raise ScheduleError(f"{where}: {name!r} is of type {type(data[name]).__name__}, not {kind.__name__}")
    return data[name]


def strings(data: Any, name: str, where: str) -> tuple[str, ...]:
    """``data[name]``, which must be a list of strings. Raises :class:`repro.interleave.ScheduleError`."""
    found = required(data, name, list, where)
    for index, item in enumerate(found):
        if not isinstance(item, str):
            raise ScheduleError(f"{where}: '{name}[{index}]' is of type {type(item).__name__}, not str")
    return tuple(found)


def _schedule(line: str, where: str) -> Schedule:
    try:
        return Schedule.parse(line)
    except ScheduleError as error:
        raise ScheduleError(f"{where}: {error}") from None


def _asked(cell: Any, where: str) -> Schedule:
    """The switches that were asked for, also those that were refused; else the ones that were taken.

    Of a run that crashed nothing is kept but its schedule, which then is what was asked for.
    """
    switches = strings(cell, "switches", where) if "switches" in cell else ()
    if not switches:
        return _schedule(required(cell, "schedule", str, where), where)
    return _schedule(", ".join(line.partition(" ")[0] for line in switches), where)


def _workloads(cell: Any, where: str) -> tuple[Workload, ...] | None:
    if cell.get("workloads") is None:
        return None
    found = []
    for index, data in enumerate(required(cell, "workloads", list, where)):
        try:
            found.append(Workload.from_json(data))
        except (ValueError, TypeError) as error:
            raise ScheduleError(f"{where}: 'workloads[{index}]': {error}") from None
    return tuple(found)


def outcome_named(value: str, where: str) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise ScheduleError(f"{where}: {value!r} is not an outcome; those are {', '.join(Kind)}") from None
