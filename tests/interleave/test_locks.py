"""The locks of the code under test are modelled wherever they are found, and put back."""

from __future__ import annotations

import functools
import logging
import queue
import threading
import types
from types import SimpleNamespace

import programs
import pytest

from repro.interleave import Fate, Run, Schedule, Scheduler, Seams, point
from repro.interleave.locks import ModelledCondition, ModelledLock
from repro.interleave.patches import NotRestored
from repro.interleave.replay import Replay, fates

KINDS = [threading.Lock, threading.RLock, threading.Semaphore, threading.BoundedSemaphore, threading.Condition]
GLOBAL = threading.Lock()


def use_global():
    with GLOBAL:
        point("inside")


class Holder:
    shared = threading.Lock()

    def __init__(self):
        self.lock = threading.Lock()

    def use_own(self):
        with self.lock:
            point("inside")

    def use_shared(self):
        with self.shared:
            point("inside")

    def use_global(self):
        with GLOBAL:
            point("inside")

    @staticmethod
    def use_static():
        with GLOBAL:
            point("inside")


holder = Holder()


def in_closure():
    lock = threading.Lock()

    def use():
        with lock:
            point("inside")

    return use


def in_container(container, key):
    def use():
        with container[key]:
            point("inside")

    return use


def in_nested():
    def use():
        def inner():
            with GLOBAL:
                point("inside")

        inner()

    return use


def in_attribute():
    state = SimpleNamespace(deep=SimpleNamespace(lock=threading.Lock()))

    def use():
        with state.deep.lock:
            point("inside")

    return use


def take(lock):
    with lock:
        point("inside")


def take_lock_of(state):
    take(state.lock)


def decorated():
    lock = threading.Lock()

    def guard(function):
        @functools.wraps(function)
        def call():
            with lock:
                return function()

        return call

    return guard(lambda: point("inside"))


def in_module():
    module = types.ModuleType("audited")
    module.lock = threading.Lock()
    exec("def use():\n    with lock:\n        point('inside')", vars(module))
    module.point = point
    return module.use


locks = types.ModuleType("locks")
locks.LOCK = threading.Lock()


def use_lock_of_a_module():
    with locks.LOCK:
        point("inside")


def use_lock_of_a_class():
    with Holder.shared:
        point("inside")


PLACES = {
    "global": lambda: use_global,
    "closure": in_closure,
    "dict": lambda: in_container({"some lock": threading.Lock()}, "some lock"),
    "list": lambda: in_container([threading.Lock()], 0),
    "attribute": in_attribute,
    "inner function": in_nested,
    "decorator": decorated,
    "module": in_module,
    "attribute of a module": lambda: use_lock_of_a_module,
    "attribute of a class": lambda: use_lock_of_a_class,
    "method, own": lambda: Holder().use_own,
    "method, class": lambda: Holder().use_shared,
    "method, global": lambda: Holder().use_global,
    "method of a global": lambda: lambda: holder.use_global(),
    "static method of a global": lambda: lambda: holder.use_static(),
    "partial, argument": lambda: functools.partial(take, threading.Lock()),
    "partial, keyword": lambda: functools.partial(take, lock=threading.Lock()),
    "partial, object": lambda: functools.partial(take_lock_of, SimpleNamespace(lock=threading.Lock())),
}


def race(body, line="a:inside#1>b", **options) -> Run:
    """Two threads in the same code; ``a`` is switched away from while it has the lock."""
    with Seams([], code=[body]):
        return Scheduler(Replay(Schedule.parse(line)), **options).run({"a": body, "b": body})


@pytest.mark.parametrize("place", PLACES)
def test_a_lock_is_found(place):
    ran = race(PLACES[place]())
    assert ran.fate is Fate.DONE
    assert not ran.errors
    assert [wait.thread for wait in ran.waits] == ["b"]
    assert ran.waits[0].holder == "a"
    # Whatever the place is called, the schedule stays a line that can be read.
    assert Schedule.parse(str(ran.schedule)) == ran.schedule


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_lock_refuses_the_switch_by_name(kind):
    guard = kind()

    def body():
        with guard:
            point("inside")

    ran = race(body)
    lock = "guard.lock" if kind is threading.Condition else "guard"
    (fate,) = fates(Schedule.parse("a:inside#1>b"), ran)
    assert str(fate) == f"a:inside#1>b refused (b waits for {lock}, held by a)"


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_put_back(kind):
    lock = kind()
    places = {"key": lock}
    listed = [lock]
    state = SimpleNamespace(lock=lock)
    bound = functools.partial(take, lock, again=lock)

    def use():
        return lock, places["key"], listed[0], state.lock, bound.args[0], bound.keywords["again"]

    with Seams([], code=[use]) as seams:
        modelled = use()
        assert all(isinstance(model, (ModelledLock, ModelledCondition)) for model in modelled)
        # One lock, one model, one name.
        assert len({id(model) for model in modelled}) == 1
        assert len(seams.locks) == (2 if kind is threading.Condition else 1)
        # Threads that nobody drives see the real lock.
        with lock:
            pass
    assert all(real is use()[0] for real in use())
    assert type(use()[0]) is type(kind())


def test_everything_is_put_back_after_a_failure_inside():
    lock = threading.Lock()

    def use():
        return lock

    def fails():
        with Seams([], code=[use]):
            assert isinstance(use(), ModelledLock)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert type(use()) is type(threading.Lock())


def test_what_somebody_else_changed_is_told():
    state = SimpleNamespace(lock=threading.Lock())
    was = state.lock

    def use():
        return state.lock

    with pytest.raises(NotRestored, match="lock held 'something else'"), Seams([], code=[use]):
        state.lock = "something else"
    assert state.lock is was


def test_locks_of_the_same_name_are_told_apart():
    one, other = Holder(), Holder()

    def a():
        with one.lock, other.lock:
            pass

    def b():
        with other.lock, one.lock:
            pass

    with Seams([], code=[a, b]) as seams:
        assert seams.locks == ["lock", "shared", "GLOBAL", "lock~2"]
        ran = Scheduler(Replay(Schedule.parse("a:lock~2.acquire#1>b"))).run({"a": a, "b": b})
    assert ran.fate is Fate.DEADLOCK
    assert ran.explanation == "b waits for lock, held by a; a waits for lock~2, held by b"


def test_threading_itself_is_never_replaced():
    before = {name: getattr(threading, name) for name in ("Lock", "RLock", "Condition", "Semaphore", "Thread")}
    with Seams([], code=[use_global, in_closure(), Holder().use_own]):
        assert {name: getattr(threading, name) for name in before} == before
        assert type(threading.Lock()) is type(threading.Lock())


def test_locks_of_logging_are_left_alone():
    log = logging.getLogger("tests.interleave")

    def use():
        log.info("x")

    with Seams([], code=[use]) as seams:
        assert seams.locks == []


# ---- the models behave as the real ones --------------------------------------------------------------------------


def alone(body) -> Run:
    with Seams([], code=[body]):
        ran = Scheduler(Replay(Schedule())).run({"a": body})
    if ran.errors:
        raise ran.errors["a"]
    return ran


def test_a_lock_that_is_not_waited_for_is_not_had():
    lock = threading.Lock()

    def body():
        with lock:
            return lock.acquire(blocking=False), lock.acquire(timeout=5), lock.locked()

    assert alone(body).values["a"] == (False, False, True)


def test_a_semaphore_counts():
    slots = threading.BoundedSemaphore(2)

    def body():
        had = [slots.acquire(blocking=False) for _ in range(3)]
        slots.release(n=2)
        with pytest.raises(ValueError, match="too many times"):
            slots.release()
        return had

    assert alone(body).values["a"] == [True, True, False]


def test_a_semaphore_lets_in_as_many_as_it_has():
    slots, inside, most = threading.Semaphore(2), [], []

    def body():
        with slots:
            inside.append(1)
            most.append(len(inside))
            point("inside")
            inside.pop()

    with Seams([], code=[body]):
        ran = Scheduler(Replay(Schedule.parse("a:inside#1>b, b:inside#1>c"))).run(dict.fromkeys("abc", body))
    assert max(most) == 2
    assert [(wait.thread, wait.lock) for wait in ran.waits] == [("c", "slots")]


def test_an_rlock_that_is_not_owned_cannot_be_released():
    lock = threading.RLock()

    def body():
        with pytest.raises(RuntimeError, match="un-acquired"):
            lock.release()

    alone(body)


def test_a_wait_on_a_condition_gives_all_of_its_rlock_back():
    condition = threading.Condition()
    order = []

    def a():
        with condition, condition:
            order.append("waits")
            condition.wait()
            order.append("woken")

    def b():
        with condition:
            order.append("notifies")
            condition.notify()

    with Seams([], code=[a, b]):
        ran = Scheduler(Replay(Schedule())).run({"a": a, "b": b})
    assert ran.fate is Fate.DONE
    assert order == ["waits", "notifies", "woken"]
    # Taken and given back as often as it was.
    with condition:
        pass
    assert not condition._is_owned()


def test_notify_wakes_as_many_as_it_says():
    condition, woken = threading.Condition(threading.Lock()), []

    def waiter(name):
        def body():
            with condition:
                condition.wait(timeout=60)
                woken.append(name)

        return body

    def c():
        with condition:
            condition.notify()
            point("one is awake")

    bodies = {"a": waiter("a"), "b": waiter("b"), "c": c}
    with Seams([], code=bodies.values()):
        ran = Scheduler(Replay(Schedule())).run(bodies)
    assert ran.fate is Fate.DONE
    # b's time was over only when nobody else could go on; nobody waited for it.
    assert woken == ["a", "b"]


def test_a_wait_that_nobody_ends_is_a_deadlock():
    condition = threading.Condition()

    def body():
        with condition:
            condition.wait()

    with Seams([], code=[body]):
        ran = Scheduler(Replay(Schedule())).run({"a": body})
    assert ran.fate is Fate.DEADLOCK
    assert ran.explanation == "a waits for condition, held by nobody"


def test_conditions_complain_as_the_real_ones_do():
    condition = threading.Condition()

    def body():
        with pytest.raises(RuntimeError, match="un-acquired"):
            condition.notify()
        with pytest.raises(RuntimeError, match="un-acquired"):
            condition.wait()

    alone(body)


def test_a_queue_is_made_of_modelled_locks():
    tasks: queue.Queue[int] = queue.Queue()

    def a():
        return tasks.get()

    def b():
        tasks.put(3)

    with Seams([], code=[a, b]):
        ran = Scheduler(Replay(Schedule())).run({"a": a, "b": b})
    assert ran.fate is Fate.DONE
    assert ran.values["a"] == 3


@pytest.mark.parametrize("make", programs.RACE_FREE)
def test_eight_threads_in_their_declared_order(make):
    assert programs.replay(functools.partial(make, 8), "-").signature == "fine"
