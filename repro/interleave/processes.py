"""The same token passing across processes: the control group, in which no Python state is shared.

Each name is a forked process instead of a thread. A lock in one process is not that of another; what processes do
wait for is a file locked with ``fcntl.flock``, torch's own locks among them, so that is modelled: a process that
cannot have it says so, and others go on. It is free again on ``LOCK_UN``, or when its process has ended. For one that
somebody else holds, such as another run on the same cache directory, it waits as it would, as long as patience lasts.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from repro.interleave.scheduler import Fate, Run, Stillness, Strategy, Turns, current, drive

# Seconds of stillness, as in the scheduler; but file locks are modelled here, so that nobody waits for what another
# process compiles.
PATIENCE = 15.0
# What a process is told that wants a file which no process of the run holds.
_ELSEWHERE = "held elsewhere"

# Runs a part under the schedule and returns what it raised.
Drive = Callable[[Callable[[], Any]], "BaseException | None"]


class ProcessDied(RuntimeError):
    """A process was killed, or ended, before its part was through; ``code`` is negative for a signal."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(name, code)
        self.name = name
        self.code = code

    def __str__(self) -> str:
        how = f"was killed by {signal.Signals(-self.code).name}" if self.code < 0 else f"ended with code {self.code}"
        return f"process {self.name} {how}"


class _Remote:
    """Drives the one thread of a forked process by what the parent says."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def reach(self, name: str, seam: str) -> None:
        self._connection.send(("reach", seam))
        self._connection.recv()

    def wait(self, name: str, lock: str, holder: str | None, *, timed: bool = False) -> bool:
        if timed:
            return False
        raise RuntimeError(f"{name} waits for {lock}, which no other thread of its process can free")

    def freed(self, lock: str) -> None:
        """Nobody in this process waits."""

    def flock(self, real: Callable[[Any, int], None], file: Any, operation: int) -> None:
        """``fcntl.flock`` in a process that is driven: it waits where its parent sees it."""
        number = file if isinstance(file, int) else file.fileno()
        lock = Path(os.readlink(f"/proc/self/fd/{number}")).name
        if operation & fcntl.LOCK_UN:
            real(file, operation)
            self._connection.send(("freed", lock))
            return
        while True:
            try:
                real(file, operation | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Also where the caller would rather not wait: it would ask again, at a time that nobody controls.
                self._connection.send(("wait", lock))
                if self._connection.recv() == _ELSEWHERE:
                    real(file, operation & ~fcntl.LOCK_NB)
                    break
        self._connection.send(("locked", lock))


def run(
    names: Sequence[str],
    strategy: Strategy,
    body: Callable[[str, Drive], Any],
    *,
    mortal: bool = False,
    patience: float = PATIENCE,
) -> Run:
    """Fork one process a name; each calls ``body(name, drive)`` and what it returns becomes its value.

    ``body`` prepares, then calls ``drive(part)`` once with the part that is to be interleaved, which returns what
    that part raised, and may then look around: one process after the other, once all parts are through. The value
    must be picklable. With ``mortal`` the death of a process is an end like any other, and its error a
    :class:`ProcessDied`; otherwise the run is not controlled any more.
    """
    children: dict[str, _Child] = {}
    for name in names:
        children[name] = _Child.fork(name, body, list(children.values()))
    parent = _Parent(Turns(names, strategy), children, mortal, patience)
    try:
        parent.play()
        if parent.fate is Fate.DONE:
            parent.collect()
    finally:
        for child in children.values():
            child.close(kill=parent.fate is not Fate.DONE)
    return Run(
        parent.fate,
        parent.turns.steps,
        parent.values,
        parent.errors,
        parent.explanation,
        parent.stacks,
        parent.turns.waits,
    )


class _Parent:
    """Gives the turn to one child after the other, by what each says."""

    def __init__(self, turns: Turns, children: Mapping[str, _Child], mortal: bool, patience: float) -> None:
        self.turns = turns
        self.fate, self.explanation, self.stacks = Fate.DONE, "", ""
        self.values: dict[str, Any] = {}
        self.errors: dict[str, BaseException] = {}
        self._children = children
        self._mortal = mortal
        self._patience = patience
        self._stillness = Stillness()
        # Who holds which file.
        self._held: dict[str, str] = {}

    def play(self) -> None:
        """Let each part run to its end, by turns."""
        # What a process prepares must not meet what another one already does.
        for child in self._children.values():
            child.heard(self._patient)
        at: str | None = self.turns.names[0]
        elsewhere = ""
        self._children[self.turns.names[0]].go()
        while at is not None:
            message = self._children[at].receive(self._patient)
            if message is None and elsewhere:
                # Whoever holds it may let it go at any time: nothing is known of this run, least of all a hang.
                self._stop(Fate.UNCONTROLLED, f"{at} waits for {elsewhere}, which is held outside the run", [])
                return
            if message is None:
                self._stop(Fate.UNCONTROLLED, f"{at} is blocked outside the model", [at])
                return
            elsewhere = ""
            kind, content = message
            if kind in ("ready", "locked", "freed"):
                self._note(at, kind, content)
                continue
            if kind == "reach":
                at = self.turns.reach(at, content)
            elif kind == "wait" and content not in self._held:
                elsewhere = content
                self._children[at].go(_ELSEWHERE)
                continue
            elif kind == "wait":
                at = self.turns.wait(at, content, self._held[content])
            elif kind == "end" or (kind == "lost" and self._mortal):
                if kind == "lost":
                    self.errors[at] = ProcessDied(at, self._children[at].end())
                for lock in [lock for lock, holder in self._held.items() if holder == at]:
                    self._note(at, "freed", lock)
                at = self.turns.end(at)
            else:
                # It failed before or between seams; what it says instead is its answer.
                self._stop(Fate.UNCONTROLLED, f"{at} ended early: {content or 'without an answer'}", [])
                return
            if at is not None:
                self._children[at].go()
        if self.turns.waiting:
            self._stop(Fate.DEADLOCK, self.turns.cycle(), list(self.turns.waiting))

    def collect(self) -> None:
        """Let each process look around, one after the other, and take its answer."""
        for name, child in self._children.items():
            if name in self.errors:
                continue
            child.go()
            message = child.receive(self._patient)
            if message is not None and message[0] == "lost" and self._mortal:
                self.errors[name] = ProcessDied(name, child.end())
            elif message is None or message[0] == "lost":
                self.errors[name] = RuntimeError(f"process {name} ended without an answer")
            elif message[0] == "raised":
                self.errors[name] = RuntimeError(message[1])
            else:
                self.values[name] = message[1]

    def _note(self, name: str, kind: str, lock: str) -> None:
        if kind == "locked":
            self._held[lock] = name
        elif kind == "freed":
            self._held.pop(lock, None)
            self.turns.freed(lock)

    def _stop(self, fate: Fate, explanation: str, stuck: list[str]) -> None:
        """Where the stuck ones stand is asked only of those that sleep: others may just want for a processor."""
        self.fate, self.explanation = fate, explanation
        asleep = [name for name in stuck if self._children[name].asleep()]
        self.stacks = "\n".join(f"process {name}:\n{self._children[name].stacks()}" for name in asleep)

    def _patient(self) -> bool:
        return self._stillness.ticks(len(self.turns.steps)) < self._patience


class _Child:
    """A forked process, seen from its parent."""

    def __init__(self, pid: int, connection: Connection, traces: int) -> None:
        self.pid = pid
        self.connection = connection
        self._traces = traces
        self._code: int | None = None

    @classmethod
    def fork(cls, name: str, body: Callable[[str, Drive], Any], siblings: Sequence[_Child]) -> _Child:
        ours, theirs = Pipe()
        traces = os.memfd_create("stacks")
        pid = os.fork()
        if pid == 0:
            ours.close()
            # A sibling that is killed must be seen to be gone, so nobody else may hold its end.
            for sibling in siblings:
                sibling.connection.close()
            _work(name, theirs, traces, body)
        theirs.close()
        return cls(pid, ours, traces)

    def go(self, word: str = "go") -> None:
        # Who is gone already has left its answer to be read, or none.
        with contextlib.suppress(BrokenPipeError):
            self.connection.send(word)

    def heard(self, patient: Callable[[], bool]) -> bool:
        """Whether it has said something, or has ended, before patience did."""
        while not self.connection.poll(1.0):
            if not patient():
                return False
        return True

    def receive(self, patient: Callable[[], bool]) -> tuple[str, Any] | None:
        if not self.heard(patient):
            return None
        try:
            message: tuple[str, Any] = self.connection.recv()
        except (EOFError, ConnectionResetError):
            return ("lost", None)
        return message

    def end(self) -> int:
        """Wait for its end; its exit code."""
        if self._code is None:
            _, status = os.waitpid(self.pid, 0)
            self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def asleep(self) -> bool:
        """Whether each of its threads sleeps and nothing runs for it: then it is not for want of a processor."""
        process = psutil.Process(self.pid)
        states = [Path(f"/proc/{self.pid}/task/{thread.id}/stat").read_text() for thread in process.threads()]
        return not process.children() and all(state.rpartition(")")[2].split()[0] == "S" for state in states)

    def stacks(self) -> str:
        """Where its threads stand. It does not survive this."""
        os.kill(self.pid, signal.SIGABRT)
        self.end()
        return os.pread(self._traces, 1 << 20, 0).decode(errors="replace")

    def close(self, *, kill: bool) -> None:
        self.connection.close()
        if kill and self._code is None:
            os.kill(self.pid, signal.SIGKILL)
        self.end()
        os.close(self._traces)


@contextlib.contextmanager
def _modelled(driver: _Remote) -> Iterator[None]:
    real = fcntl.flock

    def flock(file: Any, operation: int) -> None:
        if current() is None:
            real(file, operation)
        else:
            driver.flock(real, file, operation)

    fcntl.flock = flock
    try:
        yield
    finally:
        fcntl.flock = real


def _work(name: str, connection: Connection, traces: int, body: Callable[..., Any]) -> None:
    def part(function: Callable[[], Any]) -> BaseException | None:
        connection.send(("ready", None))
        connection.recv()
        driver = _Remote(connection)
        drive(driver, name)
        raised: BaseException | None = None
        try:
            with _modelled(driver):
                driver.reach(name, "start")
                function()
        except Exception as error:
            raised = error
        finally:
            drive(None)
        connection.send(("end", None))
        connection.recv()
        return raised

    try:
        faulthandler.enable(traces)
        answer = ("value", body(name, part))
    except BaseException as error:
        answer = ("raised", f"{type(error).__name__}: {error}")
    try:
        connection.send(answer)
    finally:
        os._exit(0)
