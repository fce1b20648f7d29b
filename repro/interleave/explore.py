"""Exploring: run what a search hands out, on any executor, and run each failing schedule once more.

Results are taken in the order in which they were given out, whoever is done first, and the number given out ahead is
fixed. So the schedules are the same whatever the executor: inline, processes, or a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Generic

from repro.interleave.exploration import Exploration, Failure, Inconclusive, T
from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule, first_divergence, steps_to_json
from repro.interleave.scheduler import Strategy
from repro.interleave.search import Search

# Given out before the first of them is back; enough for any machine of ours, few enough to throw away.
AHEAD = 32
# A worker that dies takes its run with it, and not by any fault of the schedule.
ATTEMPTS = 3


def explore(
    run: Callable[[Strategy], T],
    search: Search,
    budget: int,
    executor: Executor | None = None,
    on_progress: Callable[[Exploration[T]], None] | None = None,
    *,
    stop_after: int | None = None,
) -> Exploration[T]:
    """Run up to ``budget`` schedules of ``search``, or until ``stop_after`` of them have failed.

    ``run`` must be picklable where the executor needs that; without an executor it is called right here.
    ``on_progress`` is called after each schedule with what there is so far.
    """
    if budget < 1:
        raise ValueError(f"budget must be 1 or more, not {budget}: where no schedule runs, nothing is shown")
    if stop_after is not None and stop_after < 1:
        raise ValueError(f"stop_after must be 1 or more, not {stop_after}; leave it out to use up the budget")
    seen: Exploration[T] = Exploration(budget)
    known: set[Schedule] = set()
    tasks: deque[_Task[T]] = deque()
    given = 0
    try:
        while stop_after is None or seen.failing < stop_after:
            while len(tasks) < AHEAD and given < budget and (strategy := search.next()) is not None:
                tasks.append(_Task(run, strategy, executor))
                given += 1
            if not tasks:
                break
            task = tasks.popleft()
            trial, lost = task.result()
            steps = trial.steps if trial is not None else ()
            conclusive = trial is not None and trial.conclusive
            search.saw(task.strategy, steps, conclusive)
            seen.schedules += 1
            if steps and not seen.threads:
                seen.threads, seen.steps = len(steps[0].ready), len(steps)
            if trial is None or not conclusive:
                seen.inconclusive.append(
                    Inconclusive(task.strategy, trial, lost or (trial.signature if trial else ""))
                )
            elif trial.failed:
                seen.failing += 1
                if seen.failing == stop_after:
                    # Nobody waits for those given out ahead, so the replay must not stand behind them.
                    for other in tasks:
                        other.cancel()
                schedule = Schedule.of(steps) if steps else None
                if schedule is None or schedule not in known:
                    seen.failures.append(_again(run, schedule, task.strategy, trial, executor))
                if schedule is not None:
                    known.add(schedule)
            seen.promise = search.promise
            if on_progress is not None:
                on_progress(seen)
    finally:
        for task in tasks:
            task.cancel()
    return seen


def _again(
    run: Callable[[Strategy], T], schedule: Schedule | None, strategy: Strategy, first: T, executor: Executor | None
) -> Failure[T]:
    second, lost = _Task(run, strategy if schedule is None else Replay(schedule), executor).result()
    divergence: str | None
    if second is None:
        divergence = f"the replay was lost: {lost}"
    elif not second.failed or not second.conclusive or second.signature != first.signature:
        divergence = f"first {first.signature}, then {second.signature}"
    else:
        divergence = first_divergence(steps_to_json(first.steps), steps_to_json(second.steps))
    return Failure(schedule, strategy, first, second, divergence)


class _Task(Generic[T]):
    """One run, started again where its worker was lost."""

    def __init__(self, run: Callable[[Strategy], T], strategy: Strategy, executor: Executor | None) -> None:
        self.strategy = strategy
        self._run = run
        self._executor = executor
        self._future = self._start()

    def result(self) -> tuple[T | None, str]:
        """The trial; or ``None`` and why there is none."""
        reasons: list[str] = []
        while len(reasons) < ATTEMPTS:
            if reasons:
                self._future = self._start()
            try:
                return (self._future.result() if self._future is not None else self._run(self.strategy)), ""
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {error}")
        return None, f"lost {ATTEMPTS} times: {'; '.join(dict.fromkeys(reasons))}"

    def cancel(self) -> None:
        if self._future is not None:
            self._future.cancel()

    def _start(self) -> Future[T] | None:
        if self._executor is None:
            return None
        try:
            return self._executor.submit(self._run, self.strategy)
        except Exception as error:  # a broken pool says so already here
            future: Future[T] = Future()
            future.set_exception(error)
            return future
