"""Searches the schedules of a race, without a fix and under one, and says what that proves."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace

from repro.experiment import Experiment, Observation
from repro.fixes import NONE
from repro.interleave.bounded import Bounded
from repro.interleave.exploration import Exploration
from repro.interleave.explore import explore
from repro.interleave.pct import PCT
from repro.interleave.random_walk import RandomWalk
from repro.interleave.replay import Replay
from repro.interleave.scheduler import Strategy
from repro.interleave.search import Search
from repro.interleave.shrink import Case, Shrunk, Unsteady, shrink
from repro.laboratory import Laboratory
from repro.outcome import Kind, Outcome
from repro.results import Look, expectation
from repro.verdict import Cell, Verdict, columns

STRATEGIES: dict[str, Callable[[int], Search]] = {
    "bounded": lambda seed: Bounded(switches=2),
    "pct": lambda seed: PCT(depth=2, seed=seed),
    "random": lambda seed: RandomWalk(seed=seed),
}
# What a search must have promised before "nothing found" counts as "holds".
DETECTION = 0.95


@dataclass(frozen=True)
class Searched:
    """A verdict by search. ``smallest`` is the shrunk first failure, where there was one that fails every time."""

    race: str
    fix: str
    strategy: str
    seed: int
    verdict: Verdict
    reason: str
    exploration: Exploration[Observation]
    baseline: Exploration[Observation] | None = None
    smallest: Shrunk[Observation] | None = None


@dataclass(frozen=True)
class Perform:
    """Performs ``experiment`` by a given strategy; picklable, for executors whose workers are elsewhere.

    Each worker process warms up a laboratory of its own, once.
    """

    experiment: Experiment

    def __call__(self, strategy: Strategy) -> Observation:
        return _own_laboratory().perform(replace(self.experiment, strategy=strategy))


@functools.cache
def _own_laboratory() -> Laboratory:
    laboratory = Laboratory()
    atexit.register(laboratory.__exit__, None, None, None)
    return laboratory


def search(
    laboratory: Laboratory,
    race: str,
    fix: str = NONE,
    *,
    strategy: str = "pct",
    budget: int = 200,
    seed: int = 0,
    stop_after: int | None = None,
    baseline: Exploration[Observation] | None = None,
    executor: Executor | None = None,
    devices: tuple[str, ...] = ("cpu",),
    on_progress: Callable[[Exploration[Observation]], None] | None = None,
) -> Searched:
    """Search up to ``budget`` schedules of ``race`` under ``fix``.

    Under a fix the same search is first made without it, until it finds the race: a search that cannot find it
    proves nothing about the fix. ``baseline`` is that search where it was made already. ``executor`` runs schedules
    elsewhere; without one, as many side by side as the laboratory has lanes. ``stop_after`` so many failures.
    """

    def one(fix: str, stop_after: int | None) -> Exploration[Observation]:
        experiment = Experiment(race=race, fix=fix, devices=devices)
        finder = STRATEGIES[strategy](seed)
        if executor is not None:
            return explore(Perform(experiment), finder, budget, executor, on_progress, stop_after=stop_after)

        def run(by: Strategy) -> Observation:
            return laboratory.perform(replace(experiment, strategy=by))

        with ThreadPoolExecutor(laboratory.lanes) as pool:
            return explore(run, finder, budget, pool, on_progress, stop_after=stop_after)

    if fix != NONE and baseline is None:
        baseline = one(NONE, 1)
    found = one(fix, stop_after)
    verdict, reason = verdict_of(found, baseline)
    smallest = smallest_of(laboratory, Experiment(race=race, fix=fix, devices=devices), found)
    return Searched(race, fix, strategy, seed, verdict, reason, found, baseline, smallest)


def matrix(
    laboratory: Laboratory,
    races: Iterable[str],
    fixes: Iterable[str],
    *,
    strategy: str,
    budget: int,
    seed: int,
    devices: tuple[str, ...] = ("cpu",),
) -> Iterator[Cell]:
    """All cells by search, race by race; each search ends with its first failure."""
    known = expectation(laboratory.torch, devices)
    for race in races:
        baseline: Exploration[Observation] | None = None
        for fix in columns(race, fixes, controls=False):
            found = search(
                laboratory,
                race,
                fix,
                strategy=strategy,
                budget=budget,
                seed=seed,
                stop_after=1,
                baseline=baseline,
                devices=devices,
            )
            if fix == NONE:
                baseline = found.exploration
            yield Cell(race, fix, found.verdict, found.reason, _shown(found), known(race, fix), "search")


def second_look(laboratory: Laboratory, race: str, *, budget: int, devices: tuple[str, ...] = ("cpu",)) -> Look:
    """Whether a race that its recorded schedule does not show is shown by another one."""
    found = search(laboratory, race, budget=budget, stop_after=1, devices=devices)
    failures = found.exploration.failures
    if not failures:
        return Look(race, f"searched without a fix: {found.exploration}; {found.reason}")
    schedule = found.smallest.case.schedule if found.smallest is not None else failures[0].schedule
    return Look(race, found.reason, str(schedule))


def _shown(found: Searched) -> Observation:
    """The run that shows the verdict: the smallest failure, or what stands for all that did not fail."""
    if found.smallest is not None:
        return found.smallest.trial
    if found.exploration.failures:
        return found.exploration.failures[0].trial
    kind = Kind.OK if found.verdict is Verdict.HOLDS else Kind.INCONCLUSIVE
    return Observation(Outcome(kind, f"{found.reason}; {found.exploration}"))


def verdict_of(found: Exploration[Observation], baseline: Exploration[Observation] | None) -> tuple[Verdict, str]:
    if found.failures and len(found.nondeterministic) == len(found.failures):
        return Verdict.INCONCLUSIVE, f"not deterministic: {found.failures[0].divergence}"
    if found.failures:
        return Verdict.FAILS, found.failures[0].trial.outcome.reason
    if found.inconclusive:
        lost = found.inconclusive[0]
        why = lost.trial.outcome.reason if lost.trial is not None else lost.reason
        return Verdict.INCONCLUSIVE, f"{len(found.inconclusive)} schedules cannot be judged, such as: {why}"
    if baseline is not None and not baseline.failures:
        return Verdict.INCONCLUSIVE, "the same search does not find the race without the fix either"
    if found.exhausted:
        return Verdict.HOLDS, f"every schedule of {found.promise.reach} ran"
    detection = found.promise.detection
    if detection is not None and detection >= DETECTION:
        return Verdict.HOLDS, f"a bug of depth {found.promise.depth} would have shown with {detection:.1%}"
    promised = "nothing" if detection is None else f"{detection:.1%}"
    return Verdict.INCONCLUSIVE, f"the budget is too small: detection {promised}, needed {DETECTION:.0%}"


def smallest_of(
    laboratory: Laboratory, experiment: Experiment, found: Exploration[Observation]
) -> Shrunk[Observation] | None:
    steady = [failure for failure in found.failures if failure.divergence is None and failure.schedule is not None]
    if not steady:
        return None
    first = min(steady, key=lambda failure: len(failure.schedule or ()))
    assert first.schedule is not None

    def run(case: Case) -> Observation:
        return laboratory.perform(replace(experiment, strategy=Replay(case.schedule)))

    try:
        return shrink(run, Case(first.schedule), times=3, budget=0)
    except Unsteady:
        return None
