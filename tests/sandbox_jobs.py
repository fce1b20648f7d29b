"""Jobs for ``test_sandbox.py``: each ends in its own way."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
from typing import Any, NoReturn

warmed_in: list[int] = []


def warm() -> None:
    warmed_in.append(os.getpid())


def fail_to_warm() -> None:
    print("the stove is cold")
    raise FileNotFoundError("no matches")


def exit_from_warm() -> None:
    sys.exit("no gas")


def give(value: Any, **more: Any) -> Any:
    return (value, more) if more else value


def warmed() -> tuple[list[int], int, int]:
    return warmed_in, os.getpid(), os.getppid()


def environment(name: str) -> str | None:
    return os.environ.get(name)


def segfault() -> None:
    ctypes.string_at(0)


def end_by(number: int) -> None:
    os.kill(os.getpid(), number)
    forever()


def forever() -> NoReturn:
    while True:
        threading.Event().wait()


def hold_the_gil_in_c() -> None:
    ctypes.PyDLL(None).pause()


def hold_the_gil_in_a_regex() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


def wait_for_each_other() -> None:
    first, second = threading.Lock(), threading.Lock()
    both_hold_one = threading.Barrier(2)

    def forwards() -> None:
        with first:
            both_hold_one.wait()
            second.acquire()

    def backwards() -> None:
        with second:
            both_hold_one.wait()
            first.acquire()

    threads = [threading.Thread(target=forwards), threading.Thread(target=backwards)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ignore_every_signal() -> NoReturn:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    forever()


def map_memory(size: int) -> int:
    return len(bytearray(size))


def write_to_stdout(size: int) -> str:
    chunk = b"x" * 1_000_000
    for _ in range(size // len(chunk)):
        os.write(1, chunk)
    print("the end")
    print("and more", file=sys.stderr)
    return "written"


def end_in_mid_result() -> bytes:
    write = os.write

    def half(descriptor: int, data: memoryview) -> int:
        write(descriptor, data[: len(data) // 2])
        os._exit(0)

    os.write = half  # type: ignore[assignment]
    return bytes(1000)


def exit_with(code: Any) -> NoReturn:
    sys.exit(code)


def exit_at_once(code: int) -> NoReturn:
    os._exit(code)


def raise_an_error(message: str) -> NoReturn:
    raise LookupError(message)


def interrupt() -> NoReturn:
    raise KeyboardInterrupt


class OnlyHere:
    def __reduce__(self) -> Any:
        return (_load_only_in, (os.getpid(),))


def _load_only_in(pid: int) -> None:
    if os.getpid() != pid:
        raise ValueError("not the process that it was pickled in")


def give_what_does_not_load() -> OnlyHere:
    return OnlyHere()


def give_what_does_not_pickle() -> Any:
    return threading.Lock()


def leave_a_thread() -> str:
    started = threading.Event()

    def stay() -> None:
        started.set()
        forever()

    threading.Thread(target=stay, daemon=False).start()
    started.wait()
    return "returned"


def leave_a_session() -> int:
    """A grandchild in a session of its own, as torch starts its compile workers."""
    return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid


def leave_a_daemon() -> int:
    """A grandchild whose parent has ended, in a session of its own; it holds all of its pipes open."""
    told, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(tell, str(os.getpid()).encode())
            signal.pause()
        os._exit(0)
    os.wait()
    return int(os.read(told, 100))


def announce_and_hang(fifo: str) -> NoReturn:
    """Write the pids of the server, of this process and of a grandchild to ``fifo``; then never end."""
    pids = [os.getppid(), os.getpid(), leave_a_session()]
    with open(fifo, "w") as announcement:
        json.dump(pids, announcement)
    forever()


def announce_and_hang_in_warm() -> None:
    announce_and_hang(os.environ["FIFO"])


def stop_the_server() -> NoReturn:
    os.kill(os.getppid(), signal.SIGSTOP)
    forever()
