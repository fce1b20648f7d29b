"""PCT meets its floor, counted over many seeds.

The seeds are fixed, so the counts never change. ``two_switches`` meets the floor and no more: one order of priorities
of two, one change point of k. So what is asked for is the floor less three standard deviations of such a count.
"""

from __future__ import annotations

import pickle
from functools import partial

import programs
import pytest

from repro.interleave.explore import explore
from repro.interleave.pct import PCT, Priorities

SEEDS = 1000


@pytest.mark.parametrize(
    ("make", "depth", "runs"),
    [
        (programs.lost_update, 2, SEEDS),
        (partial(programs.lost_update, 8), 2, 300),
        (programs.check_then_act, 2, SEEDS),
        (programs.two_switches, 2, SEEDS),
        (programs.three_switches, 3, SEEDS),
    ],
)
def test_the_floor_is_met(make, depth, runs):
    found = explore(partial(programs.attempt, make), PCT(depth=depth), runs + 1)
    promise = found.promise
    assert promise.floor == 1 / (found.threads * promise.steps ** (depth - 1))
    assert promise.runs == runs
    least = promise.floor * runs
    assert found.failing >= least - 3 * (least * (1 - promise.floor)) ** 0.5
    assert not found.nondeterministic


def test_a_bug_of_depth_three_is_not_promised_at_depth_two():
    found = explore(partial(programs.attempt, programs.three_switches), PCT(depth=2), 500)
    assert found.failing == 0


def test_the_floor_and_the_detection_are_by_the_formula():
    found = explore(partial(programs.attempt, programs.lost_update), PCT(), 101)
    # start, read, write and end of two threads
    assert (found.threads, found.promise.steps) == (2, 8)
    assert found.promise.floor == 1 / 16
    assert found.promise.runs == 100
    assert found.promise.detection == pytest.approx(1 - (15 / 16) ** 100)
    assert not found.exhausted


def test_a_longer_run_takes_earlier_runs_off_the_promise():
    search = PCT()
    first = search.next()
    assert search.next() is None  # k is not known yet
    steps = programs.attempt(programs.lost_update, first).steps
    search.saw(first, steps)
    early = search.next()
    search.saw(early, steps)
    assert search.promise.runs == 1
    longer = [step for step in steps if len(step.ready) > 1] * 3
    search.saw(search.next(), longer)
    assert (search.promise.steps, search.promise.runs) == (9, 0)
    search.saw(search.next(), steps)
    assert search.promise.runs == 1


def test_an_inconclusive_run_does_not_count():
    search = PCT()
    first = search.next()
    search.saw(first, programs.attempt(programs.lost_update, first).steps)
    search.saw(strategy := search.next(), programs.attempt(programs.lost_update, strategy).steps, False)
    assert search.promise.runs == 0


def test_a_lost_first_run_ends_the_search():
    search = PCT()
    search.saw(search.next(), [])
    assert search.next() is None
    assert search.promise.floor is None
    assert search.promise.detection is None


def test_a_strategy_is_a_value():
    strategy = Priorities(seed=3, depth=3, steps=8)
    before = programs.attempt(programs.lost_update, strategy).steps
    assert programs.attempt(programs.lost_update, strategy).steps == before
    assert programs.attempt(programs.lost_update, pickle.loads(pickle.dumps(strategy))).steps == before
    assert strategy == Priorities(seed=3, depth=3, steps=8)


def test_searches_of_different_seeds_share_no_schedule():
    def seeds(seed):
        search = PCT(seed=seed)
        first = search.next()
        search.saw(first, programs.attempt(programs.lost_update, first).steps)
        return {search.next().seed for _ in range(100)}

    assert seeds(1) == seeds(1)
    assert not seeds(1) & seeds(2)


@pytest.mark.parametrize("wrong", [partial(PCT, depth=0), partial(Priorities, 0, 0, 1), partial(Priorities, 0, 2, 0)])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match="1 or more"):
        wrong()
