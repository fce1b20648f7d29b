"""Jobs for the sandbox: processes that share a cache directory and run side by side, with no turns to wait for."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from repro import cache_directory, races
from repro.experiment import Experiment
from repro.interleave import Seams
from repro.interleave.scheduler import drive
from repro.oracles import cache_hits
from repro.outcome import error_outcome
from repro.perform import Scene, seams
from repro.workloads import Workload

FORK = multiprocessing.get_context("fork")
WORKLOAD = Workload(head_dim=16)


class MeetAtTheFirst:
    """Drives a process as it is, but for its first visit of a seam: there it waits for all the others."""

    def __init__(self, seam: str, barrier: Barrier) -> None:
        self.seam, self.barrier, self.met = seam, barrier, False

    def reach(self, name: str, seam: str) -> None:
        if seam == self.seam and not self.met:
            self.met = True
            self.barrier.wait()

    def wait(self, name: str, lock: str, holder: str | None, *, timed: bool = False) -> bool:
        raise AssertionError("no lock is modelled here")

    def freed(self, lock: str) -> None: ...


def start(workload: Workload, fix: str, driver: Any = None) -> dict[str, Any]:
    """What the first of the processes of cold-start does, and what came of it."""
    before = cache_hits.counts()
    scene = Scene(Experiment(race="cold-start", fix=fix, workloads=(workload,)), races.load("cold-start"))
    drive(driver, "process")
    try:
        with Seams(seams("cache_seam")):
            scene.bodies["first"]()
        drive(None)
        outcome = scene.judge({})[0]
    except Exception as error:
        outcome = error_outcome(error)
    counted = cache_hits.finding("start", before, cache_hits.counts()).data
    met = driver is None or driver.met
    return {"outcome": outcome.kind.value, "reason": outcome.reason, "counts": counted, "met": met}


def in_forks(jobs: list[Callable[[], dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each job in a process of its own, all at once."""
    ends = []
    for job in jobs:
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=lambda job=job, theirs=theirs: theirs.send(job()))
        process.start()
        theirs.close()
        ends.append((process, ours))
    found = [ours.recv() for _, ours in ends]
    for process, _ in ends:
        process.join()
    return found


def use(cache: str) -> None:
    os.environ[cache_directory.VARIABLE] = cache


def cold_start(cache: str, processes: int) -> list[dict[str, Any]]:
    """All meet at their first write to the empty cache, and then nobody is held back."""
    use(cache)
    barrier = FORK.Barrier(processes)

    def job() -> dict[str, Any]:
        return start(WORKLOAD, "none", MeetAtTheFirst("cache.write", barrier))

    return in_forks([job] * processes)


def after_a_warm_up(cache: str, fix: str, lengths: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """A process warms the cache up for the first pair of queries and keys, and ends; then one for each other pair."""
    use(cache)
    warmed, *workloads = [Workload(head_dim=16, queries=queries, keys=keys) for queries, keys in lengths]
    (first,) = in_forks([lambda: start(warmed, fix)])
    assert first["outcome"] == "ok", first["reason"]
    return in_forks([lambda workload=workload: start(workload, fix) for workload in workloads])


def first_compile_in_a_fork_beside_threads(cache: str) -> list[dict[str, Any]]:
    """The parent has idle threads, as any program with a thread pool; none of them compiles at the fork."""
    use(cache)
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        return in_forks([lambda: start(WORKLOAD, "none")])
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def files(cache: str) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in Path(cache).rglob("*") if path.is_file())
