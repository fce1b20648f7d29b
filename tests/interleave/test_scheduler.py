from __future__ import annotations

import contextvars
import threading

import programs
import pytest

from repro.interleave import Fate, Schedule, Scheduler, Seams, point
from repro.interleave.replay import Replay, fates
from repro.interleave.schedule import steps_to_json
from repro.interleave.scheduler import Stillness

SETTING = contextvars.ContextVar("SETTING", default="default")


def follow(line, bodies, **options):
    with Seams([], code=bodies.values()):
        return Scheduler(Replay(Schedule.parse(line)), **options).run(bodies)


def test_one_thread_runs_at_a_time_between_seams():
    order = []

    def body(name):
        def steps():
            for number in range(3):
                order.append(f"{name}{number}")
                point("step")

        return steps

    ran = follow("a:step#1>b, b:step#2>a", {"a": body("a"), "b": body("b")})
    assert order == ["a0", "b0", "b1", "a1", "a2", "b2"]
    assert steps_to_json(ran.steps)[:5] == ["a:start#1", "a:step#1>b", "b:start#1", "b:step#1", "b:step#2>a"]
    assert str(ran.schedule) == "a:step#1>b, b:step#2>a"


@pytest.mark.parametrize("threads", range(1, 9))
def test_one_to_eight_threads(threads):
    ran = programs.run(programs.lost_update(threads), Replay(Schedule()))
    assert ran.fate is Fate.DONE
    assert list(dict.fromkeys(step.thread for step in ran.steps)) == list(programs.NAMES[:threads])


@pytest.mark.parametrize("bodies", [{}, dict.fromkeys("abcdefghi", lambda: None)])
def test_no_threads_and_nine_are_refused(bodies):
    with pytest.raises(ValueError, match="1 to 8 threads"):
        Scheduler(Replay(Schedule())).run(bodies)


def test_values_and_errors_are_kept_by_thread():
    def fails():
        point("before")
        raise KeyError("b")

    ran = follow("-", {"a": lambda: 1, "b": fails, "c": lambda: 3})
    assert ran.values == {"a": 1, "c": 3}
    assert isinstance(ran.errors["b"], KeyError)


def test_a_deadlock_is_told_with_its_cycle_and_stacks():
    ran = programs.run(programs.deadlock(), Replay(Schedule.parse("a:right.acquire#1>b")))
    assert ran.fate is Fate.DEADLOCK
    assert ran.explanation == "b waits for left, held by a; a waits for right, held by b"
    assert "thread a:" in ran.stacks
    assert "thread b:" in ran.stacks
    assert ran.stacks.count("with left, right") == ran.stacks.count("with right, left") == 1


def test_a_lock_that_is_kept_for_good_is_a_deadlock():
    lock = threading.Lock()

    def keeps():
        lock.acquire()

    def needs():
        with lock:
            pass

    ran = follow("-", {"a": keeps, "b": needs})
    assert ran.fate is Fate.DEADLOCK
    assert ran.explanation == "b waits for lock, held by a"


def test_a_block_outside_the_model_is_uncontrolled():
    # In a tuple: not a place that is searched.
    hidden = (threading.Lock(),)

    def body():
        with hidden[0]:
            point("inside")

    ran = follow("a:inside#1>b", {"a": body, "b": body}, patience=0.5)
    assert ran.fate is Fate.UNCONTROLLED
    assert not ran.values
    assert not ran.errors
    assert ran.explanation == "a thread is blocked outside the model: nothing moved for 0.5 s"
    assert "with hidden[0]" in ran.stacks


def test_stillness_counts_where_neither_steps_nor_processor_time_move(monkeypatch):
    used = iter([0.0, 0.01, 0.02, 5.0, 5.01, 5.02])
    monkeypatch.setattr("repro.interleave.scheduler._processor_seconds", lambda: next(used))
    stillness = Stillness()

    # Steps move; nothing does, twice; time is used; nothing moves; steps do, and the count begins anew.
    assert [stillness.ticks(steps) for steps in (1, 2, 2, 2, 2, 2, 2, 3, 3)] == [0, 0, 0, 1, 2, 0, 1, 0, 0]
    assert list(used) == []


def test_a_thread_that_comes_free_too_late_changes_nothing():
    hidden = (threading.Semaphore(0),)
    ended = threading.Event()

    def body():
        hidden[0].acquire()
        point("free")
        ended.set()

    scheduler = Scheduler(Replay(Schedule()), patience=0.5)
    assert scheduler.run({"a": body}).fate is Fate.UNCONTROLLED
    hidden[0].release()
    assert ended.wait(60)
    assert scheduler._fate is Fate.UNCONTROLLED


@pytest.mark.parametrize(("context", "value"), [("copied", "set"), ("empty", "default")])
def test_context_variables_are_copied_or_not(context, value):
    def run():
        SETTING.set("set")
        return follow("-", {"a": SETTING.get, "b": SETTING.get}, context=context).values

    assert contextvars.copy_context().run(run) == {"a": value, "b": value}


def test_one_thread_does_not_see_what_another_sets():
    ran = follow("-", {"a": lambda: SETTING.set("by a") and None, "b": SETTING.get})
    assert ran.values["b"] == "default"


def test_another_context_is_refused():
    with pytest.raises(ValueError, match="'copied' or 'empty', not 'shared'"):
        Scheduler(Replay(Schedule()), context="shared")


def test_a_strategy_that_counts_can_be_used_again():
    class Counts:
        calls = 0

        def choose(self, thread, seam, visit, ready):
            self.calls += 1
            return ready[self.calls % len(ready)]

    strategy = Counts()
    runs = [programs.attempt(programs.lost_update, strategy).steps for _ in range(2)]
    assert runs[0] == runs[1]
    assert strategy.calls == 0


def test_a_strategy_that_chooses_nobody_is_an_error():
    class Nobody:
        def choose(self, thread, seam, visit, ready):
            return "nobody" if seam == "read" else ready[0]

    ran = Scheduler(Nobody()).run(programs.lost_update().bodies)
    assert "cannot go on" in str(ran.errors["a"])


def test_a_point_outside_a_run_does_nothing():
    point("nowhere")


# ---- what became of each switch ----------------------------------------------------------------------------------


def became(line, program):
    return [str(fate) for fate in fates(Schedule.parse(line), programs.run(program, Replay(Schedule.parse(line))))]


def test_a_switch_is_taken():
    assert became("a:write#1>b", programs.lost_update()) == ["a:write#1>b taken"]


def test_a_switch_is_refused_with_the_lock_and_its_holder():
    assert became("a:write#1>b", programs.with_lock()) == ["a:write#1>b refused (b waits for lock, held by a)"]


def test_a_switch_to_who_already_waits_is_refused():
    assert became("a:read#1>b, a:write#1>b", programs.with_lock()) == [
        "a:read#1>b refused (b waits for lock, held by a)",
        "a:write#1>b refused (b waits for lock, held by a)",
    ]


def test_a_switch_to_who_has_ended_is_refused():
    assert became("a:start#1>b, a:write#1>b", programs.lost_update()) == [
        "a:start#1>b taken",
        "a:write#1>b refused (b had ended)",
    ]


def test_a_switch_that_is_never_reached_is_absent():
    assert became("a:other#1>b", programs.lost_update()) == ["a:other#1>b absent (a never came to other#1)"]
