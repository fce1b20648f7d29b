"""A recorded run: the JSON that ``run --json`` wrote, read back for an exact replay."""

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
from repro.interleave.schedule import Schedule, ScheduleError, first_divergence, read_field

SCHEMA = 1


@dataclass(frozen=True)
class Recording:
    """What was run (``race``, ``fix``, ``schedule``), where (``torch``), and what was seen (``trace``, ``outcome``)."""

    race: str
    fix: str
    torch: str
    schedule: Schedule
    trace: tuple[str, ...]
    outcome: str

    def experiment(self) -> Experiment:
        if self.fix == PROCESSES:
            return Experiment(race=self.race, processes=True)
        return Experiment(race=self.race, fix=self.fix, strategy=Replay(self.schedule))

    def divergence(self, observation: Observation) -> str | None:
        """Where the seam trace of a replay left the recorded one; ``None`` where it did not."""
        return first_divergence(self.trace, [str(step) for step in observation.steps])


def nondeterminism(runs: Sequence[Observation]) -> str | None:
    """How replays of one schedule differ among themselves, in words; ``None`` when they do not."""
    first = runs[0]
    for number, run in enumerate(runs[1:], start=2):
        if run.signature != first.signature:
            return f"run 1 ended {first.signature}, run {number} {run.signature}"
        if divergence := first_divergence([*map(str, first.steps)], [*map(str, run.steps)]):
            return f"run 1 and run {number} part at {divergence}"
    return None


def load(file: str) -> Recording:
    """Read ``file``. Raises :class:`repro.interleave.ScheduleError` or the errors for an unknown race or fix."""
    try:
        document: Any = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ScheduleError(f"cannot read {file}: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ScheduleError(f"{file}: not valid JSON: {error}") from None
    schema = read_field(document, "schema", int, file)
    if schema != SCHEMA:
        raise ScheduleError(f"{file}: schema {schema} is not {SCHEMA}, the one this version reads")
    cells = read_field(document, "cells", list, file)
    if not cells:
        raise ScheduleError(f"{file}: no cell was recorded, so there is nothing to replay")
    cell, where = cells[-1], f"{file}: the last cell"
    recording = Recording(
        race=read_field(cell, "race", str, where),
        fix=read_field(cell, "fix", str, where),
        torch=read_field(document, "torch", str, file),
        schedule=_schedule(read_field(cell, "schedule", str, where), where),
        trace=tuple(read_field(cell, "trace", list, where)),
        outcome=read_field(cell, "outcome", str, where),
    )
    races.documentation(recording.race)
    if recording.fix != PROCESSES:
        fixes.check(recording.fix)
    return recording


def _schedule(line: str, where: str) -> Schedule:
    try:
        return Schedule.parse(line)
    except ScheduleError as error:
        raise ScheduleError(f"{where}: {error}") from None
