"""What may be inside at the same time under ``side-by-side``, and that a warm program never compiles nor waits to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from repro.interleave import Fate, Schedule
from repro.interleave.replay import Replay
from repro.laboratory import Laboratory
from repro.workloads import Workload

THREADS, CALLS = 3, 5
WORKLOAD = Workload(queries=256, keys=256)


def _attention() -> tuple[Any, Callable[..., None]]:
    """The module of the fix, and a call of attention under it, which is warm without gradients."""
    import torch

    from repro import fixes
    from repro.user_code import UserCode

    fix = fixes.load("side-by-side")
    code = UserCode(fix, [WORKLOAD])

    mask_mod = WORKLOAD.mask_mod()

    def call(gradients: bool = False) -> None:
        with torch.set_grad_enabled(gradients):
            code.attention(*WORKLOAD.tensors(), mask_mod)

    call()
    return fix.parts[0], call


def warm_program() -> dict[str, int]:
    """Entries by mode, and compiled graphs, of three threads that call what is warm. Runs in the sandbox."""
    from repro.oracles import recompiles

    module, call = _attention()
    before = dict(module.LOCK.entries)
    graphs = recompiles.compiled_graphs()

    def drafter() -> None:
        for _ in range(CALLS):
            call()

    threads = [threading.Thread(target=drafter) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = {mode: count - before.get(mode, 0) for mode, count in module.LOCK.entries.items()}
    after = recompiles.compiled_graphs()
    assert graphs is not None
    assert after is not None
    return {**entries, "graphs": after - graphs, "held": sum(module.LOCK.held.values()), "before": graphs}


def test_nobody_is_alone_in_a_warm_program(laboratory: Laboratory) -> None:
    seen = laboratory.run("tests.fixes.test_side_by_side:warm_program", timeout=180).value

    assert seen is not None
    assert seen["before"] > 0
    assert seen["alone"] == 0
    assert seen["graphs"] == 0
    assert seen["warm"] == THREADS * CALLS
    # Each call builds its mask, and comes back to where it built it.
    assert seen["builds"] == 2 * THREADS * CALLS
    assert seen["held"] == 0


def meet(mode: str, new: bool) -> tuple[Fate, list[str], list[str]]:
    """One thread holds the lock in ``mode`` when another calls attention. Runs in the sandbox.

    How it ended, what the caller waited for, and the order in which they ended.
    """
    from repro.interleave import Scheduler, Seams, point

    module, call = _attention()

    def holder() -> None:
        with module.LOCK.held_as(mode):
            point("holding")

    def caller() -> None:
        # Compiled code is used under the grad mode of its compile only.
        call(gradients=new)

    with Seams([], code=[call, holder]):
        run = Scheduler(Replay(Schedule.parse("holder:holding#1>caller"))).run({"holder": holder, "caller": caller})
    assert not run.errors, run.errors
    return run.fate, [str(wait) for wait in run.waits], [step.thread for step in run.steps if step.seam == "end"]


@pytest.mark.parametrize(
    ("mode", "new", "waits"),
    [
        ("warm", False, []),
        # It is warm until the compiler is asked: then it is made again, alone.
        ("warm", True, ["caller waits for turn"]),
        ("builds", False, ["caller waits for turn"]),
        ("alone", False, ["caller waits for turn"]),
    ],
)
def test_who_waits_for_whom(mode: str, new: bool, waits: list[str], laboratory: Laboratory) -> None:
    ended = laboratory.run("tests.fixes.test_side_by_side:meet", mode, new, timeout=180)

    assert ended.value is not None, ended.outcome
    fate, waited, order = ended.value
    assert fate is Fate.DONE
    assert waited == waits
    assert order == (["holder", "caller"] if waits else ["caller", "holder"])


def given_up() -> list[str]:
    """What calls come to whose compile was given up, or that a stance keeps from being compiled."""
    import torch

    module, call = _attention()
    said = []
    with torch.compiler.set_stance("force_eager"):
        try:
            call()
        except module.NotCompiled as error:
            said.append(str(error))
    call()
    return said


def test_what_cannot_be_compiled_is_an_error_and_not_dense(laboratory: Laboratory) -> None:
    ended = laboratory.run("tests.fixes.test_side_by_side:given_up", timeout=180)

    assert ended.value == ["flex_attention would run uncompiled: is a stance set, or does somebody trace?"], ended
