"""Fresh interpreters on one cache directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import repro

FOLDER = Path(__file__).parent
ROOT = Path(repro.__file__).parent.parent
# Interpreters with another release of torch, and what repro needs, separated as in PATH.
OTHERS = [python for python in os.environ.get("REPRO_OTHER_PYTHONS", "").split(os.pathsep) if python]
WORKLOAD = json.dumps({"head_dim": 16})

pytestmark = pytest.mark.timeout(1800)


def begin(cache: Path, *command: str, python: str = sys.executable, threads: int = 1) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LOCAL_RANK": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": str(threads),
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
    }
    return subprocess.Popen([python, *command], env=environment, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = process.communicate()
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert process.returncode == 0
    assert found["outcome"] == "ok", found["reason"]
    return found


def start(cache: Path, fix: str = "none", **options: Any) -> dict[str, Any]:
    return answer(begin(cache, str(FOLDER / "one_start.py"), WORKLOAD, fix, **options))


def test_a_standalone_script_warms_the_cache_for_three_processes(tmp_path: Path) -> None:
    cold = start(tmp_path)
    at_once = [begin(tmp_path, str(FOLDER / "one_start.py"), WORKLOAD, "none") for _ in range(3)]

    assert (cold["counts"]["hit"], cold["counts"]["miss"]) == (0, 1)
    for process in at_once:
        counts = answer(process)["counts"]
        assert (counts["hit"], counts["miss"]) == (1, 0)


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.nightly), 4])
def test_a_pool_of_compile_workers_compiles_and_leaves_nobody_behind(threads: int, tmp_path: Path) -> None:
    before = psutil.Process().children(recursive=True)
    cold, warm = start(tmp_path, threads=threads), start(tmp_path, threads=threads)

    assert cold["counts"]["miss"] == warm["counts"]["hit"] == 1
    assert psutil.Process().children(recursive=True) == before


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.nightly)])
def test_a_child_that_is_not_forked_compiles_while_its_parent_does(method: str, tmp_path: Path) -> None:
    assert answer(begin(tmp_path, str(FOLDER / "start_methods.py"), method))["counts"]["miss"] == 1


@pytest.mark.skipif(not OTHERS, reason="REPRO_OTHER_PYTHONS names no interpreter with another release of torch")
@pytest.mark.parametrize("other", OTHERS)
def test_what_another_release_wrote_is_never_loaded(other: str, tmp_path: Path) -> None:
    """There and back, as in an upgrade that is taken back."""
    starts = [start(tmp_path, python=python) for python in (sys.executable, other, sys.executable, other)]

    assert len({found["torch"] for found in starts}) == 2
    assert [(found["counts"]["hit"], found["counts"]["miss"]) for found in starts] == [(0, 1), (0, 1), (1, 0), (1, 0)]
