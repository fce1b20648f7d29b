"""What each fix costs on the CPU: ``python tests/benchmarks/fixes.py --json FILE [--fix F ...]``.

Three threads that draft: build the mask, call compiled attention, multiply some matrices. Each fix has a process of
its own, and so has none, since some fixes mend torch for the whole process; the two take turns, and each pair of
turns gives one ratio. ``none`` against none says how far the measurement is off. Two workloads: ``warm``, always the
same length, and ``varying``, a new length in each step. Beside the ratio stand the graphs that were compiled since
the threads first started, and the highest that one step held. Some ten minutes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gpu_jobs

from repro import fixes, preflight
from repro.fixes import NONE
from repro.oracles.memory import preload
from repro.report import document
from repro.workloads import Workload

THREADS = 3
PAIRS = 12
# Of one turn, in each thread: about half a second.
STEPS = 8
DRAFTER = {"heads": 4, "head_dim": 64, "queries": 512, "mask": "causal"}
KEYS = 1024
PRODUCTS = 6
WORKLOADS = ("warm", "varying")
# None against none is the measure of all others. What is done before the threads start costs nothing while they run.
MEASURED = [NONE, "lock", "side-by-side", *fixes.COMBINED, "dynamic", "isolate", "own-code"]


def lengths(varying: bool) -> Callable[[], int]:
    """The next length, the same series in every process."""
    draw = random.Random(0)
    return lambda: KEYS + 16 * draw.randrange(1, 128) if varying else KEYS


def work(name: str, varying: bool, pipe: Connection) -> None:
    """A process: answers each ``"turn"`` with tokens a second, and ``"end"`` with what it compiled and held."""
    import torch
    from torch.nn.attention.flex_attention import flex_attention

    from repro.oracles import recompiles
    from repro.oracles.memory import AllocationMeter
    from repro.user_code import mask_then

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    fix = fixes.load(name)
    attention = fix.guard_attention(mask_then(fix.compile_attention(flex_attention)))
    weights = torch.randn(256, 256) * 0.01
    following = [lengths(varying) for _ in range(THREADS)]
    mask_mods = [Workload(**DRAFTER, keys=KEYS).mask_mod() for _ in range(THREADS)]
    peaks: list[int | None] = []

    def step(number: int) -> None:
        workload = Workload(**DRAFTER, keys=following[number]())
        output = attention(*workload.tensors(), mask_mods[number])
        hidden = output.transpose(1, 2).reshape(workload.queries, -1)
        for _ in range(PRODUCTS):
            hidden = hidden @ weights

    def draft(number: int, steps: int) -> None:
        torch.set_grad_enabled(False)  # holds for the thread that says it
        for _ in range(steps):
            step(number)

    def metered(number: int) -> None:
        torch.set_grad_enabled(False)
        with AllocationMeter() as meter:
            step(number)
        peaks.append(meter.peak)

    def at_once(body: Callable[[int], None]) -> None:
        said = gpu_jobs.at_once([fix.thread(lambda number=number: body(number)) for number in range(THREADS)])
        if set(said) != {"ok"}:
            raise RuntimeError(f"a drafter failed: {said}")

    fix.before_threads(attention, [(*Workload(**DRAFTER, keys=KEYS).tensors(), mask_mod) for mask_mod in mask_mods])
    before = recompiles.compiled_graphs()
    at_once(lambda number: draft(number, STEPS))
    while pipe.recv() == "turn":
        started = time.perf_counter()
        at_once(lambda number: draft(number, STEPS))
        pipe.send(THREADS * STEPS * DRAFTER["queries"] / (time.perf_counter() - started))
    at_once(metered)
    after = recompiles.compiled_graphs()
    if before is None or after is None or None in peaks:
        raise RuntimeError("nothing was counted")
    pipe.send((after - before, max(peaks)))


class Worker:
    def __init__(self, fix: str, varying: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(fix, varying, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def turn(self) -> float:
        self._pipe.send("turn")
        return self._pipe.recv()

    def end(self) -> tuple[int, int]:
        self._pipe.send("end")
        found = self._pipe.recv()
        self._process.join()
        return found


def measure(fix: str, workload: str, bare: Worker) -> dict[str, Any]:
    worker = Worker(fix, workload == "varying")
    worker.turn()
    ratios = []
    for pair in range(PAIRS):
        # None first in one pair, the fix first in the next: whoever goes first gains or loses by it.
        turns = {one: one.turn() for one in ((bare, worker) if pair % 2 == 0 else (worker, bare))}
        ratios.append(turns[worker] / turns[bare])
    recompiled, peak = worker.end()
    low, high = gpu_jobs.bounds(ratios)
    return {
        "fix": fix,
        "workload": workload,
        "ratio": round(statistics.median(ratios), 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "recompiles": recompiled,
        "peak_bytes": peak,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="where to write")
    parser.add_argument("--fix", action="append", dest="fixes", help="only this fix (repeatable)")
    options = parser.parse_args()
    torch, cache = preflight.check()
    os.environ |= {**preload(cache), "CXX": preflight.compiler(), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    rows: list[dict[str, Any]] = []
    for workload in WORKLOADS:
        bare = Worker(NONE, workload == "varying")
        for fix in options.fixes or MEASURED:
            rows.append(measure(fix, workload, bare))
            print(rows[-1], flush=True)
            # What there is so far stays, should a worker fail.
            content = {"rows": rows, "pairs": PAIRS, "threads": THREADS}
            document.write(document.envelope("benchmark-fixes", torch, content, seeds=[0]), str(options.json))
        bare.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
