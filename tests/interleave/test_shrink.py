from __future__ import annotations

from dataclasses import replace
from functools import partial

import programs
import pytest

from repro.interleave import Schedule
from repro.interleave.explore import explore
from repro.interleave.random_walk import RandomWalk
from repro.interleave.replay import Replay
from repro.interleave.shrink import Case, Unsteady, shrink

SMALLEST = {
    programs.lost_update: "a:write#1>b",
    programs.check_then_act: "a:act#1>b",
    programs.two_switches: "a:start#1>b, b:busy#1>a",
    programs.three_switches: "a:start#1>b, b:set#1>a, a:saved#1>b",
}


@pytest.mark.parametrize("make", SMALLEST)
def test_every_find_shrinks_to_the_same_smallest_schedule(make):
    found = explore(partial(programs.attempt, make), RandomWalk(), 200)
    assert found.failures
    for failure in found.failures:
        shrunk = shrink(partial(of, make), Case(failure.schedule))
        assert str(shrunk.case.schedule) == SMALLEST[make]
        assert shrunk.trial.failed
        assert shrunk.smallest


def of(make, case):
    return programs.attempt(make, Replay(case.schedule))


def of_threads(case):
    """A lost update of four, of whom two are enough."""

    def make():
        program = programs.lost_update(4)
        bodies = {name: body for name, body in program.bodies.items() if name in case.threads}
        some = programs.lost_update(len(bodies))
        return programs.Program(dict(zip(bodies, some.bodies.values(), strict=True)), some.broken)

    return programs.attempt(make, Replay(case.schedule))


def test_threads_are_left_out_after_switches():
    schedule = Schedule.parse("a:start#1>c, c:read#1>d, d:write#1>b, b:write#1>c")
    shrunk = shrink(of_threads, Case(schedule, ("a", "b", "c", "d")))
    assert len(shrunk.case.threads) == 2
    assert len(shrunk.case.schedule) == 1
    assert set(shrunk.case.threads) == {shrunk.case.schedule.switches[0].thread, shrunk.case.schedule.switches[0].to}


def test_shrinking_is_deterministic():
    schedule = explore(partial(programs.attempt, programs.three_switches), RandomWalk(), 200).failures[0].schedule

    def once():
        tried = []

        def run(case):
            tried.append(str(case.schedule))
            return of(programs.three_switches, case)

        return shrink(run, Case(schedule)), tried

    assert once() == once()


def test_each_accepted_case_fails_every_time():
    runs = []

    def run(case):
        runs.append(case)
        return of(programs.lost_update, case)

    shrunk = shrink(run, Case(Schedule.parse("a:start#1>b, b:read#1>a, a:write#1>b")), times=5)
    assert runs.count(shrunk.case) == 5
    assert shrunk.runs == len(runs)


def test_another_failure_is_not_accepted():
    def run(case):
        tried = of(programs.lost_update, case)
        return programs.Tried(tried.steps, True, f"{len(case.schedule)} switches")

    schedule = Schedule.parse("a:start#1>b, b:write#1>a")
    assert len(shrink(run, Case(schedule)).case.schedule) == 2


def test_what_is_never_reached_drops_out():
    schedule = Schedule.parse("a:write#1>b, b:nowhere#1>a, a:write#7>b")
    shrunk = shrink(partial(of, programs.lost_update), Case(schedule))
    assert str(shrunk.case.schedule) == "a:write#1>b"


def test_what_does_not_fail_is_refused():
    with pytest.raises(Unsteady, match=r"- does not fail \(fine\)"):
        shrink(partial(of, programs.lost_update), Case(Schedule()))


def test_what_fails_only_sometimes_is_refused():
    outcomes = iter([True, True, True, False])

    def run(case):
        return programs.Tried([], next(outcomes), "broken")

    with pytest.raises(Unsteady, match="not 3 times of 3"):
        shrink(run, Case(Schedule()), times=3)


def test_a_crash_that_leaves_no_steps_can_be_shrunk():
    def run(case):
        crashed = any(switch.seam == "write" for switch in case.schedule.switches)
        return programs.Tried([], crashed, "crash")

    shrunk = shrink(run, Case(Schedule.parse("a:start#1>b, b:write#1>a, a:read#1>b")))
    assert str(shrunk.case.schedule) == "b:write#1>a"


def test_without_a_budget_nothing_is_called_the_smallest():
    schedule = Schedule.parse("a:start#1>b, b:act#1>a")
    run = partial(of, programs.check_then_act)
    assert shrink(run, Case(schedule), budget=0).case.schedule == schedule
    assert not shrink(run, Case(schedule), budget=0).smallest
    assert shrink(run, Case(schedule)).smallest


def test_what_could_not_be_judged_may_have_been_smaller():
    def run(case):
        tried = of(programs.lost_update, case)
        return replace(tried, conclusive=tried.failed)

    shrunk = shrink(run, Case(Schedule.parse("a:write#1>b")))
    assert str(shrunk.case.schedule) == "a:write#1>b"
    assert not shrunk.smallest


@pytest.mark.parametrize("wrong", [{"times": 0}, {"budget": -1}])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises(ValueError, match="times must be 1 or more and budget 0 or more"):
        shrink(partial(of, programs.lost_update), Case(Schedule.parse("a:write#1>b")), **wrong)
