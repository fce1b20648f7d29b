from __future__ import annotations

import pickle
from functools import partial

import programs
import pytest

from repro.interleave.explore import explore
from repro.interleave.random_walk import RandomWalk, Walk


@pytest.mark.parametrize(
    "make",
    [
        programs.lost_update,
        partial(programs.lost_update, 8),
        programs.check_then_act,
        programs.two_switches,
        programs.three_switches,
    ],
)
def test_it_finds(make):
    found = explore(partial(programs.attempt, make), RandomWalk(seed=1), 200)
    assert found.failures
    assert not found.nondeterministic
    assert not found.exhausted
    assert found.promise.floor is None


@pytest.mark.parametrize("make", programs.RACE_FREE)
def test_race_free_passes_a_thousand(make):
    for threads, budget in ((2, 600), (3, 300), (8, 100)):
        found = explore(partial(programs.attempt, partial(make, threads)), RandomWalk(), budget)
        assert found.schedules == budget
        assert not found.failures
        assert not found.inconclusive


def test_every_choice_is_equally_likely():
    ready = ("a", "b", "c", "d")
    chosen = [Walk(seed).choose("a", "read", 1, ready) for seed in range(4000)]
    # 1000 each, within four standard deviations
    assert all(abs(chosen.count(name) - 1000) < 110 for name in ready)


def test_a_walk_is_a_value_and_knows_no_history():
    walk = Walk(5)
    choice = walk.choose("a", "read", 1, ("a", "b"))
    for visit in range(2, 50):
        walk.choose("a", "other", visit, ("a", "b"))
    assert pickle.loads(pickle.dumps(walk)).choose("a", "read", 1, ("a", "b")) == choice
