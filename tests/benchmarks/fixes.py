"""What each fix costs on the CPU: ``python tests/benchmarks/fixes.py --json FILE [--fix F ...]``.

Three threads that draft: build the mask, call compiled attention, multiply some matrices. Each fix has a process of
its own, and so has none, since some fixes mend torch for the whole process; the two take turns, and each pair of
turns gives one ratio. ``none`` against none says how far the measurement is off. Two workloads: ``warm``, always the
same length, and ``varying``, a new length in each step. Beside the ratio stand the graphs that were compiled since
the threads first started, and the highest that one step held. Where a drafter fails, its fix does not hold there, and
that is the result; where the one without a fix does, another takes its place. Some ten minutes. On a GPU:
``gpu.py``.
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
from contextlib import nullcontext
from dataclasses import dataclass, replace
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
# How often another process without a fix takes the place of one that failed, for each fix.
PATIENCE = 3
# Seconds that a process may take to start or for a turn. It bounds a hang.
BOUND = 300.0


@dataclass(frozen=True)
class Load:
    """What each thread does ``steps`` times in a turn; ``trains`` goes backward too."""

    workload: Workload
    varying: bool = False
    steps: int = 8
    products: int = 6
    trains: bool = False
    devices: tuple[str, ...] = ("cpu",)

    @property
    def tokens(self) -> int:
        return THREADS * self.steps * self.workload.queries


DRAFTER = Workload(heads=4, head_dim=64, queries=512, keys=1024, mask="causal")
LOADS = {"warm": Load(DRAFTER), "varying": Load(DRAFTER, varying=True)}
# None against none is the measure of all others. What is done before the threads start costs nothing while they run.
MEASURED = [NONE, *fixes.names(fixes.THREADS), "compiled-mask+dynamic", "lock+dynamic", "lock+warmup+dynamic"]


def lengths(load: Load) -> Callable[[], int]:
    """The next length, the same series in every process."""
    draw = random.Random(0)
    keys = load.workload.keys
    return lambda: keys + 16 * draw.randrange(1, 128) if load.varying else keys


def work(name: str, load: Load, pipe: Connection) -> None:
    """A process: answers each ``"turn"`` with tokens a second, and ``"end"`` with what it compiled and held.

    What its drafters raised is its last answer.
    """
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from repro.oracles import recompiles
    from repro.oracles.memory import AllocationMeter
    from repro.user_code import mask_then

    torch.set_num_threads(1)
    fix = fixes.load(name)
    attention = fix.guard_attention(
        mask_then(fix.compile_attention(flex_attention), fix.compile_mask(create_block_mask))
    )
    places = [load.devices[number % len(load.devices)] for number in range(THREADS)]
    workloads = [replace(load.workload, device=place) for place in places]
    width = load.workload.heads * load.workload.head_dim
    dtype = load.workload.torch_dtype
    weights = [torch.randn(width, width, device=place, dtype=dtype) * 0.01 for place in places]
    streams = [torch.cuda.Stream(place) if place.startswith("cuda") else None for place in places]
    following = [lengths(load) for _ in range(THREADS)]
    mask_mods = [workload.mask_mod() for workload in workloads]
    kept = [workload.tensors() for workload in workloads]
    peaks: list[int | None] = []

    def step(number: int) -> None:
        keys = following[number]()
        given = replace(workloads[number], keys=keys).tensors() if load.varying else kept[number]
        tensors = [tensor.detach().requires_grad_(load.trains) for tensor in given]
        output = attention(*tensors, mask_mods[number])
        hidden = output.transpose(1, 2).reshape(load.workload.queries, -1)
        for _ in range(load.products):
            hidden = hidden @ weights[number]
        if load.trains:
            hidden.sum().backward()

    def draft(number: int, steps: int) -> None:
        torch.set_grad_enabled(load.trains)  # holds for the thread that says it
        stream = streams[number]
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            for _ in range(steps):
                step(number)
        if stream is not None:
            stream.synchronize()

    def metered(number: int) -> None:
        with AllocationMeter(places[number]) as meter:
            draft(number, 1)
        peaks.append(meter.peak)

    def at_once(body: Callable[[int], None]) -> str:
        said = gpu_jobs.at_once([fix.thread(lambda number=number: body(number)) for number in range(THREADS)])
        return "; ".join(sorted(set(said) - {"ok"}))

    with torch.set_grad_enabled(load.trains):
        examples = [
            (*(tensor.detach().requires_grad_(load.trains) for tensor in given), mask_mod)
            for given, mask_mod in zip(kept, mask_mods, strict=True)
        ]
        fix.before_threads(attention, examples)
    if load.trains:
        # First backward steps at once wait for each other for good: the race first-backward.
        for number in range(THREADS):
            draft(number, 1)
    before = recompiles.compiled_graphs()
    failed = at_once(lambda number: draft(number, load.steps))
    while pipe.recv() == "turn":
        started = time.perf_counter()
        failed = failed or at_once(lambda number: draft(number, load.steps))
        pipe.send(failed or load.tokens / (time.perf_counter() - started))
        if failed:
            return
    if failed := failed or at_once(metered):
        pipe.send(failed)
        return
    after = recompiles.compiled_graphs()
    if before is None or after is None or None in peaks:
        raise RuntimeError("nothing was counted")
    pipe.send((after - before, max(peaks)))


class Failed(Exception):
    """Drafters of ``worker`` raised what ``said`` says."""

    def __init__(self, worker: Worker, said: str) -> None:
        super().__init__(f"{worker.fix}: {said}")
        self.worker, self.said = worker, said


class Worker:
    def __init__(self, fix: str, load: Load) -> None:
        context = multiprocessing.get_context("spawn")
        self.fix = fix
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(fix, load, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def turn(self) -> float:
        return self._answer("turn")

    def end(self) -> tuple[int, int]:
        found = self._answer("end")
        self._process.join()
        return found

    def kill(self) -> None:
        self._process.kill()

    def _answer(self, question: str) -> Any:
        self._pipe.send(question)
        if not self._pipe.poll(BOUND):
            self._process.kill()
            raise RuntimeError(f"{self.fix} gave no answer within {BOUND:g} s")
        answer = self._pipe.recv()
        if isinstance(answer, str):
            raise Failed(self, answer)
        return answer


def pairs(bare: Worker, worker: Worker, count: int = PAIRS) -> list[tuple[float, float]]:
    """Tokens a second without a fix and with one, in turns."""
    worker.turn()
    found = []
    for pair in range(count):
        # None first in one pair, the fix first in the next: whoever goes first gains or loses by it.
        turns = {one: one.turn() for one in ((bare, worker) if pair % 2 == 0 else (worker, bare))}
        found.append((turns[bare], turns[worker]))
    return found


def measure(fix: str, workload: str, bare: Worker) -> dict[str, Any]:
    worker = Worker(fix, LOADS[workload])
    try:
        ratios = [fixed / without for without, fixed in pairs(bare, worker)]
        recompiled, peak = worker.end()
    finally:
        worker.kill()
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
    failed: list[dict[str, str]] = []
    for workload, load in LOADS.items():
        bare = Worker(NONE, load)
        for fix in options.fixes or MEASURED:
            for _ in range(PATIENCE):
                try:
                    rows.append(measure(fix, workload, bare))
                    print(rows[-1], flush=True)
                    break
                except Failed as failure:
                    failed.append({"fix": failure.worker.fix, "workload": workload, "said": failure.said})
                    print(failed[-1], flush=True)
                    if failure.worker is not bare:
                        break
                    bare = Worker(NONE, load)
            # What there is so far stays, whatever comes.
            content = {"rows": rows, "failed": failed, "pairs": PAIRS, "threads": THREADS}
            document.write(document.envelope("benchmark-fixes", torch, content, seeds=[0]), str(options.json))
        bare.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
