"""Runs one job in a throw-away process, bounds it, kills all that it started, and says how it ended.

A *fork server* (``_sandbox_server.py``) is a fresh interpreter that warms up once and then forks a child for
each job. This file is the client's side. It knows nothing of torch: a job is any importable function.

Nothing is left behind, neither process nor file, when a job ends, when it is killed, and when the client ends in
any way. One gap: if someone else sends SIGKILL to the server itself, the job dies with it, but not what the job
started.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from repro._sandbox_server import WARM_SECONDS, Reply, Request, read_tail
from repro.outcome import Kind, Outcome

# how long a server may take, past the bounds that it enforces itself, before it counts as stuck
_GRACE_SECONDS = 60.0

# handing over sys.path, and not PYTHONPATH, keeps it from the programs that a job starts
_BOOT = """
import json, sys
sys.path[:], arguments = json.loads(sys.argv.pop())
from repro._sandbox_server import serve
serve(*arguments)
"""


class SandboxError(Exception):
    """The fork server could not start, mostly because warming up failed; the message has the tail of its output."""


@dataclass(frozen=True)
class Ended:
    """How one job ended.

    ``outcome`` is ``ok`` when the job returned, ``error`` when it raised, ``crash`` when its process ended before the
    value was out, ``hang`` when it ran past its bound, and ``inconclusive`` when the sandbox, not the job, failed.
    ``value`` is what the job returned, None unless ``ok``. ``output`` is the tail (at most 64 KiB) of what the job's
    processes wrote to stdout and stderr. ``seconds`` run from the fork to the end of the child.
    """

    outcome: Outcome
    value: Any
    output: str
    seconds: float


class Sandbox:
    """Runs jobs one at a time, each in a process of its own; a context manager.

    ``warm`` names a function (``"module:function"``) that leaves a process ready for jobs. With ``start="fork"``
    it runs once, in the server, within ten minutes, and every job starts from a copy of that process; it must leave
    no thread behind that a job needs or that may hold a lock. With ``start="spawn"`` every job has a fresh
    interpreter, and ``warm`` runs there before the job and within its bound: for CUDA, where nothing may touch the
    device before a fork. Processes that ``warm`` leaves running are killed.

    ``env`` is laid over this process's environment; the working directory and ``sys.path`` are handed over too.
    The server starts with the first run, and again after its death. Linux only: elsewhere this raises
    :class:`SandboxError`.
    """

    def __init__(
        self,
        *,
        warm: str | None = None,
        start: Literal["fork", "spawn"] = "fork",
        env: Mapping[str, str] | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise SandboxError(f"a sandbox needs Linux (pidfd, child subreaper), not {sys.platform}")
        self._warm = warm
        self._start = start
        self._env = dict(env or {})
        self._server: _Server | None = None
        self._closed = False
        self._lock = threading.Lock()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: str, /, *args: Any, timeout: float, memory: int | None = None, **kwargs: Any) -> Ended:
        """Run ``job`` (``"module:function"``) on the given arguments in a child, and wait for its end.

        Arguments and value are pickled. The child may take ``timeout`` seconds; then the stacks of its threads are
        collected and it is killed with all that it started. ``memory`` is the address space in bytes that it may map
        above what it has mapped when the job starts. Callable from any thread; a second call waits for the first.

        Raises :class:`SandboxError` when the server cannot start or the sandbox is closed, and what pickle raises for
        arguments that cannot be pickled.
        """
        request = Request(pickle.dumps((job, args, kwargs)), timeout, memory)
        with self._lock:
            try:
                reply = self._ready().ask(request)
            except BaseException:
                self._stop()
                raise
            if isinstance(reply, Ended) or self._start == "spawn":
                self._stop()
        return reply if isinstance(reply, Ended) else _ended(reply)

    def close(self) -> None:
        """End the server for good. A run under way in another thread is killed and comes out inconclusive."""
        self._closed = True
        server = self._server
        if server is not None:
            server.hang_up()
        with self._lock:
            self._stop()

    def _ready(self) -> _Server:
        server = self._server
        if not self._closed and (server is None or server.process.poll() is not None):
            self._stop()
            self._server = server = _Server(self._warm, self._start, self._env)
        # asked again after the start: either this sees that the sandbox is closed, or close sees the server
        if self._closed or server is None:
            raise SandboxError("the sandbox is closed")
        server.wait_until_warm()
        return server

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None


class _Server:
    """The fork server's process."""

    def __init__(self, warm: str | None, start: str, env: Mapping[str, str]) -> None:
        # a memfd, not a pipe: nobody has to drain it, and it still reads after the server's death
        self._output = os.memfd_create("sandbox-server-output")
        self._connection, theirs = multiprocessing.Pipe()
        self._connected = threading.Lock()
        self._warm = False
        try:
            paths = [path for path in sys.path if isinstance(path, str)]
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-u",
                    "-c",
                    _BOOT,
                    json.dumps([paths, [theirs.fileno(), os.getpid(), warm, start]]),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **env},
                start_new_session=True,
            )
        except BaseException:
            self._connection.close()
            os.close(self._output)
            raise
        finally:
            theirs.close()

    def ask(self, request: Request) -> Reply | Ended:
        """The server's reply to ``request``, or how the run ended when there is none."""
        try:
            self._connection.send(request)
            if self._connection.poll(request.timeout + _GRACE_SECONDS):
                reply = self._connection.recv()
                assert isinstance(reply, Reply)
                return reply
            self._kill()
            reason = "the fork server did not answer"
        except (EOFError, OSError):
            reason = f"the fork server died during the run, {self._death()}"
        details = {"server_output": read_tail(self._output)}
        return Ended(Outcome(Kind.INCONCLUSIVE, reason, details), None, "", 0.0)

    def wait_until_warm(self) -> None:
        if self._warm:
            return
        try:
            if self._connection.poll(WARM_SECONDS + _GRACE_SECONDS):
                self._connection.recv()
                self._warm = True
                return
            reason = "it did not answer"
        except (EOFError, OSError):
            reason = self._death()
        raise SandboxError(f"the fork server could not start, {reason}; its output:\n{read_tail(self._output)}")

    def hang_up(self) -> None:
        """Let the server and all below it end, from any thread and whatever another thread is waiting for."""
        with self._connected:
            if not self._connection.closed:
                # closing would not do: a fork of this process may hold the connection open
                with socket.socket(fileno=os.dup(self._connection.fileno())) as end, contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """End the server and all below it, and wait for that."""
        self.hang_up()
        try:
            self.process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()
            self.process.wait()
        with self._connected:
            self._connection.close()
        os.close(self._output)

    def _death(self) -> str:
        code = self.process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _kill(self) -> None:
        if self.process.poll() is not None:  # its pid may be somebody else's by now
            return
        server = psutil.Process(self.process.pid)
        for process in [server, *server.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _ended(reply: Reply) -> Ended:
    outcome, value = reply.outcome, None
    if outcome is None:
        try:
            outcome, value = pickle.loads(reply.result)
        except Exception as error:
            outcome = Outcome(Kind.INCONCLUSIVE, f"the job's value could not be unpickled: {error!r}")
    return Ended(outcome, value, reply.output, reply.seconds)
