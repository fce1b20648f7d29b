"""Exploring on executors whose workers are other processes: the same verdict and the same schedules as here."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from repro.experiment import Observation
from repro.exploring import Searched, search
from repro.interleave.exploration import Exploration
from repro.laboratory import Laboratory

RACE = "tracing-flag-leak"
# So many that bounded search has met the leak on a release that has it.
BUDGET = 12
# One search without an executor does for all.
pytestmark = pytest.mark.xdist_group("executors")


def searched(laboratory: Laboratory, executor: Executor | None, on_progress: Any = None) -> Searched:
    return search(laboratory, RACE, strategy="bounded", budget=BUDGET, executor=executor, on_progress=on_progress)


def summary(found: Searched) -> tuple[Any, ...]:
    """Everything that must not depend on the executor."""
    seen = found.exploration
    failures = [
        (str(failure.schedule), failure.trial.signature, failure.divergence, list(map(str, failure.trial.steps)))
        for failure in seen.failures
    ]
    smallest = None if found.smallest is None else found.smallest.case.schedule
    lost = [inconclusive.reason for inconclusive in seen.inconclusive]
    return found.verdict, found.reason, seen.schedules, seen.failing, failures, lost, seen.promise, smallest


@pytest.fixture(scope="module")
def local(laboratory: Laboratory) -> tuple[Any, ...]:
    return summary(searched(laboratory, None))


@pytest.mark.nightly
def test_processes_find_the_same(laboratory: Laboratory, local: tuple[Any, ...]) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        assert summary(searched(laboratory, executor)) == local


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Of a Dask cluster of two worker processes on this machine."""
    distributed = pytest.importorskip("distributed", reason="the extra 'dask' is not installed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_cluster_finds_the_same_though_a_worker_is_killed(
    client: Any, laboratory: Laboratory, local: tuple[Any, ...]
) -> None:
    workers: set[int] = set(client.run(os.getpid).values())
    killed: list[int] = []

    def kill_one(seen: Exploration[Observation]) -> None:
        # All the others are given out by now, and half of them to this worker.
        if seen.schedules == 2:
            killed.append(min(workers))
            os.kill(killed[0], signal.SIGKILL)

    assert len(workers) == 2
    assert summary(searched(laboratory, client.get_executor(), kill_one)) == local
    assert len(killed) == 1
    assert killed[0] not in client.run(os.getpid).values()
