"""The same schedules across processes."""

from __future__ import annotations

import os
import sys

import pytest

from repro.interleave import Fate, Schedule, point
from repro.interleave.processes import run
from repro.interleave.replay import Replay, fates
from repro.interleave.schedule import steps_to_json

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")

LINE = "a:middle#1>b, b:middle#1>a"


def work(name, drive):
    def part():
        point("middle")

    return name, os.getpid(), drive(part)


def test_a_schedule_is_followed_across_processes():
    schedule = Schedule.parse(LINE)
    ran = run(["a", "b"], Replay(schedule), work)
    assert ran.fate is Fate.DONE
    assert ran.schedule == schedule
    assert [fate.status for fate in fates(schedule, ran)] == ["taken", "taken"]
    assert steps_to_json(ran.steps) == [
        "a:start#1",
        "a:middle#1>b",
        "b:start#1",
        "b:middle#1>a",
        "a:end#1>b",
        "b:end#1",
    ]
    assert [ran.values[name][0] for name in "ab"] == ["a", "b"]
    assert len({os.getpid(), ran.values["a"][1], ran.values["b"][1]}) == 3


def test_replays_take_the_same_trace():
    traces = {tuple(steps_to_json(run(["a", "b", "c"], Replay(Schedule.parse(LINE)), work).steps)) for _ in range(5)}
    assert len(traces) == 1


def test_what_the_part_raises_is_handed_to_the_body():
    def body(name, drive):
        return repr(drive(lambda: 1 / 0))

    assert run(["a"], Replay(Schedule()), body).values == {"a": "ZeroDivisionError('division by zero')"}


def test_what_the_body_raises_afterwards_is_an_error():
    def body(name, drive):
        drive(lambda: None)
        raise KeyError(name)

    ran = run(["a", "b"], Replay(Schedule()), body)
    assert ran.fate is Fate.DONE
    assert {name: str(error) for name, error in ran.errors.items()} == {"a": "KeyError: 'a'", "b": "KeyError: 'b'"}


def test_a_process_that_dies_is_not_a_pass():
    ran = run(["a", "b"], Replay(Schedule()), lambda name, drive: drive(lambda: os._exit(3)))
    assert ran.fate is Fate.UNCONTROLLED
    assert ran.explanation == "a ended early: without an answer"


def test_a_process_that_is_gone_before_its_turn_is_not_a_pass():
    def body(name, drive):
        if name == "b":
            os._exit(3)
        return drive(lambda: None)

    ran = run(["a", "b"], Replay(Schedule()), body)
    assert ran.fate is Fate.UNCONTROLLED
    assert ran.explanation == "b ended early: without an answer"


def test_a_process_that_never_drives_is_not_a_pass():
    ran = run(["a", "b"], Replay(Schedule()), lambda name, drive: "no part")
    assert ran.fate is Fate.UNCONTROLLED
    assert ran.explanation == "a ended early: no part"
