"""Tiny programs with known answers: what a search must find in them, and what it must not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from repro.interleave import Fate, Run, Scheduler, Seams, Step, point
from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule
from repro.interleave.scheduler import Strategy

Bodies = Mapping[str, Callable[[], Any]]
NAMES = "abcdefgh"


@dataclass(frozen=True)
class Program:
    """Threads, and whether what they left behind is broken. Made anew for every run."""

    bodies: Bodies
    broken: Callable[[], bool]


@dataclass(frozen=True)
class Tried:
    steps: list[Step]
    failed: bool
    signature: str
    conclusive: bool = True


def run(program: Program, strategy: Strategy) -> Run:
    with Seams([], code=program.bodies.values()):
        return Scheduler(strategy).run(program.bodies)


def attempt(make: Callable[[], Program], strategy: Strategy) -> Tried:
    """One trial; ``functools.partial(attempt, make)`` is what an exploration runs, here or in another process."""
    program = make()
    ran = run(program, strategy)
    if ran.fate is Fate.DEADLOCK:
        return Tried(ran.steps, True, "deadlock")
    if ran.errors:
        raise next(iter(ran.errors.values()))
    broken = program.broken()
    return Tried(ran.steps, broken, "broken" if broken else "fine", ran.fate is Fate.DONE)


def replay(make: Callable[[], Program], line: str) -> Tried:
    return attempt(make, Replay(Schedule.parse(line)))


# ---- broken ------------------------------------------------------------------------------------------------------


def lost_update(threads: int = 2) -> Program:
    """Everybody adds one; shown by one switch between somebody's read and write."""
    shared = SimpleNamespace(count=0)

    def body() -> None:
        point("read")
        count = shared.count
        point("write")
        shared.count = count + 1

    return Program(dict.fromkeys(NAMES[:threads], body), lambda: shared.count != threads)


def check_then_act() -> Program:
    """Whoever finds nothing makes it; shown by one switch between the look and the making."""
    made: list[object] = []

    def body() -> None:
        point("check")
        if not made:
            point("act")
            made.append(object())

    return Program({"a": body, "b": body}, lambda: len(made) != 1)


def two_switches() -> Program:
    """``a`` must come while ``b`` is busy. Started first, it comes too early; after ``b``, too late."""
    shared = SimpleNamespace(busy=False, hurt=False)

    def a() -> None:
        shared.hurt = shared.busy

    def b() -> None:
        shared.busy = True
        point("busy")
        shared.busy = False

    return Program({"a": a, "b": b}, lambda: shared.hurt)


def three_switches() -> Program:
    """The leaked flag: ``a`` saves it while ``b`` has it set, and puts it back when ``b`` is done."""
    shared = SimpleNamespace(flag=False)

    def a() -> None:
        saved = shared.flag
        point("saved")
        shared.flag = saved

    def b() -> None:
        shared.flag = True
        point("set")
        shared.flag = False

    return Program({"a": a, "b": b}, lambda: shared.flag)


def deadlock() -> Program:
    """Two locks, taken in both orders."""
    left, right = threading.Lock(), threading.Lock()

    def a() -> None:
        with left, right:
            pass

    def b() -> None:
        with right, left:
            pass

    return Program({"a": a, "b": b}, lambda: False)


# ---- race-free ---------------------------------------------------------------------------------------------------


def with_lock(threads: int = 2) -> Program:
    return _guarded(threading.Lock(), threads)


def with_semaphore(threads: int = 2) -> Program:
    return _guarded(threading.Semaphore(1), threads)


def with_bounded_semaphore(threads: int = 2) -> Program:
    return _guarded(threading.BoundedSemaphore(1), threads)


def _guarded(lock: Any, threads: int) -> Program:
    shared = SimpleNamespace(count=0)

    def body() -> None:
        with lock:
            point("read")
            count = shared.count
            point("write")
            shared.count = count + 1

    return Program(dict.fromkeys(NAMES[:threads], body), lambda: shared.count != threads)


def with_rlock(threads: int = 2) -> Program:
    """Taken twice over: the inner release must not let others in."""
    lock, shared = threading.RLock(), SimpleNamespace(count=0)

    def body() -> None:
        with lock:
            count = shared.count
            with lock:
                point("inner")
            point("write")
            shared.count = count + 1

    return Program(dict.fromkeys(NAMES[:threads], body), lambda: shared.count != threads)


def with_condition(threads: int = 2) -> Program:
    """Everybody waits for the one before, so they finish in order whatever the schedule."""
    turn, done = threading.Condition(), []

    def worker(number: int) -> Callable[[], None]:
        def body() -> None:
            point("before")
            with turn:
                turn.wait_for(lambda: len(done) == number)
                point("mine")
                done.append(number)
                turn.notify_all()

        return body

    bodies = {name: worker(number) for number, name in enumerate(NAMES[:threads])}
    return Program(bodies, lambda: done != list(range(threads)))


RACE_FREE = (with_lock, with_semaphore, with_bounded_semaphore, with_rlock, with_condition)
