"""A recorded run: what ``--json`` wrote, read back for an exact replay.

Forward compatible: the trace is compared at the seams and locks that stood when it was recorded, so a seam that a
release gains does not break an old schedule. Fields that are not known here are ignored; another schema is an error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import fixes, races
from repro.expectations import PROCESSES
from repro.experiment import Experiment, Observation
from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule, ScheduleError, first_divergence, steps_to_json
from repro.outcome import Kind
from repro.workloads import Workload

SCHEMA = 1


@dataclass(frozen=True)
class Recording:
    """What was run (``race``, ``fix``, ``schedule``), where (``torch``, ``seams``), and what was seen.

    ``asked`` is the schedule that was meant to be followed, ``schedule`` the one that was: a lock may have refused a
    switch. ``workloads`` ``None`` are the race's own.
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

    def experiment(self) -> Experiment:
        if self.fix == PROCESSES:
            return Experiment(race=self.race, processes=True, workloads=self.workloads)
        return Experiment(race=self.race, fix=self.fix, strategy=Replay(self.schedule), workloads=self.workloads)

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


def nondeterminism(runs: Sequence[Observation]) -> str | None:
    """How replays of one schedule differ among themselves, in words; ``None`` when they do not."""
    first = runs[0]
    for number, run in enumerate(runs[1:], start=2):
        if run.signature != first.signature:
            return f"run 1 ended {first.signature}, run {number} {run.signature}"
        if divergence := first_divergence(steps_to_json(first.steps), steps_to_json(run.steps)):
            return f"run 1 and run {number} part at {divergence}"
    return None


def unproven(runs: Sequence[Observation]) -> str | None:
    """Why these replays say nothing, in words; ``None`` when they say something."""
    for run in runs:
        if not run.conclusive:
            return run.outcome.reason
        absent = [switch for switch in run.switches if switch.status == "absent"]
        if absent and not run.failed:
            return f"the schedule was not reached: {absent[0]}"
        if not run.steps and not run.failed:
            return "no schedule ran"
    differs = nondeterminism(runs)
    return f"not deterministic: {differs}" if differs else None


def load(file: str) -> Recording:
    """Read the last cell of ``file``.

    Raises :class:`repro.interleave.ScheduleError`, which names the file and the place, or the errors for an unknown
    race or fix.
    """
    try:
        document: Any = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ScheduleError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ScheduleError(f"{file}: not valid JSON: {error}") from None
    schema = _field(document, "schema", int, file)
    if schema != SCHEMA:
        raise ScheduleError(f"{file}: schema {schema} is not {SCHEMA}, the one this version reads; record it again")
    cells = _field(document, "cells", list, file)
    if not cells:
        raise ScheduleError(f"{file}: no cell was recorded, so there is nothing to replay")
    cell, where = cells[-1], f"{file}: the last cell"
    recording = Recording(
        race=_field(cell, "race", str, where),
        fix=_field(cell, "fix", str, where),
        torch=_field(document, "torch", str, file),
        schedule=_schedule(_field(cell, "schedule", str, where), where),
        seams=_strings(cell, "seams", where),
        trace=_strings(cell, "trace", where),
        outcome=_outcome(_field(cell, "outcome", str, where), where),
        asked=_schedule(
            ", ".join(line.partition(" ")[0] for line in _strings(cell, "switches", where)) or "-", where
        ),
        workloads=_workloads(cell, where),
    )
    races.documentation(recording.race)
    if recording.fix != PROCESSES:
        fixes.check(recording.fix)
    return recording


def _field(data: Any, name: str, kind: type, where: str) -> Any:
    if not isinstance(data, dict) or name not in data:
        raise ScheduleError(f"{where}: no field {name!r}; is this a file that --json wrote?")
    if type(data[name]) is not kind:
        raise ScheduleError(f"{where}: {name!r} is of type {type(data[name]).__name__}, not {kind.__name__}")
    return data[name]


def _strings(data: Any, name: str, where: str) -> tuple[str, ...]:
    found = _field(data, name, list, where)
    for index, item in enumerate(found):
        if not isinstance(item, str):
            raise ScheduleError(f"{where}: '{name}[{index}]' is of type {type(item).__name__}, not str")
    return tuple(found)


def _schedule(line: str, where: str) -> Schedule:
    try:
        return Schedule.parse(line)
    except ScheduleError as error:
        raise ScheduleError(f"{where}: {error}") from None


def _workloads(cell: Any, where: str) -> tuple[Workload, ...] | None:
    if cell.get("workloads") is None:
        return None
    found = []
    for index, data in enumerate(_field(cell, "workloads", list, where)):
        try:
            found.append(Workload.from_json(data))
        except (ValueError, TypeError) as error:
            raise ScheduleError(f"{where}: 'workloads[{index}]': {error}") from None
    return tuple(found)


def _outcome(value: str, where: str) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise ScheduleError(f"{where}: {value!r} is not an outcome; those are {', '.join(Kind)}") from None
