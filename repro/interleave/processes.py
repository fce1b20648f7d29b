"""The same token passing across processes: the control group, in which no Python state is shared.

Each name is a forked process instead of a thread. A lock in one process is not that of another, so nothing is
modelled as shared; whatever makes a process wait for another is then a real resource of the machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from repro.interleave.scheduler import PATIENCE, Fate, Run, Stillness, Strategy, Turns, drive

# Runs a part under the schedule and returns what it raised.
Drive = Callable[[Callable[[], Any]], "BaseException | None"]


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


def run(
    names: Sequence[str],
    strategy: Strategy,
    body: Callable[[str, Drive], Any],
    *,
    patience: float = PATIENCE,
) -> Run:
    """Fork one process a name; each calls ``body(name, drive)`` and what it returns becomes its value.

    ``body`` prepares, then calls ``drive(part)`` once with the part that is to be interleaved, which returns what
    that part raised, and may then look around. The value must be picklable.
    """
    turns = Turns(names, strategy)
    connections: dict[str, Connection] = {}
    children: dict[str, int] = {}
    for name in names:
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _child(name, theirs, body)
        theirs.close()
        connections[name], children[name] = ours, pid
    values: dict[str, Any] = {}
    errors: dict[str, BaseException] = {}
    fate = Fate.DONE
    explanation = ""
    stillness = Stillness()
    try:
        current: str | None = names[0]
        _go(connections[names[0]])
        while current is not None:
            message = _receive(connections[current], lambda: stillness.ticks(len(turns.steps)) < patience)
            if message is None:
                fate, explanation = Fate.UNCONTROLLED, f"{current} is blocked outside the model"
                break
            kind, content = message
            if kind not in ("reach", "end"):
                # It failed before or between seams; what it says instead is its answer.
                fate, explanation = Fate.UNCONTROLLED, f"{current} ended early: {content or 'without an answer'}"
                break
            current = turns.end(current) if kind == "end" else turns.reach(current, content)
            if current is not None:
                _go(connections[current])
        if fate is Fate.DONE:
            for name, connection in connections.items():
                message = _receive(connection, lambda: stillness.ticks(len(turns.steps)) < patience)
                if message is None or message[0] == "lost":
                    errors[name] = RuntimeError(f"process {name} ended without an answer")
                elif message[0] == "raised":
                    errors[name] = RuntimeError(message[1])
                else:
                    values[name] = message[1]
    finally:
        for connection in connections.values():
            connection.close()
        for pid in children.values():
            if fate is not Fate.DONE:
                os.kill(pid, 9)
            os.waitpid(pid, 0)
    return Run(fate, turns.steps, values, errors, explanation)


def _go(connection: Connection) -> None:
    # Who is gone already has left its answer to be read, or none.
    with contextlib.suppress(BrokenPipeError):
        connection.send("go")


def _receive(connection: Connection, patient: Callable[[], bool]) -> tuple[str, Any] | None:
    while not connection.poll(1.0):
        if not patient():
            return None
    try:
        message: tuple[str, Any] = connection.recv()
    except (EOFError, ConnectionResetError):
        return ("lost", None)
    return message


def _child(name: str, connection: Connection, body: Callable[..., Any]) -> None:
    def part(function: Callable[[], Any]) -> BaseException | None:
        connection.recv()
        driver = _Remote(connection)
        drive(driver, name)
        raised: BaseException | None = None
        try:
            driver.reach(name, "start")
            function()
        except Exception as error:
            raised = error
        finally:
            drive(None)
        connection.send(("end", None))
        return raised

    try:
        answer = ("value", body(name, part))
    except BaseException as error:
        answer = ("raised", f"{type(error).__name__}: {error}")
    try:
        connection.send(answer)
    finally:
        os._exit(0)
