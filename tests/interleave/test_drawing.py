from __future__ import annotations

import threading

import programs
import pytest
from hypothesis import HealthCheck, Phase, find, given, seed, settings

from repro.interleave import Schedule
from repro.interleave.drawing import Point, points, schedules
from repro.interleave.replay import Replay

ONLY = settings(
    database=None,
    phases=[Phase.generate, Phase.shrink],
    deadline=None,
    max_examples=200,
    suppress_health_check=list(HealthCheck),
)


def default(make):
    return points(programs.attempt(make, Replay(Schedule())).steps)


def fails(make):
    return lambda schedule: programs.attempt(make, Replay(schedule)).failed


@pytest.mark.parametrize(
    ("make", "smallest"),
    [
        (programs.lost_update, "a:write#1>b"),
        (programs.two_switches, "a:start#1>b, b:busy#1>a"),
        (programs.three_switches, "a:start#1>b, b:set#1>a, a:saved#1>b"),
        (programs.deadlock, "a:right.acquire#1>b"),
    ],
)
def test_the_smallest_schedule_is_found(make, smallest):
    found = find(schedules(default(make), max_switches=3), fails(make), settings=settings(ONLY, derandomize=True))
    assert str(found) == smallest


def test_it_shrinks_towards_fewer_switches_and_earlier_points():
    drawn = schedules(default(programs.lost_update), max_switches=3)
    assert find(drawn, lambda schedule: True, settings=ONLY) == Schedule()
    assert str(find(drawn, lambda schedule: len(schedule) > 0, settings=ONLY)) == "a:start#1>b"
    assert str(find(drawn, lambda schedule: len(schedule) > 1, settings=ONLY)) == "a:start#1>b, b:start#1>a"


@seed(1)
@settings(ONLY)
@given(schedules(default(programs.lost_update), max_switches=4))
def test_every_switch_is_taken(schedule):
    assert len(schedule) <= 4
    assert Schedule.of(programs.attempt(programs.lost_update, Replay(schedule)).steps) == schedule


def test_every_switch_of_more_threads_is_taken():
    def make():
        return programs.lost_update(4)

    @seed(1)
    @settings(ONLY)
    @given(schedules(default(make), max_switches=4))
    def every(schedule):
        assert Schedule.of(programs.attempt(make, Replay(schedule)).steps) == schedule

    every()


def test_schedules_are_drawn_in_the_test_thread():
    here = threading.get_ident()
    seen = set()

    @settings(ONLY, max_examples=20)
    @given(schedules(default(programs.lost_update)).map(lambda schedule: (threading.get_ident(), schedule)))
    def drawn(pair):
        seen.add(pair[0])

    drawn()
    assert seen == {here}


def test_points_are_learnt_from_a_default_run():
    assert default(programs.two_switches) == [
        Point("a", "start", 1, ("b",)),
        Point("a", "end", 1, ("b",)),
        Point("b", "start", 1, ("a",)),
        Point("b", "busy", 1, ("a",)),
        Point("b", "end", 1, ("a",)),
    ]


def test_alternatives_are_kept():
    some = [Point("a", "x", 1, ("c",)), Point("b", "x", 1, ()), Point("c", "x", 1, ())]
    seen = set()

    @settings(ONLY)
    @given(schedules(some))
    def drawn(schedule):
        seen.add(str(schedule))

    drawn()
    assert seen == {"-", "a:x#1>c"}


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="no points"):
        schedules([])
    with pytest.raises(ValueError, match="0 or more"):
        schedules([Point("a", "x", 1, ("b",))], max_switches=-1)
