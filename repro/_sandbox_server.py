"""The fork server behind :mod:`repro.sandbox`: warms up once, then forks one child for each request.

The server is single-threaded and parent, by blood or as subreaper, of every process that a job leaves behind; so what
``waitpid`` still knows after a run is exactly what has to be killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import pickle
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

import psutil

from repro.outcome import Kind, Outcome, error_outcome, portably

# warming up imports and compiles; a machine that needs longer than this is stuck
WARM_SECONDS = 600.0
# writing stacks takes milliseconds; a process that has not done so by then cannot run its signal handler
_STACKS_SECONDS = 5.0
_TAIL_BYTES = 64 * 1024
_STACKS_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_LENGTH_BYTES = 8

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Request:
    """One run: the pickled job with its arguments, its bound in seconds and its memory in bytes."""

    call: bytes
    timeout: float
    memory: int | None


@dataclass(frozen=True)
class Reply:
    """How a run ended. ``outcome`` is None when the child itself says so, in the pickled pair ``result``."""

    outcome: Outcome | None
    result: bytes
    output: str
    seconds: float


class _ClientGone(Exception):
    """Nobody waits for this run any more."""


def read_tail(file: int) -> str:
    """The last 64 KiB of a seekable file, wherever its offset is."""
    return _text(os.pread(file, _TAIL_BYTES, max(0, os.fstat(file).st_size - _TAIL_BYTES)))


def serve(connection: int, client: int, warm: str | None, start: str) -> NoReturn:
    """Serve requests from the process ``client`` over the file descriptor ``connection`` until either ends."""
    channel = Connection(connection)
    os.set_inheritable(connection, False)
    try:
        # a fork of the client may hold its end of the connection open, so its death is watched for as well
        client_end = os.pidfd_open(client)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        # a core dump would be a file left behind
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if start == "fork" and warm is not None:
            with _bounded_warming([channel, client_end]):
                _resolve(warm)()
            warm = None
    except BaseException:
        traceback.print_exc()
        _end(1)
    # the first run then meets the same processes as every later one
    _kill_everything_below()
    gc.collect()
    try:
        channel.send("warm")
        while channel in wait([channel, client_end]):
            channel.send(_run(channel.recv(), warm, channel, client_end))
    except (EOFError, ConnectionError, _ClientGone):
        pass
    except BaseException:
        traceback.print_exc()
        _end(1)
    _end(0)


def _end(code: int) -> NoReturn:
    try:
        _kill_everything_below()
    finally:
        # the interpreter's own end would wait for threads, and run exit hooks, that warming up has left
        os._exit(code)


@contextlib.contextmanager
def _bounded_warming(client: list[Any]) -> Iterator[None]:
    """Nobody serves the client while warming up, so a thread sees its end, and faulthandler the end of the time."""
    warm, warming = os.pipe()

    def watch() -> None:
        if warm not in wait([warm, *client]):
            _end(0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    faulthandler.dump_traceback_later(WARM_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    os.close(warming)
    watcher.join()  # no thread of ours may be there at a fork
    os.close(warm)


def _run(request: Request, warm: str | None, connection: Connection, client_end: int) -> Reply:
    # what a collection in the child would otherwise touch, and so copy, is all that was made before the fork
    gc.freeze()
    with contextlib.ExitStack() as files:

        def opened(*descriptors: int) -> tuple[int, ...]:
            for descriptor in descriptors:
                files.callback(os.close, descriptor)
            return descriptors

        (stacks,) = opened(os.memfd_create("stacks"))
        result_end, result = os.pipe()
        output_end, output = os.pipe()
        opened(result_end, output_end)
        server = os.getpid()
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            for descriptor in (connection.fileno(), client_end, result_end, output_end):
                os.close(descriptor)
            _child(request, warm, server, result, output, stacks)
        os.close(result)
        os.close(output)
        run = _Run(child, opened(os.pidfd_open(child))[0], result_end, output_end, [connection, client_end])

        in_time = run.watch(started + request.timeout)
        dumped = True
        if not in_time:
            # faulthandler's handler needs no GIL, dumps every thread, and then lets the signal end the child: its end
            # tells that the dump is complete
            os.kill(child, signal.SIGABRT)
            dumped = run.watch(time.monotonic() + _STACKS_SECONDS)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        seconds = time.monotonic() - started
        _kill_everything_below()
        run.drain()

        traces = _text(os.pread(stacks, _STACKS_BYTES, 0))
        outcome: Outcome | None
        if not in_time:
            outcome = _hang(request.timeout, traces, dumped)
        elif run.complete():
            outcome = None
        else:
            outcome = _crash(os.waitstatus_to_exitcode(status), traces)
        return Reply(outcome, bytes(run.result[_LENGTH_BYTES:]), _text(run.output), seconds)


class _Run:
    """The child of one run, seen from the server: takes in what it writes so that it never blocks on a pipe."""

    def __init__(self, child: int, child_end: int, result: int, output: int, client: list[Any]) -> None:
        self.result = bytearray()
        self.output = bytearray()
        self._child = child
        self._child_end = child_end
        self._client = client
        self._open: dict[int, bytearray] = {result: self.result, output: self.output}
        for descriptor in self._open:
            os.set_blocking(descriptor, False)

    def watch(self, until: float) -> bool:
        """Wait for the child's end, at most until that time; whether it has ended."""
        while True:
            left = until - time.monotonic()
            ready = wait([self._child_end, *self._open, *self._client], max(0.0, left))
            if any(end in ready for end in self._client):
                raise _ClientGone
            if self._child_end in ready:
                return True
            if left <= 0:
                return False
            for descriptor in [end for end in self._open if end in ready]:
                self._read(descriptor)

    def drain(self) -> None:
        """Take in what the pipes still hold once nobody writes to them."""
        for descriptor in list(self._open):
            while self._read(descriptor):
                pass

    def complete(self) -> bool:
        """Whether the child wrote its whole result."""
        length = int.from_bytes(self.result[:_LENGTH_BYTES], "big")
        return len(self.result) >= _LENGTH_BYTES and len(self.result) == _LENGTH_BYTES + length

    def _read(self, descriptor: int) -> bool:
        taken = self._open[descriptor]
        try:
            chunk = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            del self._open[descriptor]
            return False
        taken += chunk
        if taken is self.output:
            del taken[:-_TAIL_BYTES]
        return True


def _hang(timeout: float, traces: str, dumped: bool) -> Outcome:
    # the signal that asked for the stacks is ours, not a finding
    stacks = traces.replace("Fatal Python error: Aborted\n\n", "", 1)
    reason = f"did not end within {timeout:g} s"
    complete = dumped and stacks != ""
    if not complete:
        reason += ", and its stacks could not be gathered"
    return Outcome(Kind.HANG, reason, {"stacks": stacks, "stacks_complete": complete, "timeout": timeout})


def _crash(code: int, traces: str) -> Outcome:
    details: dict[str, Any]
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:  # most realtime signals have no name
            name = f"signal {-code}"
        reason, details = f"killed by {name}", {"signal": -code, "name": name}
    else:
        reason, details = f"ended before its result was complete, exit code {code}", {"exit_code": code}
    return Outcome(Kind.CRASH, reason, {**details, "stacks": portably(traces)} if traces else details)


def _kill_everything_below() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        # the children of those killed here come to this process, and so into the next round
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ChildProcessError):  # warming up, under way in another thread, may wait for it too
            os.waitpid(-1, 0)


def _child(request: Request, warm: str | None, server: int, result: int, output: int, stacks: int) -> NoReturn:
    code = 1
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:  # it died before the line above
            os._exit(1)
        # a job that signals its process group must not reach the server
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        faulthandler.enable(stacks)
        _send(result, _result(request, warm))
        code = 0
    except SystemExit as stop:
        code = _exit_code(stop)
    except BaseException:
        traceback.print_exc()
    finally:
        # threads and exit hooks of the job must not keep it alive
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def _result(request: Request, warm: str | None) -> bytes:
    outcome, value = _work(request, warm)
    try:
        return pickle.dumps((outcome, value), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        return pickle.dumps((_inconclusive("the job's value could not be pickled", error), None))


def _work(request: Request, warm: str | None) -> tuple[Outcome, Any]:
    try:
        if warm is not None:
            _resolve(warm)()
    except Exception as error:
        return _inconclusive(f"warming up with {warm} failed", error), None
    try:
        job, args, kwargs = pickle.loads(request.call)
        function = _resolve(job)
    except Exception as error:
        return _inconclusive("the job could not be loaded", error), None
    try:
        with _address_space(request.memory):
            value = function(*args, **kwargs)
    except SystemExit:
        raise
    except BaseException as error:
        return error_outcome(error), None
    return Outcome(Kind.OK, "the job returned"), value


def _inconclusive(what: str, error: Exception) -> Outcome:
    cause = error_outcome(error)
    return Outcome(Kind.INCONCLUSIVE, f"{what}: {cause.reason}", cause.details)


@contextlib.contextmanager
def _address_space(memory: int | None) -> Iterator[None]:
    """Bound what this process may map above what it maps now; lifted at the end, so that a result always fits."""
    if memory is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    limit = mapped + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _resolve(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def _send(descriptor: int, payload: bytes) -> None:
    left = memoryview(len(payload).to_bytes(_LENGTH_BYTES, "big") + payload)
    while left:
        left = left[os.write(descriptor, left) :]


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def _text(data: bytes | bytearray) -> str:
    return data.decode(errors="replace")


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")
