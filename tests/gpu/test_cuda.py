"""On a CUDA device: the races that exist there alone, and the oracles, as on the CPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro import fixes, races
from repro.expectations import expected, fixtures
from repro.experiment import Experiment
from repro.laboratory import Laboratory
from repro.outcome import Finding, Kind, Sight
from repro.recording import load, nondeterminism
from repro.sandbox import Sandbox
from repro.verdict import Verdict, matrix
from repro.workloads import STORY, Workload
from tests.benchmarks.gpu_jobs import seldom

pytestmark = pytest.mark.gpu
CUDA = ("cuda",)
# The peak of a block-sparse call above its inputs, and of its backward above the gradients, as a share of all scores.
SHARE = 0.002
# Three drafters of the story's size, whose lengths differ.
DRAFTERS = [replace(STORY, keys=STORY.keys + more) for more in (-2048, 0, 1024)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("race", [*races.names(races.CUDA), "first-call", "tracing-flag-leak"])
def test_every_cell_is_as_this_release_is_known_to_behave(race: str, cuda_laboratory: Laboratory) -> None:
    cells = list(matrix(cuda_laboratory, [race], fixes.names(), controls=True, devices=CUDA))

    for cell in cells:
        if cell.expected is None:
            pytest.skip(f"on torch {cuda_laboratory.torch} nobody has recorded what {race} does")
        assert cell.as_expected, f"{race} / {cell.fix}: {cell.observation.outcome.kind}: {cell.reason}"
        assert cell.verdict is not Verdict.INCONCLUSIVE


def test_a_warm_up_on_another_device_warms_nothing(cuda_laboratory: Laboratory) -> None:
    race, trap, proper = "waiting-recompiles", "warmup-other-device", "warmup"
    bare, trapped, held = matrix(cuda_laboratory, [race], [trap, proper], controls=False, devices=CUDA)
    if bare.observation.outcome.kind is Kind.OK:
        pytest.skip(f"torch {cuda_laboratory.torch} does not have {race}, so no trap can be told from a fix by it")

    assert trapped.verdict is Verdict.FAILS, trapped.reason
    assert held.verdict is Verdict.HOLDS, held.reason


def test_the_two_that_wait_for_each_other_are_named(cuda_laboratory: Laboratory) -> None:
    run = cuda_laboratory.perform(Experiment(race="first-backward", devices=CUDA))

    if run.outcome.kind is Kind.OK:
        pytest.skip(f"torch {cuda_laboratory.torch} does not have this race")
    assert run.outcome.kind is Kind.HANG
    assert "two waits for autograd, held by one; one waits for compile_lock, held by two" in run.outcome.reason


def backward(uncompiled: bool) -> tuple[Finding, Finding]:
    """How a backward is judged; runs in the sandbox."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from repro.oracles import memory, sparsity

    sizes = Workload(mask="dflash", device="cuda", heads=8, queries=2048, keys=18_432)
    inputs = sparsity.canary(seldom(sizes))
    tensors = [tensor.requires_grad_() for tensor in (inputs.query, inputs.key, inputs.value)]
    mask = create_block_mask(inputs.workload.mask_mod(), None, None, 2048, 18_432, device="cuda")
    output = (flex_attention if uncompiled else torch.compile(flex_attention))(*tensors, block_mask=mask)
    cotangent = torch.ones_like(output)
    with memory.AllocationMeter("cuda") as meter:
        torch.autograd.backward(output, cotangent)
    assert memory.can_tell_backward(inputs.workload)
    gradients = [tensor.grad for tensor in tensors]
    return (
        sparsity.judge_gradients(inputs, gradients),
        memory.judge_backward(meter, inputs.workload, gradients),
    )


@pytest.mark.parametrize(("uncompiled", "sight"), [(False, Sight.PASS), (True, Sight.FAIL)])
def test_gradients_and_memory_tell_a_backward_that_is_compiled_from_one_that_is_not(
    uncompiled: bool, sight: Sight, cuda_laboratory: Laboratory
) -> None:
    ended = cuda_laboratory.run("tests.gpu.test_cuda:backward", uncompiled, timeout=180)

    assert ended.value is not None, (ended.outcome, ended.output)
    gradients, memory = ended.value
    assert gradients.sight is sight, gradients
    assert gradients.data["unseen keys"] > 1024
    assert memory.sight is sight, memory


@pytest.mark.xdist_group("the card's memory")
@pytest.mark.parametrize("fix", ["suppress", "lock", "warmup"])
def test_the_story(fix: str, cuda_laboratory: Laboratory) -> None:
    """Three drafters of the story's size: dense without the error, under the bound by a fix that holds."""
    run = cuda_laboratory.perform(Experiment(race="first-call", fix=fix, workloads=tuple(DRAFTERS), devices=CUDA))

    if fix == "suppress":
        assert run.outcome.kind in (Kind.OK, Kind.DENSE)
        assert run.outcome.kind is Kind.OK or "Tried to allocate 284.25 GiB" in run.outcome.reason
        return
    assert run.outcome.kind is Kind.OK, run.outcome.reason
    peaks = [f.data["peak"] / f.data["bound"] for f in run.findings if f.oracle == "memory"]
    assert len(peaks) == 2 * len(DRAFTERS)
    assert max(peaks) < SHARE


@pytest.mark.xdist_group("the card's memory")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fix", ["lock", "warmup", "side-by-side", "side-by-side+isolate"])
def test_the_story_trains(fix: str, cuda_laboratory: Laboratory) -> None:
    """Three first training steps of the story's size at once, left to themselves, under a fix around the step."""
    known = expected("first-backward-step", fix, cuda_laboratory.torch)
    if known is None or known.outcome is not Kind.OK:
        pytest.skip(f"on torch {cuda_laboratory.torch} {fix} is not known to hold around a training step")
    shorter, story, longer = DRAFTERS
    workloads = [shorter, seldom(story), longer]

    ended = cuda_laboratory.run("tests.benchmarks.gpu_jobs:drafters", fix, workloads, timeout=300)

    assert ended.value is not None, (ended.outcome, ended.output)
    found = ended.value
    assert found["said"] == ["ok"] * 3
    assert {finding["sight"] for finding in found["findings"]} == {"pass"}, found["findings"]
    assert len(found["findings"]) == 1 + 5 * 3 + 1
    # The gradients of their keys and values are zero.
    assert found["keys that nobody sees"] > 1024
    assert max(found["largest shares of all scores, of forward and backward"]) < SHARE
    assert any(name.startswith("triton_tem_fused_flex_attention_backward") for name in found["triton"])
    assert any(
        name.startswith("triton_tem_fused_flex_attention") and "backward" not in name for name in found["triton"]
    )


def test_cuda_graphs_of_a_thread_that_ended_are_never_wrong(cuda_laboratory: Laboratory) -> None:
    """Recorded and replayed in one thread, in another and at last alone; the process may die as it frees memory."""
    ended = cuda_laboratory.run("tests.benchmarks.gpu_jobs:graphs_in_another_thread", "cuda", timeout=180)

    if ended.outcome.kind is Kind.CRASH:
        assert "Garbage-collecting" in str(ended.outcome.details.get("stacks")), ended.outcome
        return
    assert ended.value == ["ok"] * 3, (ended.outcome, ended.output)


def test_processes_that_share_the_kernels_on_disk_share_the_card(tmp_path: Path) -> None:
    """Three with a cold cache, and three with the one that these leave; how many of its graphs each of them takes."""

    def three() -> list[dict[str, Any]]:
        def one(number: int) -> Any:
            env = {
                "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
                "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
                "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
            }
            with Sandbox(start="spawn", env=env) as sandbox:
                ended = sandbox.run("tests.benchmarks.gpu_jobs:one_step", "cuda", timeout=180)
            assert ended.value is not None, (ended.outcome, ended.output)
            return ended.value

        with ThreadPoolExecutor(3) as pool:
            return list(pool.map(one, range(3)))

    cold, warm = three(), three()

    assert {(step["forward"], step["backward"]) for step in cold + warm} == {("pass", "pass")}
    # Forward and backward.
    assert [step["graphs compiled"] + step["graphs from cache"] for step in cold] == [2] * 3
    assert [(step["graphs from cache"], step["graphs compiled"]) for step in warm] == [(2, 0)] * 3


@pytest.mark.parametrize("race", [*races.names(races.CUDA)])
def test_a_recorded_schedule_is_replayed_every_time(race: str, cuda_laboratory: Laboratory) -> None:
    recording = load(str(fixtures() / "schedules" / f"{race}.json"))
    runs = list(cuda_laboratory.perform_all([replace(recording.experiment(), devices=CUDA)] * 3))
    known = expected(race, recording.fix, cuda_laboratory.torch)

    if known is None:
        pytest.skip(f"on torch {cuda_laboratory.torch} nobody has recorded what {race} does")
    assert [run.outcome.kind for run in runs] == [known.outcome] * 3
    assert nondeterminism(runs) is None
