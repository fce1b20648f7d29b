"""Shrinking: from a failing schedule to a small one that fails the same way.

In this order: fewer switches (in chunks, after Zeller and Hildebrandt's ddmin, "Simplifying and isolating
failure-inducing input", TSE 2002), then fewer threads, then earlier switches. Leaving out and moving end in many
places, so at last every smaller schedule is tried, in the order of bounded search and within a budget: that is what
makes all finds of one bug end at the same schedule. Candidates come in a fixed order, so shrinking is deterministic
where runs are.

Deviation from ddmin: a candidate is accepted only when it fails ``times`` times of ``times``, and then replaced by
what its run really followed, so that switches which were never reached drop out for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from repro.interleave.bounded import Bounded
from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule, Switch
from repro.interleave.search import Trial

T = TypeVar("T", bound=Trial)


class Unsteady(RuntimeError):
    """The schedule to shrink does not fail every time, so there is nothing to shrink by."""


@dataclass(frozen=True)
class Case:
    """What to run. ``threads`` are those that may be left out as long as two remain; empty: none may."""

    schedule: Schedule
    threads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shrunk(Generic[T]):
    """A small case, its run, and how many runs that took; ``smallest`` when every smaller schedule was tried."""

    case: Case
    trial: T
    runs: int
    smallest: bool


def shrink(run: Callable[[Case], T], case: Case, *, times: int = 3, budget: int = 500) -> Shrunk[T]:
    """Shrink ``case``; ``run`` replays one. Raises :class:`Unsteady`.

    Up to ``budget`` schedules are tried to show that there is no smaller one; 0 leaves that out.
    """
    if times < 1 or budget < 0:
        raise ValueError(f"times must be 1 or more and budget 0 or more, not {times} and {budget}")
    return _Shrinker(run, case, times, budget).shrink()


class _Shrinker(Generic[T]):
    def __init__(self, run: Callable[[Case], T], case: Case, times: int, budget: int) -> None:
        self._run = run
        self._times = times
        self._budget = budget
        self._runs = 1
        self._smallest = False
        first = run(case)
        self._tried = {case: first}
        if not first.failed or not first.conclusive:
            raise Unsteady(f"{case.schedule} does not fail ({first.signature}); shrink what failed in a replay")
        self._signature = first.signature
        self._best, self._trial = case, first
        if not self._accept(case):
            raise Unsteady(f"{case.schedule} fails, but not {times} times of {times}: report it as nondeterministic")

    def shrink(self) -> Shrunk[T]:
        passes = (self._fewer_switches, self._fewer_threads, self._earlier, self._smaller)
        # After any success from the start: an earlier pass may have more to do.
        while any(self._any(candidates()) for candidates in passes):
            pass
        return Shrunk(self._best, self._trial, self._runs, self._smallest)

    def _fewer_switches(self) -> Iterator[Case]:
        switches = self._best.schedule.switches
        size = len(switches)
        while size:
            for end in range(len(switches), 0, -size):
                yield self._with((*switches[: max(end - size, 0)], *switches[end:]))
            size //= 2

    def _fewer_threads(self) -> Iterator[Case]:
        threads, switches = self._best.threads, self._best.schedule.switches
        for left_out in threads if len(threads) > 2 else ():
            schedule = Schedule(tuple(switch for switch in switches if left_out not in (switch.thread, switch.to)))
            yield Case(schedule, tuple(name for name in threads if name != left_out))

    def _earlier(self) -> Iterator[Case]:
        """One switch moved to an earlier step of the run, after the switch before it."""
        steps, switches = self._trial.steps, self._best.schedule.switches
        places = [number for number, step in enumerate(steps) if step.ready and step.chosen != step.default]
        if len(places) != len(switches):
            return
        for number, place in enumerate(places):
            for step in steps[places[number - 1] + 1 if number else 0 : place]:
                for to in step.ready:
                    if to != step.chosen:
                        moved = Switch(step.thread, step.seam, step.visit, to)
                        yield self._with((*switches[:number], moved, *switches[number + 1 :]))

    def _smaller(self) -> Iterator[Case]:
        """Every schedule that comes before this one in the order of bounded search."""
        search = Bounded(switches=len(self._best.schedule))
        conclusive = True
        for _ in range(self._budget):
            strategy = search.next()
            if not isinstance(strategy, Replay) or strategy.schedule == self._best.schedule:
                self._smallest = strategy is not None and conclusive and not search.strayed
                return
            case = self._with(strategy.schedule.switches)
            yield case
            search.saw(strategy, self._tried[case].steps)
            conclusive = conclusive and self._tried[case].conclusive

    def _with(self, switches: tuple[Switch, ...]) -> Case:
        return Case(Schedule(switches), self._best.threads)

    def _any(self, candidates: Iterator[Case]) -> bool:
        return any(case not in self._tried and self._accept(case) for case in candidates)

    def _accept(self, case: Case) -> bool:
        for _ in range(self._times):
            self._runs += 1
            trial = self._tried[case] = self._run(case)
            if not trial.failed or not trial.conclusive or trial.signature != self._signature:
                return False
        followed = Schedule.of(trial.steps) if trial.steps else case.schedule
        self._best, self._trial = Case(followed, case.threads), trial
        self._tried[self._best] = trial
        return True
