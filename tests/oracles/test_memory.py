from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_oracles import run

from repro.laboratory import Laboratory
from repro.oracles import memory
from repro.outcome import Sight
from repro.preflight import NotReady
from repro.workloads import Workload


def test_peaks_of_long_sequences(laboratory: Laboratory) -> None:
    workload = Workload(mask="sliding_window", queries=8192, keys=8192, window=256)
    peaks = run(laboratory, "peaks", workload)
    compiled = peaks["main"] + peaks["worker"]
    assert max(compiled) < 0.04 * workload.dense_bound
    assert max(compiled) <= 1.05 * min(compiled)
    assert min(peaks["uncompiled"]) > workload.dense_bound


def test_a_mask_that_is_built_as_a_whole_is_told_from_one_that_is_compiled(laboratory: Laboratory) -> None:
    findings = run(laboratory, "masks", Workload(queries=2048, keys=2048))
    assert {name: finding.sight for name, finding in findings.items()} == {
        "uncompiled": Sight.FAIL,
        "compiled": Sight.PASS,
    }, findings


def test_tensors_count_from_64_kib_and_other_objects_never(laboratory: Laboratory) -> None:
    assert run(laboratory, "metered", 60 * 1024, 10_000_000) == (None, 0)
    peak, events = run(laboratory, "metered", 10_000_000, 10_000_000)
    assert 10_000_000 <= peak < 10_100_000
    assert events == 1


def test_without_the_counter_it_is_blind() -> None:
    with memory.AllocationMeter() as meter:
        bytearray(10_000_000)
    assert meter.peak is None
    assert memory.judge(meter, Workload(queries=1024, keys=1024)).sight is Sight.BLIND


def test_a_backward_is_judged_by_what_it_holds_besides_the_gradients() -> None:
    import numpy

    workload = Workload(heads=8, queries=4096, keys=4096)
    # Anything that knows its bytes.
    gradients = [numpy.zeros(workload.dense_bound // 2, dtype=numpy.int8)] * 3
    meter = memory.AllocationMeter()
    assert memory.judge_backward(meter, workload, gradients).sight is Sight.BLIND
    meter.events, meter.peak = 1, workload.dense_bound * 2
    assert memory.judge(meter, workload).sight is Sight.FAIL
    assert memory.judge_backward(meter, workload, gradients).sight is Sight.PASS
    meter.peak += workload.dense_bound
    assert memory.judge_backward(meter, workload, gradients).sight is Sight.FAIL
    assert memory.judge_backward(meter, workload, [None] * 3).sight is Sight.FAIL
    # So few heads that a mask built anew is as large, and so few scores that a compile is.
    for small in (Workload(queries=4096, keys=4096), Workload(heads=8, queries=1024, keys=1024)):
        assert memory.can_tell(small)
        assert memory.judge_backward(meter, small, gradients).sight is Sight.BLIND


def test_too_few_scores_tell_nothing() -> None:
    meter = memory.AllocationMeter()
    meter.peak, meter.events = 1, 1
    small, narrow = Workload(queries=300, keys=300), Workload(heads=32, queries=128, keys=128, head_dim=128)
    assert memory.judge(meter, small).sight is memory.judge(meter, narrow).sight is Sight.BLIND


def test_too_short_a_mask_tells_nothing_and_neither_does_a_meter_that_saw_nothing() -> None:
    meter = memory.AllocationMeter()
    assert memory.judge_mask(meter, Workload(queries=2048, keys=2048)).sight is Sight.BLIND
    meter.peak, meter.events = 1, 1
    assert memory.judge_mask(meter, Workload()).sight is Sight.BLIND


def test_the_bound_itself_is_dense() -> None:
    workload = Workload(queries=1024, keys=1024)
    meter = memory.AllocationMeter()
    meter.peak, meter.events = workload.dense_bound, 1
    assert memory.judge(meter, workload).sight is Sight.FAIL
    meter.peak -= 1
    assert memory.judge(meter, workload).sight is Sight.PASS


def test_what_a_cpu_allocation_asked_for(laboratory: Laboratory) -> None:
    assert run(laboratory, "out_of_memory", 2**47) == 2**47


def test_what_a_cuda_allocation_asked_for() -> None:
    error = RuntimeError("CUDA out of memory. Tried to allocate 284.25 GiB. GPU 0 has a total capacity of 139 GiB")
    assert memory.requested_bytes(error) == 284.25 * 2**30
    assert memory.requested_bytes(RuntimeError("CUDA error: invalid argument")) is None


@pytest.mark.parametrize(
    ("message", "score_sized"),
    [
        ("Tried to allocate 284.25 GiB.", True),
        ("Tried to allocate 142.12 GiB.", True),
        ("Tried to allocate 8.16 GiB.", False),
        ("Detected that you are using FX", False),
    ],
)
def test_a_request_for_all_scores(laboratory: Laboratory, message: str, score_sized: bool) -> None:
    story = Workload(heads=32, head_dim=128, queries=32_768, keys=72_768, dtype="bfloat16", mask="dflash")
    assert run(laboratory, "score_sized", message, story) is score_sized


def test_the_counter_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    library = Path(memory.preload(tmp_path)["LD_PRELOAD"])
    built = library.stat()
    assert Path(memory.preload(tmp_path)["LD_PRELOAD"]).stat().st_ino == built.st_ino
    assert os.listdir(tmp_path) == [library.name]


def test_what_is_preloaded_already_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/opt/other.so")
    assert memory.preload(tmp_path)["LD_PRELOAD"].endswith(".so:/opt/other.so")


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotReady, match="install one"):
        memory.preload(tmp_path)


def test_a_compiler_that_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(NotReady, match=r"does not compile allocations\.c"):
        memory.preload(tmp_path)
    assert os.listdir(tmp_path) == []
