"""On a CUDA device: the races that exist there alone, and the oracles, as on the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro import fixes, races
from repro.expectations import expected, fixtures
from repro.experiment import Experiment
from repro.laboratory import Laboratory
from repro.outcome import Finding, Kind, Sight
from repro.recording import load, nondeterminism
from repro.verdict import Verdict, matrix
from repro.workloads import STORY, Workload

pytestmark = pytest.mark.gpu
CUDA = ("cuda",)
# The peak of a block-sparse call above its inputs, as a share of all scores.
SHARE = 0.002


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


def gradients(uncompiled: bool) -> Finding:
    """How a backward is judged; runs in the sandbox."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from repro.oracles import sparsity

    # With few anchors, and little before each, there are keys that nobody sees.
    sizes = {"queries": 1024, "keys": 9216, "draft": 128, "reach": 64}
    inputs = sparsity.canary(Workload(mask="dflash", device="cuda", **sizes))
    tensors = [tensor.requires_grad_() for tensor in (inputs.query, inputs.key, inputs.value)]
    mask = create_block_mask(inputs.workload.mask_mod(), None, None, 1024, 9216, device="cuda")
    output = (flex_attention if uncompiled else torch.compile(flex_attention))(*tensors, block_mask=mask)
    torch.autograd.backward(output, torch.ones_like(output))
    return sparsity.judge_gradients(inputs, [tensor.grad for tensor in tensors])


@pytest.mark.parametrize(("uncompiled", "sight"), [(False, Sight.PASS), (True, Sight.FAIL)])
def test_gradients_tell_compiled_from_uncompiled(uncompiled: bool, sight: Sight, cuda_laboratory: Laboratory) -> None:
    ended = cuda_laboratory.run("tests.gpu.test_cuda:gradients", uncompiled, timeout=180)

    assert isinstance(ended.value, Finding), (ended.outcome, ended.output)
    assert ended.value.sight is sight, ended.value
    assert ended.value.data["unseen keys"] > 1024


@pytest.mark.xdist_group("the card's memory")
@pytest.mark.parametrize("fix", ["suppress", "lock", "warmup"])
def test_the_story(fix: str, cuda_laboratory: Laboratory) -> None:
    """Three drafters of the story's size: dense without the error, under the bound by a fix that holds."""
    lengths = (STORY.keys - 2048, STORY.keys, STORY.keys + 1024)
    workloads = tuple(Workload.from_json({**STORY.to_json(), "keys": keys}) for keys in lengths)
    run = cuda_laboratory.perform(Experiment(race="first-call", fix=fix, workloads=workloads, devices=CUDA))

    if fix == "suppress":
        assert run.outcome.kind in (Kind.OK, Kind.DENSE)
        assert run.outcome.kind is Kind.OK or "Tried to allocate 284.25 GiB" in run.outcome.reason
        return
    assert run.outcome.kind is Kind.OK, run.outcome.reason
    peaks = [f.data["peak"] / f.data["bound"] for f in run.findings if f.oracle == "memory"]
    assert len(peaks) == 2 * len(lengths)
    assert max(peaks) < SHARE


@pytest.mark.parametrize("race", [*races.names(races.CUDA)])
def test_a_recorded_schedule_is_replayed_every_time(race: str, cuda_laboratory: Laboratory) -> None:
    recording = load(str(fixtures() / "schedules" / f"{race}.json"))
    runs = list(cuda_laboratory.perform_all([replace(recording.experiment(), devices=CUDA)] * 3))
    known = expected(race, recording.fix, cuda_laboratory.torch)

    if known is None:
        pytest.skip(f"on torch {cuda_laboratory.torch} nobody has recorded what {race} does")
    assert [run.outcome.kind for run in runs] == [known.outcome] * 3
    assert nondeterminism(runs) is None
