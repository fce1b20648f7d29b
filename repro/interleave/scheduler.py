"""Token passing: of the threads of a run exactly one runs at a time, between seams.

:class:`Turns` is the state that says whose turn it is; it neither starts nor stops anything. :class:`Scheduler`
drives threads by it, ``processes.py`` drives processes by it.
"""

from __future__ import annotations

import contextvars
import copy
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import psutil

from repro.interleave.schedule import Schedule, Step

# Seconds without a seam reached and without any processor time used, after which the running thread counts as
# blocked outside the model. Longer than a compiler takes on a busy machine: another process of the suite may hold the
# file lock of a kernel meanwhile. It bounds a wait; no verdict depends on its value.
PATIENCE = 45.0


class Strategy(Protocol):
    """Says who goes on. Must be a picklable value: it travels into a sandbox."""

    def choose(self, thread: str, seam: str, visit: int, ready: tuple[str, ...]) -> str:
        """One of ``ready``, the threads that can go on (in declared order)."""
        ...


class Fate(str, Enum):
    """How a run of threads ended."""

    DONE = "done"
    DEADLOCK = "deadlock"
    UNCONTROLLED = "uncontrolled"

    def __str__(self) -> str:
        return self.value


@dataclass
class Run:
    """What happened: every decision, what each thread returned or raised, and how it ended."""

    fate: Fate
    steps: list[Step]
    values: dict[str, Any]
    errors: dict[str, BaseException]
    explanation: str = ""
    stacks: str = ""
    waits: list[Wait] = field(default_factory=list)

    @property
    def schedule(self) -> Schedule:
        return Schedule.of(self.steps)


@dataclass(frozen=True)
class Wait:
    """``thread`` could not go on at decision number ``step``, since ``holder`` had ``lock``.

    There is no holder of a condition: threads wait for word from others.
    """

    step: int
    thread: str
    lock: str
    holder: str | None
    timed: bool = False

    def __str__(self) -> str:
        return f"{self.thread} waits for {self.lock}" + (f", held by {self.holder}" if self.holder else "")


class Turns:
    """Whose turn it is. Only the one who has the turn calls, so there is nothing to lock."""

    def __init__(self, names: Sequence[str], strategy: Strategy) -> None:
        self.names = tuple(names)
        # A strategy may count as it goes; whoever gave it may use it for another run.
        self.strategy = copy.deepcopy(strategy)
        self.steps: list[Step] = []
        self.waits: list[Wait] = []
        self.waiting: dict[str, Wait] = {}
        self.expired: set[str] = set()
        self.ended: set[str] = set()
        self._visits: Counter[tuple[str, str]] = Counter()

    @property
    def ready(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.ended and name not in self.waiting)

    def reach(self, thread: str, seam: str) -> str | None:
        """``thread`` stands at ``seam``: who goes on? ``None`` when nobody can."""
        self._visits[thread, seam] += 1
        visit = self._visits[thread, seam]
        ready = self.ready or self._expire()
        if not ready:
            self.steps.append(Step(thread, seam, visit, (), thread))
            return None
        chosen = ready[0] if len(ready) == 1 else self.strategy.choose(thread, seam, visit, ready)
        if chosen not in ready:
            raise RuntimeError(f"strategy chose {chosen!r}, which cannot go on; ready are {ready}")
        self.steps.append(Step(thread, seam, visit, ready, chosen))
        return chosen

    def wait(self, thread: str, lock: str, holder: str | None, timed: bool = False) -> str | None:
        """``thread`` cannot go on before ``lock`` is freed; with ``timed``, or nobody else can go on either."""
        self.waiting[thread] = Wait(len(self.steps), thread, lock, holder, timed)
        self.waits.append(self.waiting[thread])
        return self.reach(thread, f"wait:{lock}")

    def _expire(self) -> tuple[str, ...]:
        """Time passes only when nobody can go on: then the first wait with a timeout is over."""
        for thread, wait in self.waiting.items():
            if wait.timed:
                del self.waiting[thread]
                self.expired.add(thread)
                return (thread,)
        return ()

    def freed(self, lock: str) -> None:
        """Whoever waits for ``lock`` may try again."""
        for thread in [name for name, wait in self.waiting.items() if wait.lock == lock]:
            del self.waiting[thread]

    def end(self, thread: str) -> str | None:
        """``thread`` is through."""
        self.ended.add(thread)
        return self.reach(thread, "end")

    def cycle(self) -> str:
        """Who waits for whom, in words."""
        return "; ".join(
            f"{wait.thread} waits for {wait.lock}, held by {wait.holder or 'nobody'}"
            for wait in self.waiting.values()
        )


class Driver(Protocol):
    """What a seam or a modelled lock needs of whoever drives the calling thread."""

    def reach(self, name: str, seam: str) -> None: ...

    def wait(self, name: str, lock: str, holder: str | None, *, timed: bool = False) -> bool: ...

    def freed(self, lock: str) -> None: ...


class _Worker(threading.local):
    scheduler: Driver | None = None
    name: str = ""
    # Seams are off while the scheduler's own code, or a strategy, runs in this thread.
    busy: bool = False


_worker = _Worker()


def drive(driver: Driver | None, name: str = "") -> None:
    """From here on ``driver`` drives the calling thread; ``None`` lets it go."""
    _worker.scheduler, _worker.name = driver, name


def current() -> tuple[Driver, str] | None:
    """The scheduler of the calling thread and the thread's name in it; ``None`` in threads that nobody drives."""
    if _worker.scheduler is None or _worker.busy:
        return None
    return _worker.scheduler, _worker.name


def point(name: str) -> None:
    """A seam in code of one's own. Does nothing outside a run."""
    if (here := current()) is not None:
        here[0].reach(here[1], name)


class Scheduler:
    """Runs 2 to 8 callables in threads, one at a time between seams, by a strategy.

    ``context`` says where a worker's context variables come from: ``"copied"`` from the caller, as when a team
    carries its settings over, or ``"empty"``, which is what ``threading.Thread`` does. Since torch 2.12 config
    overrides live there. ``pause`` and ``resume`` are called with a thread's name when it gives up its turn between
    its first point and its last, and when it has it again.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        context: str = "copied",
        patience: float = PATIENCE,
        pause: Callable[[str], None] = lambda name: None,
        resume: Callable[[str], None] = lambda name: None,
    ) -> None:
        if context not in ("copied", "empty"):
            raise ValueError(f"context must be 'copied' or 'empty', not {context!r}")
        self._strategy = strategy
        self._context = context
        self._patience = patience
        self._pause, self._resume = pause, resume
        self._stopped = threading.Event()
        self._fate = Fate.DONE
        self._stacks = ""

    def run(self, bodies: Mapping[str, Callable[[], Any]]) -> Run:
        """Run all ``bodies`` (thread name to callable) to their end, to a deadlock or to an uncontrolled block.

        After anything but ``Fate.DONE`` the threads are still there, parked for good: end the process.
        """
        if not 1 <= len(bodies) <= 8:
            raise ValueError(f"a run has 1 to 8 threads, not {len(bodies)}")
        self._turns = Turns(list(bodies), self._strategy)
        self._gates = {name: threading.Semaphore(0) for name in bodies}
        self._values: dict[str, Any] = {}
        self._errors: dict[str, BaseException] = {}
        threads = {
            name: threading.Thread(
                target=contextvars.copy_context().run if self._context == "copied" else _call,
                args=(self._work, name, body),
                name=name,
                daemon=True,
            )
            for name, body in bodies.items()
        }
        for thread in threads.values():
            thread.start()
        self._gates[self._turns.names[0]].release()
        self._watch()
        if self._fate is Fate.DONE:
            for thread in threads.values():
                thread.join()
        else:
            self._stacks = _stacks({thread.ident: name for name, thread in threads.items()})
        explanation = {
            Fate.DONE: "",
            Fate.DEADLOCK: self._turns.cycle(),
            Fate.UNCONTROLLED: f"a thread is blocked outside the model: nothing moved for {self._patience:g} s",
        }[self._fate]
        return Run(
            self._fate,
            list(self._turns.steps),
            dict(self._values),
            dict(self._errors),
            explanation,
            self._stacks,
            list(self._turns.waits),
        )

    def reach(self, name: str, seam: str) -> None:
        """The thread ``name`` stands at ``seam``; returns when it may go on."""
        self._hand_over(name, lambda: self._turns.reach(name, seam))

    def wait(self, name: str, lock: str, holder: str | None, *, timed: bool = False) -> bool:
        """The thread ``name`` needs ``lock``: ``True`` when it is worth another try, ``False`` on timeout."""
        self._hand_over(name, lambda: self._turns.wait(name, lock, holder, timed))
        timeout = name in self._turns.expired
        self._turns.expired.discard(name)
        return not timeout

    def freed(self, lock: str) -> None:
        self._turns.freed(lock)

    def _hand_over(self, name: str, decide: Callable[[], str | None]) -> None:
        _worker.busy = True
        try:
            chosen = decide()
            if chosen == name:
                return
            self._pause(name)
            if chosen is None:
                self._stop(Fate.DEADLOCK)
            else:
                self._gates[chosen].release()
            self._gates[name].acquire()
            self._resume(name)
        finally:
            _worker.busy = False

    def _work(self, name: str, body: Callable[[], Any]) -> None:
        self._gates[name].acquire()
        drive(self, name)
        try:
            self.reach(name, "start")
            self._values[name] = body()
        except BaseException as error:
            self._errors[name] = error
        finally:
            drive(None)
            chosen = self._turns.end(name)
            if chosen is not None:
                self._gates[chosen].release()
            else:
                self._stop(Fate.DEADLOCK if self._turns.waiting else Fate.DONE)

    def _stop(self, fate: Fate) -> None:
        # The first word counts: a thread that comes free after the wait for it is over changes nothing.
        if not self._stopped.is_set():
            self._fate = fate
            self._stopped.set()

    def _watch(self) -> None:
        """Wait for the end, or until nothing has moved for ``patience`` seconds."""
        stillness = Stillness()
        while not self._stopped.wait(1.0):
            if stillness.ticks(len(self._turns.steps)) >= self._patience:
                self._stop(Fate.UNCONTROLLED)


class Stillness:
    """Counts, at one tick a second, for how long nothing has moved: no seam reached, no processor time used."""

    def __init__(self) -> None:
        self._steps = 0
        self._used: float | None = None
        self._ticks = 0

    def ticks(self, steps: int) -> int:
        # To ask for processor time is to look through all processes: not where steps say enough.
        used = _processor_seconds() if steps == self._steps else None
        still = used is not None and self._used is not None and used - self._used < 0.05
        self._ticks = self._ticks + 1 if still else 0
        self._steps, self._used = steps, used
        return self._ticks


def _call(function: Callable[..., Any], *args: Any) -> None:
    function(*args)


def _processor_seconds() -> float:
    """Processor time of this process and all below it: a compiler that runs for us is progress."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def _stacks(names: Mapping[int | None, str]) -> str:
    frames = sys._current_frames()
    return "\n".join(
        f"thread {names[ident]}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in frames.items()
        if ident in names
    )
