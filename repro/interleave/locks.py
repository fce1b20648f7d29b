"""Models of the locks that a run may block on.

A thread that blocks in a real lock while another thread, parked at a seam, holds it would stop the run for no
reason. A modelled lock wraps the *real* object: it tries, and where it cannot have the lock it says so to the
scheduler, which lets others go on. Threads that no scheduler drives see the real lock's behaviour unchanged.

``threading`` itself is never replaced. Only lock objects found in named places are: in the globals, closures and
attributes of the code under test.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from repro.interleave import scheduler
from repro.interleave.patches import Patches

_SEMAPHORES = (threading.Semaphore,)  # BoundedSemaphore is one
_LOCKS = (type(threading.Lock()), type(threading.RLock()))


class ModelledLock:
    """Wraps a Lock, RLock, Semaphore or BoundedSemaphore."""

    def __init__(self, real: Any, name: str) -> None:
        self.real = real
        self.name = name
        self.holder: str | None = None

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        here = scheduler.current()
        if here is None:
            if timeout is None and isinstance(self.real, _LOCKS):
                timeout = -1
            return bool(self.real.acquire(blocking, timeout))
        run, me = here
        if blocking:
            run.reach(me, f"{self.name}.acquire")
        timed = timeout is not None and timeout >= 0
        while not self.real.acquire(blocking=False):
            if not blocking or not run.wait(me, self.name, self.holder, timed=timed):
                return False
        self.holder = me
        return True

    def release(self, *args: Any, **kwargs: Any) -> None:
        self.real.release(*args, **kwargs)
        if (here := scheduler.current()) is not None:
            here[0].freed(self.name)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __repr__(self) -> str:
        return f"<modelled {self.name}: {self.real!r}>"


class ModelledCondition:
    """Wraps a Condition; ``lock`` is the model of the lock that the condition was made with."""

    def __init__(self, real: threading.Condition, name: str, lock: ModelledLock) -> None:
        self.real = real
        self.name = name
        self.lock = lock
        self._waiters: list[list[bool]] = []

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        return self.lock.acquire(blocking, timeout)

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> bool:
        return self.lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self.lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        here = scheduler.current()
        if here is None:
            return self.real.wait(timeout)
        run, me = here
        depth = self._let_go()
        notified = [False]
        self._waiters.append(notified)
        run.freed(self.lock.name)
        try:
            while not notified[0]:
                if not run.wait(me, self.name, None, timed=timeout is not None):
                    break
        finally:
            self._waiters = [waiter for waiter in self._waiters if waiter is not notified]
            for _ in range(depth):
                self.lock.acquire()
        return notified[0]

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        result = predicate()
        while not result:
            if not self.wait(timeout):
                return predicate()
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        self.real.notify(n)
        here = scheduler.current()
        if here is not None:
            for waiter in self._waiters[:n]:
                waiter[0] = True
            del self._waiters[:n]
            here[0].freed(self.name)

    def notify_all(self) -> None:
        self.notify(max(len(self._waiters), 1))
        self.real.notify_all()

    def _let_go(self) -> int:
        """Release the lock as often as it was taken; returns how often. Raises RuntimeError when not owned."""
        if isinstance(self.lock.real, _LOCKS[0]):
            self.lock.real.release()
            return 1
        depth = 0
        while True:
            try:
                self.lock.real.release()
            except RuntimeError:
                if depth == 0:
                    raise
                return depth
            depth += 1

    def __repr__(self) -> str:
        return f"<modelled {self.name}: {self.real!r}>"


class Models:
    """Finds the lock objects of some code and puts models in their place, for as long as ``patches`` lasts."""

    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._models: dict[int, ModelledLock | ModelledCondition] = {}
        self._seen: set[int] = set()
        # What was looked at stays alive, or its id could be taken by something new.
        self._kept: list[Any] = []

    @property
    def names(self) -> list[str]:
        return [model.name for model in self._models.values()]

    def attribute(self, owner: Any, name: str, label: str | None = None) -> None:
        """Model the lock in ``owner.name``."""
        model = self._model(getattr(owner, name), label or name)
        self._patches.put(
            f"{getattr(owner, '__name__', type(owner).__name__)}.{name}",
            lambda: getattr(owner, name),
            functools.partial(setattr, owner, name),
            model,
        )

    def search(self, root: Any) -> None:
        """Model every lock in the globals, closures and attributes of ``root``: a function, object or module."""
        if id(root) in self._seen or _is_library(root):
            return
        self._seen.add(id(root))
        self._kept.append(root)
        if isinstance(root, types.MethodType):
            self.search(root.__func__)
            self.search(root.__self__)
        elif isinstance(root, functools.partial):
            self.search(root.func)
            self.search(root.keywords)
        for place, get, put in list(_places(root)):
            try:
                value = get()
            except (ValueError, AttributeError):  # an empty closure cell, or slot
                continue
            if isinstance(value, (*_LOCKS, *_SEMAPHORES, threading.Condition)):
                self._patches.put(place, get, put, self._model(value, place))
            elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial, dict, list)) or (
                hasattr(value, "__dict__") and not isinstance(value, (type, types.ModuleType))
            ):
                self.search(value)
        if not isinstance(root, (types.FunctionType, types.ModuleType, type, dict, list)):
            # What a method reads counts as much; but the standard library's methods lock for their own sake.
            for kind in type(root).__mro__:
                if kind.__module__.partition(".")[0] not in sys.stdlib_module_names:
                    self.search(kind)

    def _model(self, real: Any, name: str) -> ModelledLock | ModelledCondition:
        if isinstance(real, (ModelledLock, ModelledCondition)):
            return real
        if id(real) not in self._models:
            name = self._unlike_others(name)
            self._kept.append(real)
            if isinstance(real, threading.Condition):
                lock = self._model(real._lock, f"{name}.lock")  # type: ignore[attr-defined]
                assert isinstance(lock, ModelledLock)
                self._models[id(real)] = ModelledCondition(real, name, lock)
            else:
                self._models[id(real)] = ModelledLock(real, name)
        return self._models[id(real)]

    def _unlike_others(self, name: str) -> str:
        """Two locks never share a name, and a name fits into the one-line form of a schedule."""
        name = re.sub(r"[\s,#>]+", "_", name)
        alike = sum(other.partition("~")[0] == name for other in self.names)
        return f"{name}~{alike + 1}" if alike else name


def _is_library(root: Any) -> bool:
    """Only code under test is searched: not torch, not this package's engine, not what locks for its own sake."""
    if isinstance(root, (dict, list)):
        return False
    if isinstance(root, types.ModuleType):
        module = root.__name__
    else:
        module = getattr(root, "__module__", None) or type(root).__module__
    return module.partition(".")[0] in ("torch", "builtins", "threading", "logging") or module.startswith(
        "repro.interleave"
    )


_Place = tuple[str, Callable[[], Any], Callable[[Any], None]]


def _places(root: Any) -> Iterator[_Place]:
    """Where ``root`` can hold a lock: a name, how to read it, how to write it."""
    if isinstance(root, types.FunctionType):
        names = list(_names(root.__code__))
        for name in names:
            if name in root.__globals__:
                yield _item(root.__globals__, name, name)
                yield from _within(root.__globals__[name], name, names)
        for name, cell in zip(root.__code__.co_freevars, root.__closure__ or (), strict=True):
            yield (
                name,
                functools.partial(getattr, cell, "cell_contents"),
                functools.partial(setattr, cell, "cell_contents"),
            )
        if hasattr(root, "__wrapped__"):
            yield "__wrapped__", lambda: root.__wrapped__, lambda value: setattr(root, "__wrapped__", value)
    elif isinstance(root, dict):
        for key in root:
            yield _item(root, key, str(key))
    elif isinstance(root, functools.partial):
        for index in range(len(root.args)):
            yield (
                f"args.{index}",
                functools.partial(_argument, root, index),
                functools.partial(_put_argument, root, index),
            )
    elif isinstance(root, list):
        for index in range(len(root)):
            yield _item(root, index, str(index))
    elif hasattr(root, "__dict__"):
        for name in vars(root):
            yield name, functools.partial(getattr, root, name), functools.partial(setattr, root, name)


def _within(owner: Any, label: str, names: list[str]) -> Iterator[_Place]:
    """Of a module or a class that a function names, what it may read of it, as in ``locks.LOCK``."""
    if isinstance(owner, (type, types.ModuleType)) and not _is_library(owner):
        for name in dict.fromkeys(names):
            if isinstance(vars(owner).get(name), (*_LOCKS, *_SEMAPHORES, threading.Condition)):
                yield (
                    f"{label}.{name}",
                    functools.partial(getattr, owner, name),
                    functools.partial(setattr, owner, name),
                )


def _argument(root: functools.partial[Any], index: int) -> Any:
    return root.args[index]


def _put_argument(root: functools.partial[Any], index: int, value: Any) -> None:
    args = (*root.args[:index], value, *root.args[index + 1 :])
    root.__setstate__((root.func, args, root.keywords, root.__dict__))  # type: ignore[attr-defined]


def _names(code: types.CodeType) -> Iterator[str]:
    """Every global that a function may read, those of its inner functions too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _item(container: Any, key: Any, name: str) -> _Place:
    return name, lambda: container[key], functools.partial(container.__setitem__, key)
