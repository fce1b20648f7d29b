from __future__ import annotations

import os
import pickle
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context

import programs
import pytest

from repro.interleave.bounded import Bounded
from repro.interleave.explore import AHEAD, ATTEMPTS, explore
from repro.interleave.pct import PCT
from repro.interleave.random_walk import RandomWalk
from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule

SEARCHES = [partial(Bounded, switches=3), partial(PCT, depth=3, seed=7), partial(RandomWalk, seed=7)]
three = partial(programs.attempt, programs.three_switches)


def summary(found):
    """Everything that must not depend on the executor."""
    failures = [(str(failure.schedule), failure.strategy, failure.divergence) for failure in found.failures]
    return found.schedules, found.threads, found.steps, found.failing, failures, found.promise


class Backwards(Executor):
    """Runs the last first: done in the order that is worst for whoever takes results as they come."""

    def __init__(self):
        self.waiting = []

    def submit(self, fn, /, *args, **kwargs):
        executor, future = self, Future()

        def result(timeout=None):
            while executor.waiting:
                call, other = executor.waiting.pop()
                other.set_result(call())
            return Future.result(future)

        future.result = result
        self.waiting.append((partial(fn, *args, **kwargs), future))
        return future


@pytest.mark.parametrize("search", SEARCHES)
def test_the_schedules_are_the_same_whatever_the_executor(search):
    inline = summary(explore(three, search(), 100))
    assert inline[3] > 0
    with ThreadPoolExecutor(2) as executor:
        assert summary(explore(three, search(), 100, executor)) == inline
    assert summary(explore(three, search(), 100, Backwards())) == inline


def test_processes_give_the_same():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        assert summary(explore(three, Bounded(), 100, executor)) == summary(explore(three, Bounded(), 100))


def test_it_stops_at_the_budget():
    found = explore(three, RandomWalk(), AHEAD + 3)
    assert found.schedules == AHEAD + 3


@pytest.mark.parametrize("search", SEARCHES)
def test_it_stops_at_enough_failures(search):
    whole = explore(three, search(), 100)
    inline = explore(three, search(), 100, stop_after=1)
    assert inline.failing == 1
    assert inline.schedules <= whole.schedules
    with ThreadPoolExecutor(2) as executor:
        assert summary(explore(three, search(), 100, executor, stop_after=1)) == summary(inline)


def test_each_failing_schedule_is_replayed_once():
    asked = []

    def run(strategy):
        asked.append(strategy)
        return programs.attempt(programs.lost_update, strategy)

    found = explore(run, RandomWalk(), 50)
    replayed = [strategy.schedule for strategy in asked if isinstance(strategy, Replay)]
    assert replayed == [failure.schedule for failure in found.failures]
    assert len(replayed) == len(set(replayed))
    assert found.failing > len(found.failures) > 1


def test_another_outcome_of_the_replay_is_nondeterminism():
    outcomes = iter(["broken", "fine"])

    def run(strategy):
        signature = next(outcomes)
        return programs.Tried(programs.replay(programs.lost_update, "-").steps, signature == "broken", signature)

    found = explore(run, Bounded(switches=0), 10)
    assert found.nondeterministic == found.failures
    assert found.failures[0].divergence == "first broken, then fine"
    assert "1 not replayed" in str(found)


def test_another_trace_of_the_replay_is_nondeterminism():
    lines = iter(["-", "a:read#1>b"])

    def run(strategy):
        return programs.Tried(programs.replay(programs.lost_update, next(lines)).steps, True, "broken")

    found = explore(run, Bounded(switches=0), 10)
    assert found.failures[0].divergence == "step 2: recorded a:read#1, now a:read#1>b"


def test_a_crash_without_steps_is_run_again_by_its_strategy():
    asked = []

    def run(strategy):
        asked.append(strategy)
        return programs.Tried([], True, "crash")

    found = explore(run, RandomWalk(), 2)
    assert [failure.schedule for failure in found.failures] == [None, None]
    assert asked == [asked[0], asked[0], asked[2], asked[2]]
    assert not found.nondeterministic


class Unlucky:
    """Loses each run of ``strategy`` the first ``times`` times."""

    def __init__(self, times):
        self.times = times
        self.lost = {}

    def __call__(self, strategy):
        key = str(strategy)
        self.lost[key] = self.lost.get(key, 0) + 1
        if self.lost[key] <= self.times:
            raise ConnectionError("the worker is gone")
        return programs.attempt(programs.three_switches, strategy)


@pytest.mark.parametrize("executor", [nullcontext, partial(ThreadPoolExecutor, 1)])
def test_a_lost_run_is_run_again(executor):
    with executor() as pool:
        found = explore(Unlucky(ATTEMPTS - 1), Bounded(switches=3), 100, pool)
    assert summary(found) == summary(explore(three, Bounded(switches=3), 100))
    assert not found.inconclusive


def test_a_run_that_is_always_lost_is_inconclusive():
    found = explore(Unlucky(ATTEMPTS), Bounded(), 100)
    assert found.schedules == 1
    assert found.inconclusive[0].trial is None
    assert found.inconclusive[0].reason == "lost 3 times: ConnectionError: the worker is gone"
    assert not found.exhausted
    assert "1 inconclusive" in str(found)


def _die(strategy):
    os._exit(1)


def test_a_broken_pool_loses_no_schedule():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        found = explore(_die, RandomWalk(), 5, executor)
    assert found.schedules == len(found.inconclusive) == 5
    assert all("BrokenProcessPool" in inconclusive.reason for inconclusive in found.inconclusive)


def test_an_inconclusive_trial_is_never_a_pass_or_a_failure():
    def run(strategy):
        return programs.Tried(programs.attempt(programs.lost_update, strategy).steps, True, "blocked", False)

    found = explore(run, Bounded(switches=1), 100)
    assert found.schedules == len(found.inconclusive) == 4
    assert not found.failing
    assert not found.exhausted


def test_progress_is_told_after_each_schedule():
    told = []
    explore(three, Bounded(), 100, on_progress=lambda found: told.append(found.schedules))
    assert told == list(range(1, len(told) + 1))


def test_the_summary_says_what_was_shown():
    assert str(explore(three, Bounded(), 100)) == (
        "7 schedules of 2 threads, 6 steps, 0 failing, exhausted up to 2 switches"
    )
    assert "depth 3: floor 0.014, detection" in str(explore(three, PCT(depth=3), 100))


@pytest.mark.parametrize("wrong", [{"budget": 0}, {"budget": 1, "stop_after": 0}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match="must be 1 or more"):
        explore(three, Bounded(), **wrong)


@pytest.mark.parametrize("search", SEARCHES)
def test_every_strategy_is_picklable(search):
    search = search()
    strategy = search.next()
    search.saw(strategy, programs.attempt(programs.three_switches, strategy).steps)
    for given in (strategy, search.next()):
        assert pickle.loads(pickle.dumps(given)) == given


def test_the_default_is_run_to_completion():
    assert programs.attempt(programs.three_switches, Replay(Schedule())).signature == "fine"
