"""Bounded search: exhaustive, and by the number.

``p`` is a thread's own places to stand before its end: its start and its points. Threads that do not block have, with
two threads a and b:

* 1 schedule without a switch: a, then b;
* p with one: a hands over at one of its p places (once a has ended, b is alone);
* p * p with two: then b hands back at one of its own p places (once b has ended, a is alone);
* p * p(p-1)/2 with three: then a, with p-i places left after its i-th, hands over at one of these.
"""

from __future__ import annotations

from functools import partial

import programs
import pytest

from repro.interleave import Schedule
from repro.interleave.bounded import Bounded
from repro.interleave.explore import explore
from repro.interleave.replay import Replay


def counts(make, switches):
    found = explore(partial(programs.attempt, make), Bounded(switches=switches), 10_000)
    assert found.exhausted
    assert not found.nondeterministic
    return found.schedules


def test_the_number_of_schedules_is_exact():
    # lost_update: start, read, write, so p = 3
    assert [counts(programs.lost_update, switches) for switches in range(4)] == [1, 1 + 3, 1 + 3 + 9, 1 + 3 + 9 + 9]


def test_the_number_of_schedules_of_three_threads_is_exact():
    # One switch: a to b or c at p places, a's end to c, b to c at p places: 3p + 1.
    # Two, by the first switch:
    #   a to b at its i-th place: b to a or c at p places, b's end to c, a to c at p-i places: 2p + 1 + p-i
    #   a to c at its i-th place: the same with b and c exchanged
    #   a's end to c:             c to b at p places
    #   b to c at one of p:       c to b at p places
    # which sums up to 2(p(2p+1) + p(p-1)/2) + p + p * p = 6p^2 + 2p; p = 3.
    assert counts(partial(programs.lost_update, 3), 1) == 1 + 10
    assert counts(partial(programs.lost_update, 3), 2) == 1 + 10 + 60


def test_two_switches_are_found_exhaustively():
    # a has no point: p = 1; b has one: p = 2. So 1, then 1, then 2 schedules.
    found = explore(partial(programs.attempt, programs.two_switches), Bounded(), 100)
    assert found.exhausted
    assert found.schedules == 1 + 1 + 2
    assert [str(failure.schedule) for failure in found.failures] == ["a:start#1>b, b:busy#1>a"]
    assert found.failing == 1


def test_three_switches_need_a_bound_of_three():
    two = explore(partial(programs.attempt, programs.three_switches), Bounded(switches=2), 100)
    assert two.exhausted
    assert not two.failures
    three = explore(partial(programs.attempt, programs.three_switches), Bounded(switches=3), 100)
    assert three.exhausted
    assert [str(failure.schedule) for failure in three.failures] == ["a:start#1>b, b:set#1>a, a:saved#1>b"]


@pytest.mark.parametrize("make", [programs.lost_update, programs.check_then_act])
def test_one_switch_is_found(make):
    found = explore(partial(programs.attempt, make), Bounded(switches=1), 100)
    assert found.exhausted
    assert {len(failure.schedule) for failure in found.failures} == {1}


def test_a_deadlock_is_a_failure():
    found = explore(partial(programs.attempt, programs.deadlock), Bounded(switches=1), 100)
    assert [str(failure.schedule) for failure in found.failures] == ["a:right.acquire#1>b"]
    assert found.failures[0].trial.signature == "deadlock"
    assert found.failures[0].divergence is None


@pytest.mark.parametrize("make", programs.RACE_FREE)
@pytest.mark.parametrize("threads", [2, 3])
def test_race_free_is_exhausted_without_a_failure(make, threads):
    found = explore(partial(programs.attempt, partial(make, threads)), Bounded(), 10_000)
    assert found.exhausted
    assert found.schedules > 10
    assert not found.failures


def test_fewest_switches_come_first():
    order = []

    def run(strategy):
        order.append(len(strategy.schedule))
        return programs.attempt(programs.lost_update, strategy)

    explore(run, Bounded(switches=3), 10_000)
    # Replays of failures are in between; without them the order is that of the levels.
    assert order[0] == 0
    assert [switches for switches in order if switches == 3] == order[-len([s for s in order if s == 3]) :]


def test_a_budget_that_ends_early_is_not_exhausted():
    found = explore(partial(programs.attempt, programs.lost_update), Bounded(), 12)
    assert found.schedules == 12
    assert not found.exhausted


def test_nothing_is_exhausted_when_a_run_strays():
    search = Bounded(switches=1)
    steps = programs.attempt(programs.lost_update, Replay(Schedule())).steps
    search.saw(search.next(), steps)
    while (strategy := search.next()) is not None:
        search.saw(strategy, steps)  # as if no switch had any effect
    assert len(search.strayed) == 3
    assert not search.promise.exhausted


def test_nothing_is_exhausted_when_steps_are_lost():
    search = Bounded()
    search.saw(search.next(), [])
    assert search.next() is None
    assert not search.promise.exhausted


def test_a_negative_bound_is_refused():
    with pytest.raises(ValueError, match="0 or more"):
        Bounded(switches=-1)
