"""Every way in which a job, its server or its client can end, on purpose."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
import sandbox_jobs

import repro.sandbox
from repro.outcome import Kind
from repro.sandbox import Ended, Sandbox, SandboxError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a sandbox needs Linux")

# how long anything may take that must end by itself; only ever waited out by a test that fails
NET = 60.0
# how long a job may take that is known to hang
HANG = 2.0


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(warm="sandbox_jobs:warm") as shared:
        yield shared


def run(sandbox: Sandbox, job: Any, *args: Any, timeout: float = NET, **kwargs: Any) -> Ended:
    return sandbox.run(f"sandbox_jobs:{job.__name__}", *args, timeout=timeout, **kwargs)


def gone(pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(wait([process], NET))
    finally:
        os.close(process)


def absent(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_value(sandbox: Sandbox) -> None:
    ended = run(sandbox, sandbox_jobs.give, {"a": [1, None]}, more=2)
    assert ended.outcome.kind is Kind.OK
    assert ended.value == ({"a": [1, None]}, {"more": 2})
    assert ended.output == ""
    assert 0 < ended.seconds < NET


def test_value_larger_than_a_pipe(sandbox: Sandbox) -> None:
    assert run(sandbox, sandbox_jobs.give, bytes(10_000_000)).value == bytes(10_000_000)


def test_warm_runs_once_before_the_forks(sandbox: Sandbox) -> None:
    (first, child, server), (second, other_child, same_server) = (
        run(sandbox, sandbox_jobs.warmed).value for _ in range(2)
    )
    assert first == second == [server] == [same_server]
    assert child != other_child


def test_segfault(sandbox: Sandbox) -> None:
    ended = run(sandbox, sandbox_jobs.segfault)
    assert ended.outcome.kind is Kind.CRASH
    assert ended.outcome.details["signal"] == signal.SIGSEGV
    assert ended.outcome.details["name"] == "SIGSEGV"
    assert "in segfault" in ended.outcome.details["stacks"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGRTMIN + 3])
def test_signal(sandbox: Sandbox, number: int) -> None:
    ended = run(sandbox, sandbox_jobs.end_by, number)
    assert ended.outcome.kind is Kind.CRASH
    assert ended.outcome.details["signal"] == number
    assert "stacks" not in ended.outcome.details


@pytest.mark.parametrize("job", [sandbox_jobs.hold_the_gil_in_c, sandbox_jobs.hold_the_gil_in_a_regex])
def test_hang_that_holds_the_gil(sandbox: Sandbox, job: Any) -> None:
    ended = run(sandbox, job, timeout=HANG)
    assert ended.outcome.kind is Kind.HANG
    assert ended.outcome.details["timeout"] == HANG
    assert ended.outcome.details["stacks_complete"]
    assert f"in {job.__name__}" in ended.outcome.details["stacks"]
    assert "Fatal" not in ended.outcome.details["stacks"]


def test_hang_of_several_threads(sandbox: Sandbox) -> None:
    ended = run(sandbox, sandbox_jobs.wait_for_each_other, timeout=HANG)
    assert ended.outcome.kind is Kind.HANG
    for function in ("forwards", "backwards", "wait_for_each_other"):
        assert f"in {function}" in ended.outcome.details["stacks"]


def test_hang_whose_stacks_cannot_be_gathered(sandbox: Sandbox) -> None:
    ended = run(sandbox, sandbox_jobs.ignore_every_signal, timeout=HANG)
    assert ended.outcome.kind is Kind.HANG
    assert ended.outcome.details["stacks"] == ""
    assert not ended.outcome.details["stacks_complete"]
    assert "could not be gathered" in ended.outcome.reason


def test_memory_is_bounded(sandbox: Sandbox) -> None:
    bound = 256 * 1024**2
    ended = run(sandbox, sandbox_jobs.map_memory, 2 * bound, memory=bound)
    assert ended.outcome.kind is Kind.ERROR
    assert ended.outcome.details["type"] == "MemoryError"
    assert run(sandbox, sandbox_jobs.map_memory, bound // 2, memory=bound).value == bound // 2


def test_output_is_drained_and_bounded(sandbox: Sandbox) -> None:
    ended = run(sandbox, sandbox_jobs.write_to_stdout, 100_000_000)
    assert ended.value == "written"
    assert ended.output.endswith("xthe end\nand more\n")
    assert len(ended.output) == 64 * 1024
    assert run(sandbox, sandbox_jobs.give, 1).output == ""


def test_end_in_mid_result(sandbox: Sandbox) -> None:
    ended = run(sandbox, sandbox_jobs.end_in_mid_result)
    assert ended.outcome.kind is Kind.CRASH
    assert ended.outcome.details == {"exit_code": 0}
    assert "ended before its result was complete" in ended.outcome.reason
    assert ended.value is None


@pytest.mark.parametrize(
    ("job", "given", "code"),
    [
        (sandbox_jobs.exit_at_once, 3, 3),
        (sandbox_jobs.exit_with, 3, 3),
        (sandbox_jobs.exit_with, None, 0),
        (sandbox_jobs.exit_with, "farewell", 1),
    ],
)
def test_exit(sandbox: Sandbox, job: Any, given: Any, code: int) -> None:
    ended = run(sandbox, job, given)
    assert ended.outcome.kind is Kind.CRASH
    assert ended.outcome.details == {"exit_code": code}
    assert ended.output == ("farewell\n" if given == "farewell" else "")


def test_exception(sandbox: Sandbox) -> None:
    ended = run(sandbox, sandbox_jobs.raise_an_error, "no such key\nat all")
    assert ended.outcome.kind is Kind.ERROR
    assert ended.outcome.reason == "LookupError: no such key"
    traceback = ended.outcome.details.pop("traceback")
    assert ended.outcome.details == {
        "type": "LookupError",
        "message": "no such key\nat all",
        "frame": "sandbox_jobs.py:raise_an_error",
    }
    assert "raise LookupError(message)" in traceback


def test_exception_in_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch" / "_dynamo").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "_dynamo" / "frames.py").write_text("def call(job, message):\n    job(message)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Sandbox() as sandbox:
        ended = sandbox.run("torch._dynamo.frames:call", sandbox_jobs.raise_an_error, "within", timeout=NET)
    assert ended.outcome.details["frame"] == "torch/_dynamo/frames.py:call"


def test_keyboard_interrupt_is_an_error(sandbox: Sandbox) -> None:
    ended = run(sandbox, sandbox_jobs.interrupt)
    assert ended.outcome.kind is Kind.ERROR
    assert ended.outcome.details["type"] == "KeyboardInterrupt"


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ("sandbox_jobs:give_what_does_not_pickle", "value could not be pickled: TypeError"),
        ("sandbox_jobs:give_what_does_not_load", "value could not be unpickled: ValueError"),
        ("sandbox_jobs:no_such_function", "job could not be loaded: AttributeError"),
        ("no_such_module:job", "job could not be loaded: ModuleNotFoundError"),
    ],
)
def test_harness_failures_are_inconclusive(sandbox: Sandbox, job: str, reason: str) -> None:
    ended = sandbox.run(job, timeout=NET)
    assert ended.outcome.kind is Kind.INCONCLUSIVE
    assert reason in ended.outcome.reason
    assert ended.value is None


def test_arguments_that_do_not_pickle_are_the_callers_mistake(sandbox: Sandbox) -> None:
    with pytest.raises(TypeError):
        run(sandbox, sandbox_jobs.give, threading.Lock())
    assert run(sandbox, sandbox_jobs.give, 1).value == 1


def test_threads_do_not_keep_a_child_alive(sandbox: Sandbox) -> None:
    assert run(sandbox, sandbox_jobs.leave_a_thread).value == "returned"


@pytest.mark.parametrize("job", [sandbox_jobs.leave_a_session, sandbox_jobs.leave_a_daemon])
def test_descendants_are_killed(sandbox: Sandbox, job: Any) -> None:
    pid = run(sandbox, job).value
    assert isinstance(pid, int)
    assert absent(pid)


@contextlib.contextmanager
def in_thread(sandbox: Sandbox, job: Any, *args: Any) -> Iterator[list[Ended]]:
    ended: list[Ended] = []
    thread = threading.Thread(target=lambda: ended.append(run(sandbox, job, *args)), daemon=True)
    thread.start()
    yield ended
    thread.join(NET)
    assert not thread.is_alive()


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "announcement"
    os.mkfifo(path)
    return path


def test_server_killed_during_a_run(fifo: Path) -> None:
    with Sandbox() as sandbox:
        with in_thread(sandbox, sandbox_jobs.announce_and_hang, str(fifo)) as ended:
            server, child, grandchild = json.loads(fifo.read_text())
            os.kill(server, signal.SIGKILL)
        assert ended[0].outcome.kind is Kind.INCONCLUSIVE
        assert "server died during the run, signal SIGKILL" in ended[0].outcome.reason
        assert gone(child)
        assert run(sandbox, sandbox_jobs.give, 1).value == 1
    os.kill(grandchild, signal.SIGKILL)  # the gap that the module tells of


def test_server_killed_between_runs() -> None:
    with Sandbox() as sandbox:
        _, _, server = run(sandbox, sandbox_jobs.warmed).value
        os.kill(server, signal.SIGKILL)
        # unlike a pidfd, this leaves the server for its own parent to reap
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        assert run(sandbox, sandbox_jobs.give, 1).value == 1


def test_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repro.sandbox, "_GRACE_SECONDS", HANG)
    with Sandbox() as sandbox:
        ended = run(sandbox, sandbox_jobs.stop_the_server, timeout=HANG)
        assert ended.outcome.kind is Kind.INCONCLUSIVE
        assert "did not answer" in ended.outcome.reason
        monkeypatch.undo()
        assert run(sandbox, sandbox_jobs.give, 1).value == 1


@pytest.mark.parametrize("warm", [None, "sandbox_jobs:announce_and_hang_in_warm"], ids=["running", "warming"])
def test_closed_during_a_run(fifo: Path, warm: str | None) -> None:
    sandbox = Sandbox(warm=warm, env={"FIFO": str(fifo)})
    raised: list[SandboxError] = []
    ended: list[Ended] = []

    def work() -> None:
        try:
            ended.append(run(sandbox, sandbox_jobs.announce_and_hang, str(fifo)))
        except SandboxError as error:
            raised.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    pids = json.loads(fifo.read_text())
    sandbox.close()
    thread.join(NET)
    if warm is None:
        assert ended[0].outcome.kind is Kind.INCONCLUSIVE
    else:
        assert "could not start" in str(raised[0])
    assert all(gone(pid) for pid in pids if pid != os.getpid())
    with pytest.raises(SandboxError, match="closed"):
        run(sandbox, sandbox_jobs.give, 1)
    sandbox.close()


CLIENT = """
import signal
import sys
# A shell that starts the tests in the background has it ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
from repro.sandbox import Sandbox
with Sandbox(warm=sys.argv[1] or None) as sandbox:
    sandbox.run("sandbox_jobs:announce_and_hang", sys.argv[2], timeout=1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("warm", ["", "sandbox_jobs:announce_and_hang_in_warm"], ids=["running", "warming"])
def test_client_ended_by_a_signal(tmp_path: Path, fifo: Path, number: int, warm: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    paths = os.pathsep.join(path for path in sys.path if path)
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, warm, fifo],
        env={**os.environ, "PYTHONPATH": paths, "TMPDIR": str(temporary), "FIFO": str(fifo)},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    parent, announcer, grandchild = json.loads(fifo.read_text())
    os.killpg(client.pid, number)  # as a terminal does
    assert client.wait(NET) == -number
    # while warming up the server itself announces, and its parent is the client
    assert (parent == client.pid) == bool(warm)
    assert gone(parent)
    assert gone(announcer)
    assert gone(grandchild)
    assert not list(temporary.iterdir())


def test_no_descriptor_is_left_open(sandbox: Sandbox) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    run(sandbox, sandbox_jobs.give, 1)
    before = descriptors()
    for _ in range(50):
        run(sandbox, sandbox_jobs.give, 1)
    assert descriptors() == before
    with Sandbox() as other:
        run(other, sandbox_jobs.give, 1)
        # the server itself must not gather any either
        held = [other.run("os:listdir", f"/proc/{os.getpid()}/fd", timeout=NET).value for _ in range(2)]
    assert len(held[0]) == len(held[1])
    assert descriptors() == before


def test_jobs_start_with_the_same_descriptors(sandbox: Sandbox) -> None:
    first, second = (sandbox.run("os:listdir", "/proc/self/fd", timeout=NET).value for _ in range(2))
    assert first == second


def test_spawn_warms_up_every_child() -> None:
    with Sandbox(warm="sandbox_jobs:warm", start="spawn") as sandbox:
        runs = [run(sandbox, sandbox_jobs.warmed) for _ in range(2)]
        for ended in runs:
            warmed_in, child, _ = ended.value
            assert warmed_in == [child]
        assert len({ended.value[2] for ended in runs}) == 2
        assert run(sandbox, sandbox_jobs.forever, timeout=HANG).outcome.kind is Kind.HANG
        pid = run(sandbox, sandbox_jobs.leave_a_session).value
        assert absent(pid)


def test_spawn_whose_warming_up_fails() -> None:
    with Sandbox(warm="sandbox_jobs:fail_to_warm", start="spawn") as sandbox:
        ended = run(sandbox, sandbox_jobs.give, 1)
    assert ended.outcome.kind is Kind.INCONCLUSIVE
    assert "FileNotFoundError: no matches" in ended.outcome.reason
    assert "the stove is cold" in ended.output


@pytest.mark.parametrize(
    ("warm", "output"),
    [
        ("fail_to_warm", ["the stove is cold", "FileNotFoundError: no matches"]),
        ("exit_from_warm", ["SystemExit: no gas"]),
        ("no_such_function", ["AttributeError"]),
    ],
)
def test_server_that_cannot_warm_up(warm: str, output: list[str]) -> None:
    with Sandbox(warm=f"sandbox_jobs:{warm}") as sandbox, pytest.raises(SandboxError) as caught:
        run(sandbox, sandbox_jobs.give, 1)
    assert "exit code 1" in str(caught.value)
    for part in output:
        assert part in str(caught.value)


def test_environment_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "ours")
    monkeypatch.setenv("BOTH", "ours")
    with Sandbox(env={"BOTH": "theirs"}) as sandbox:
        assert run(sandbox, sandbox_jobs.environment, "OURS").value == "ours"
        assert run(sandbox, sandbox_jobs.environment, "BOTH").value == "theirs"


def test_sandboxes_run_side_by_side() -> None:
    with Sandbox() as first, Sandbox() as second, in_thread(first, sandbox_jobs.give, 1) as one:
        assert run(second, sandbox_jobs.give, 2).value == 2
    assert one[0].value == 1


def test_one_sandbox_serves_several_threads(sandbox: Sandbox) -> None:
    with contextlib.ExitStack() as threads:
        ended = [threads.enter_context(in_thread(sandbox, sandbox_jobs.give, n)) for n in range(4)]
    assert [one[0].value for one in ended] == [0, 1, 2, 3]
