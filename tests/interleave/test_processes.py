"""The same schedules across processes."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from repro.interleave import Fate, Schedule, point
from repro.interleave.processes import ProcessDied, run
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


# ---- file locks, and processes that may die --------------------------------------------------------------------


def locked(path):
    """A body whose part locks a file around its middle, as two programs would that know nothing of each other."""

    def body(name, drive):
        def part():
            with open(path, "a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                point("middle")
                fcntl.flock(file, fcntl.LOCK_UN)

        return drive(part)

    return body


def test_a_process_that_waits_for_a_file_lock_lets_its_holder_go_on(tmp_path):
    schedule = Schedule.parse("a:middle#1>b")
    ran = run(["a", "b"], Replay(schedule), locked(tmp_path / "file"))
    assert ran.fate is Fate.DONE
    assert steps_to_json(ran.steps) == [
        "a:start#1",
        "a:middle#1>b",
        "b:start#1",
        "b:wait:file#1>a",
        "a:end#1>b",
        "b:middle#1",
        "b:end#1",
    ]
    assert [str(fate) for fate in fates(schedule, ran)] == ["a:middle#1>b refused (b waits for file, held by a)"]


def test_a_file_that_nobody_of_the_run_holds_is_waited_for(tmp_path):
    path = tmp_path / "file"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def free_it_once_it_is_waited_for():
            deadline = time.monotonic() + 60
            while not re.search(rf"-> FLOCK .*:{path.stat().st_ino} ", Path("/proc/locks").read_text()):
                assert time.monotonic() < deadline
                threading.Event().wait(0.01)
            fcntl.flock(file, fcntl.LOCK_UN)

        holder = threading.Thread(target=free_it_once_it_is_waited_for)
        holder.start()
        ran = run(["a", "b"], Replay(Schedule()), locked(path))
        holder.join()
    assert ran.fate is Fate.DONE
    assert steps_to_json(ran.steps) == ["a:start#1", "a:middle#1", "a:end#1>b", "b:start#1", "b:middle#1", "b:end#1"]


def test_a_file_that_nobody_of_the_run_ever_frees_is_no_hang(tmp_path):
    path = tmp_path / "file"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        ran = run(["a", "b"], Replay(Schedule()), locked(path), patience=2.0)
    assert ran.fate is Fate.UNCONTROLLED
    assert ran.explanation == "a waits for file, which is held outside the run"
    assert ran.stacks == ""


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path):
    inner = locked(tmp_path / "file")

    def body(name, drive):
        if name == "killer":
            return drive(lambda: os.kill(int((tmp_path / "holder").read_text()), signal.SIGKILL))
        (tmp_path / name).write_text(str(os.getpid()))
        return inner(name, drive)

    line = "holder:middle#1>next, next:wait:file#1>killer"
    ran = run(["holder", "next", "killer"], Replay(Schedule.parse(line)), body, mortal=True)
    assert ran.fate is Fate.DONE
    assert isinstance(ran.errors["holder"], ProcessDied)
    assert str(ran.errors["holder"]) == "process holder was killed by SIGKILL"
    assert steps_to_json(ran.steps)[-2:] == ["next:middle#1", "next:end#1"]


def test_two_locks_in_opposite_order_are_a_deadlock(tmp_path):
    def body(name, drive):
        def part():
            with open(tmp_path / name, "a") as mine, open(tmp_path / ("b" if name == "a" else "a"), "a") as other:
                fcntl.flock(mine, fcntl.LOCK_EX)
                point("between")
                fcntl.flock(other, fcntl.LOCK_EX)

        return drive(part)

    ran = run(["a", "b"], Replay(Schedule.parse("a:between#1>b")), body)
    assert ran.fate is Fate.DEADLOCK
    assert set(ran.explanation.split("; ")) == {"a waits for b, held by b", "b waits for a, held by a"}


def test_the_death_of_a_mortal_process_is_an_end_like_any_other():
    ran = run(["a", "b"], Replay(Schedule()), lambda name, drive: drive(lambda: os._exit(3)), mortal=True)
    assert ran.fate is Fate.DONE
    assert {name: str(error) for name, error in ran.errors.items()} == {
        "a": "process a ended with code 3",
        "b": "process b ended with code 3",
    }


def test_where_a_process_sleeps_for_good_is_shown():
    ran = run(["a"], Replay(Schedule()), lambda name, drive: drive(threading.Event().wait), patience=3)
    assert ran.fate is Fate.UNCONTROLLED
    assert "threading.py" in ran.stacks


def test_processes_look_around_one_after_the_other(tmp_path):
    def body(name, drive):
        drive(lambda: None)
        seen = sorted(path.name for path in tmp_path.iterdir())
        (tmp_path / name).touch()
        return seen

    assert run(["a", "b", "c"], Replay(Schedule()), body).values == {"a": [], "b": ["a"], "c": ["a", "b"]}
