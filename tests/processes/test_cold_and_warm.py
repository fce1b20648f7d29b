"""Processes that start on one cache directory side by side: cold, warm, with other shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repro import races
from repro.laboratory import Laboratory

SAME = (256, 256)
# No two sizes are equal: what is equal once, torch takes for equal always, and that graph fits no other lengths.
OTHERS = [(384, 768), (500, 900), (400, 1000)]


def run(laboratory: Laboratory, job: str, *arguments: Any) -> list[dict[str, Any]]:
    ended = laboratory.run(f"tests.processes.cache_jobs:{job}", *arguments, group=races.PROCESSES, timeout=400)
    assert ended.value is not None, ended.outcome.reason
    found: list[dict[str, Any]] = ended.value
    for process in found:
        assert process["outcome"] == "ok", process["reason"]
    return found


@pytest.mark.timeout(500)
@pytest.mark.parametrize("processes", [3, 8])
def test_a_cold_start_is_right_in_every_process(processes: int, tmp_path: Path, laboratory: Laboratory) -> None:
    found = run(laboratory, "cold_start", str(tmp_path), processes)

    assert len(found) == processes
    assert all(process["met"] for process in found)
    assert all(process["counts"]["hit"] == 0 for process in found)
    # One lock file lets one of them compile the kernel.
    assert len(list(tmp_path.glob("*/*.main.so"))) == 1
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.timeout(500)
def test_after_a_warm_up_that_has_ended_each_process_finds_the_graph(tmp_path: Path, laboratory: Laboratory) -> None:
    found = run(laboratory, "after_a_warm_up", str(tmp_path), "none", [SAME] * 4)

    assert [process["counts"] for process in found] == [{"hit": 1, "miss": 0, "bypass": 0}] * 3


@pytest.mark.timeout(500)
def test_another_length_is_not_in_the_cache(tmp_path: Path, laboratory: Laboratory) -> None:
    (other,) = run(laboratory, "after_a_warm_up", str(tmp_path), "none", [SAME, OTHERS[0]])

    assert other["counts"] == {"hit": 0, "miss": 1, "bypass": 0}


@pytest.mark.timeout(500)
def test_with_dynamic_shapes_another_length_is_found(tmp_path: Path, laboratory: Laboratory) -> None:
    found = run(laboratory, "after_a_warm_up", str(tmp_path), "dynamic", OTHERS)

    assert [process["counts"] for process in found] == [{"hit": 1, "miss": 0, "bypass": 0}] * 2


@pytest.mark.timeout(500)
def test_a_fork_beside_idle_threads_compiles(tmp_path: Path, laboratory: Laboratory) -> None:
    assert len(run(laboratory, "first_compile_in_a_fork_beside_threads", str(tmp_path))) == 1
