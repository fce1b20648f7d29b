"""The same token passing across processes: the control group, in which no Python state is shared.

Each name is a forked process instead of a thread. A lock in one process is not that of another; what processes do
wait for is a file locked with ``fcntl.flock``, torch's own locks among them, so that is modelled: a process that
cannot have it says so, and others go on. It is free again on ``LOCK_UN``, or when its process has ended.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil

from repro.interleave.scheduler import PATIENCE, Fate, Run, Stillness, Strategy, Turns, current, drive

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
            except BlockingIOError:
                # Also where the caller would rather not wait: it would ask again, at a time that nobody controls.
                self._connection.send(("wait", lock))
                self._connection.recv()
            else:
                self._connection.send(("locked", lock))
                return


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
    turns = Turns(names, strategy)
    children: dict[str, _Child] = {}
    for name in names:
        ours, theirs = Pipe()
        stacks = os.memfd_create("stacks")
        pid = os.fork()
        if pid == 0:
            ours.close()
            # A killed sibling must be seen to be gone, so nobody else may hold its end.
            for other in children.values():
                other.connection.close()
            _child(name, theirs, stacks, body)
        theirs.close()
        children[name] = _Child(pid, ours, stacks)
    values: dict[str, Any] = {}
    errors: dict[str, BaseException] = {}
    fate, explanation, traces = Fate.DONE, "", ""
    stillness = Stillness()

    def patient() -> bool:
        return stillness.ticks(len(turns.steps)) < patience

    held: dict[str, str] = {}
    try:
        # What a process prepares must not meet what another one already does.
        for child in children.values():
            child.heard(patient)
        at: str | None = names[0]
        children[names[0]].go()
        while at is not None:
            message = children[at].receive(patient)
            if message is None:
                fate, explanation = Fate.UNCONTROLLED, f"{at} is blocked outside the model"
                if children[at].asleep():
                    traces = children[at].stacks()
                break
            kind, content = message
            if kind == "ready":
                continue
            if kind == "locked":
                held[content] = at
                continue
            if kind == "freed":
                held.pop(content, None)
                turns.freed(content)
                continue
            if kind == "reach":
                at = turns.reach(at, content)
            elif kind == "wait":
                at = turns.wait(at, content, held.get(content))
            elif kind == "end" or (kind == "lost" and mortal):
                if kind == "lost":
                    errors[at] = ProcessDied(at, children[at].end())
                for lock in [lock for lock, holder in held.items() if holder == at]:
                    del held[lock]
                    turns.freed(lock)
                at = turns.end(at)
            else:
                # It failed before or between seams; what it says instead is its answer.
                fate, explanation = Fate.UNCONTROLLED, f"{at} ended early: {content or 'without an answer'}"
                break
            if at is not None:
                children[at].go()
        if fate is Fate.DONE and turns.waiting:
            fate, explanation = Fate.DEADLOCK, turns.cycle()
            traces = "\n".join(f"process {name}:\n{children[name].stacks()}" for name in turns.waiting)
        if fate is Fate.DONE:
            for name, child in children.items():
                if name in errors:
                    continue
                child.go()
                message = child.receive(patient)
                if message is not None and message[0] == "lost" and mortal:
                    errors[name] = ProcessDied(name, child.end())
                elif message is None or message[0] == "lost":
                    errors[name] = RuntimeError(f"process {name} ended without an answer")
                elif message[0] == "raised":
                    errors[name] = RuntimeError(message[1])
                else:
                    values[name] = message[1]
    finally:
        for child in children.values():
            child.close(kill=fate is not Fate.DONE)
    return Run(fate, turns.steps, values, errors, explanation, traces, turns.waits)


class _Child:
    """A forked process, seen from its parent."""

    def __init__(self, pid: int, connection: Connection, traces: int) -> None:
        self.pid = pid
        self.connection = connection
        self._traces = traces
        self._code: int | None = None

    def go(self) -> None:
        # Who is gone already has left its answer to be read, or none.
        with contextlib.suppress(BrokenPipeError):
            self.connection.send("go")

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


def _child(name: str, connection: Connection, traces: int, body: Callable[..., Any]) -> None:
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
