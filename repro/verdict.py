"""From outcomes to verdicts: does a fix hold against a race, on this release?

A verdict *by replay* attempts the race's recorded failing schedule under the fix. The fix holds when nothing went
wrong and every switch was taken, was refused (a thread waits for a lock, and whose it is is known), or stood at a
seam that the fix removes. The same schedule without a fix comes first: where that did not even reach its seams, it
proves nothing about any fix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from repro import races
from repro.expectations import PROCESSES, Expected
from repro.experiment import Experiment, Observation
from repro.fixes import NONE, suits
from repro.interleave.replay import Replay
from repro.laboratory import Laboratory
from repro.outcome import Kind, Outcome
from repro.recording import nondeterminism, recorded_schedule
from repro.results import expectation


class Verdict(str, Enum):
    HOLDS = "HOLDS"
    FAILS = "FAILS"
    INCONCLUSIVE = "INCONCLUSIVE"

    def __str__(self) -> str:
        return self.value


# The exit codes of a command that gives one verdict.
EXIT = {Verdict.HOLDS: 0, Verdict.FAILS: 1, Verdict.INCONCLUSIVE: 3}


@dataclass(frozen=True)
class Cell:
    """One race under one fix on this release; ``fix`` is ``"processes"`` for the control group.

    ``by`` says what the verdict rests on: ``"replay"`` of the recorded schedule, or ``"search"``.
    """

    race: str
    fix: str
    verdict: Verdict
    reason: str
    observation: Observation
    expected: Expected | None = None
    by: str = "replay"

    @property
    def as_expected(self) -> bool:
        """A fix of the user's own has nothing written down: for it, holding is what is expected."""
        if self.expected is None:
            return self.verdict is Verdict.HOLDS
        if self.by == "search":
            # A search may meet another failure first than the one that is written down.
            return self.verdict is (Verdict.HOLDS if self.expected.outcome is Kind.OK else Verdict.FAILS)
        return self.observation.outcome.kind is self.expected.outcome


def judge(race: str, fix: str, observation: Observation, baseline: Observation, release: Expected | None) -> Cell:
    """The verdict of one cell, given the run of the same schedule without a fix (``baseline``)."""
    absent = [switch for switch in observation.switches if switch.status == "absent"]
    unreached = [switch for switch in baseline.switches if switch.status == "absent"]
    outcome = observation.outcome
    if outcome.kind is Kind.INCONCLUSIVE:
        verdict, reason = Verdict.INCONCLUSIVE, outcome.reason
    elif outcome.kind is not Kind.OK:
        verdict, reason = Verdict.FAILS, outcome.reason
    elif not baseline.conclusive:
        verdict, reason = Verdict.INCONCLUSIVE, f"the run without a fix proves nothing: {baseline.outcome.reason}"
    elif fix == NONE and absent:
        verdict, reason = Verdict.INCONCLUSIVE, f"the schedule was not reached: {absent[0]}"
    elif absent and unreached:
        verdict, reason = Verdict.INCONCLUSIVE, f"without a fix the schedule is not reached either: {unreached[0]}"
    elif not observation.steps:
        verdict, reason = Verdict.INCONCLUSIVE, "no schedule ran"
    else:
        verdict = Verdict.HOLDS
        reason = "; ".join(str(switch) for switch in observation.switches) or outcome.reason
    return Cell(race, fix, verdict, reason, observation, release)


def columns(race: str, fixes: Iterable[str], *, controls: bool) -> list[str]:
    """The cells of a race: no fix first, then the ``fixes`` for races of its group, then the control group.

    A race of processes has no control: to be in processes of their own is all that the control group changes.
    """
    group = races.group(race)
    control = [PROCESSES] if controls and group != races.PROCESSES else []
    return [NONE, *(fix for fix in fixes if fix != NONE and suits(fix, group)), *control]


def places(names: Iterable[str], fixes: Sequence[str], *, controls: bool) -> list[tuple[str, str]]:
    """All cells of a matrix as (race, column), race by race."""
    return [(race, column) for race in names for column in columns(race, fixes, controls=controls)]


def matrix(
    laboratory: Laboratory,
    names: Iterable[str],
    fixes: Sequence[str],
    *,
    controls: bool,
    times: int = 1,
    devices: tuple[str, ...] = ("cpu",),
) -> Iterator[Cell]:
    """All cells, race by race; of each race the run without a fix comes first.

    Each cell runs so many ``times``; where the runs differ, it says nothing.
    """
    experiments = [
        _experiment(race, fix, laboratory.torch, devices) for race, fix in places(names, fixes, controls=controls)
    ]
    known = expectation(laboratory.torch, devices)
    runs = iter(laboratory.perform_all([experiment for experiment in experiments for _ in range(times)]))
    baseline: Observation | None = None
    for experiment in experiments:
        observation = _agreed([next(runs) for _ in range(times)])
        fix = PROCESSES if experiment.processes else experiment.fix
        if fix == NONE:
            baseline = observation
        assert baseline is not None
        yield judge(experiment.race, fix, observation, baseline, known(experiment.race, fix))


def _agreed(runs: Sequence[Observation]) -> Observation:
    differs = nondeterminism(runs)
    if differs is None:
        return runs[0]
    return replace(runs[0], outcome=Outcome(Kind.INCONCLUSIVE, f"not deterministic: {differs}"))


def _experiment(race: str, fix: str, torch: str, devices: tuple[str, ...]) -> Experiment:
    """By the schedule recorded for this very release where there is one, else by the race's own."""
    if fix == PROCESSES:
        return Experiment(race=race, processes=True, devices=devices)
    schedule = recorded_schedule(race, torch)
    return Experiment(race=race, fix=fix, strategy=None if schedule is None else Replay(schedule), devices=devices)


class Standing(Enum):
    """What many cells together say of this release."""

    AS_EXPECTED = "as expected"
    NOT = "not as expected"
    INCONCLUSIVE = "inconclusive"


def standing(cells: Sequence[Cell]) -> Standing:
    """Inconclusive before anything else: no cell at all, a cell without a verdict, a required race that stayed away.

    The last is not good news about a fix: a check that did not go red where it must cannot vouch for anything.
    """
    if not cells or any(cell.verdict is Verdict.INCONCLUSIVE or stayed_away(cell) for cell in cells):
        return Standing.INCONCLUSIVE
    if all(cell.as_expected for cell in cells):
        return Standing.AS_EXPECTED
    return Standing.NOT


def stayed_away(cell: Cell) -> bool:
    """A run without a fix that must show its race on this release, and did not."""
    return (
        cell.fix == NONE
        and cell.expected is not None
        and cell.expected.outcome is not Kind.OK
        and cell.verdict is Verdict.HOLDS
    )
