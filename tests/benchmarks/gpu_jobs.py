"""What ``gpu.py`` runs in sandboxes."""

from __future__ import annotations

import statistics
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import comb
from typing import Any

from repro.outcome import portably
from repro.workloads import Workload

THREADS = 3
DRAFTER = Workload(
    heads=32, head_dim=128, queries=4096, keys=14_096, dtype="bfloat16", mask="dflash", reach=2048, device="cuda"
)
COUNTS = ("frames", "graphs", "graphs from cache", "graphs compiled", "joint graphs from cache")


def placed(workload: Workload, device: str) -> Workload:
    return replace(workload, device=device)


def lengthened(workload: Workload, keys: int) -> Workload:
    return replace(workload, keys=keys)


def seldom(workload: Workload) -> Workload:
    """The same sizes with few anchors, and little before each: there are keys that nobody sees."""
    return replace(workload, draft=128, reach=64)


def versions() -> dict[str, str]:
    import torch
    import triton

    return {"torch": str(torch.__version__), "cuda": str(torch.version.cuda), "triton": str(triton.__version__)}


def at_once(bodies: Sequence[Callable[[], Any]]) -> list[str]:
    """Run them in threads that start together; what each raised, or ``ok``."""
    said = ["no answer"] * len(bodies)
    barrier = threading.Barrier(len(bodies))

    def work(number: int) -> None:
        barrier.wait()
        said[number] = _said(bodies[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


def graphs_in_another_thread(device: str) -> list[str]:
    """``mode="reduce-overhead"``: a thread warms up, records and replays, and ends; another and then this one go on.

    What each came to, against the uncompiled operator.
    """
    import gc

    replay = _graphed(device)
    said = [*at_once([replay]), *at_once([replay])]
    gc.collect()
    said.append(_said(replay))
    if said[-1] == "ok":
        gc.collect()
    return said


def _said(body: Callable[[], Any]) -> str:
    """What ``body`` raised, and where, or ``ok``."""
    try:
        body()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = portably(f'File "{last.filename}", {last.name}: {last.line}')
        return f"{type(error).__name__}: {str(error)[:200]} ({place})"
    return "ok"


def graphs_on_each(devices: Sequence[str]) -> list[str]:
    """``mode="reduce-overhead"`` in a thread for each device at once, then one by one; what each came to."""
    replays = [_graphed(device) for device in devices]
    return [*at_once(replays), *(said for replay in replays for said in at_once([replay]))]


def _graphed(device: str) -> Callable[[], None]:
    """Calls on ``device`` by a CUDA graph, each held against the uncompiled operator."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    workload = Workload(queries=1024, keys=1024, device=device)
    mask = create_block_mask(workload.mask_mod(), None, None, 1024, 1024, device=device)
    graphed = torch.compile(flex_attention, mode="reduce-overhead")

    @torch.no_grad()
    def replay() -> None:
        for seed in range(4):
            tensors = replace(workload, seed=seed).tensors()
            # The next replay writes over what this one returned.
            output = graphed(*tensors, block_mask=mask).clone()
            error = float((output - flex_attention(*tensors, block_mask=mask)).abs().max())
            if not error < 1e-3:
                raise ValueError(f"call {seed} is wrong by {error}")

    return replay


def each_in_turn(devices: Sequence[str]) -> list[dict[str, Any]]:
    """A training step on each device, twice round: what each had to compile, and what it had from the caches."""
    from repro.oracles.recompiles import counted

    code = _training(devices, [1024] * len(devices))
    found = []
    for turn in range(2 * len(devices)):
        before = {name: counted(name) for name in COUNTS}
        code.compiled(f"step {turn}", turn)()
        grown = {name: (counted(name) or 0) - (count or 0) for name, count in before.items()}
        found.append({"device": devices[turn % len(devices)], **grown})
    return found


def _training(devices: Sequence[str], lengths: Sequence[int]) -> Any:
    from repro import fixes
    from repro.user_code import UserCode

    workloads = [
        Workload(queries=length, keys=length, head_dim=64, device=devices[number % len(devices)])
        for number, length in enumerate(lengths)
    ]
    return UserCode(fixes.load(fixes.NONE), workloads, trains=True)


def first_steps(devices: Sequence[str]) -> list[str]:
    """Three first training steps at once."""
    code = _training(devices, [1024, 2176, 3328])
    return at_once([code.compiled(f"drafter {number}", number) for number in range(THREADS)])


def drafters(fix: str, workloads: Sequence[Workload]) -> dict[str, Any]:
    """Three first training steps at once under a fix that is around the whole step: were they block-sparse.

    What threads hold that run at the same time, the allocator does not tell apart: together it must be less than all
    scores of one of them. What each holds, and the kernels, are those of warm steps more, one after the other.
    """
    from repro import fixes
    from repro.oracles import kernels, memory, numerics, sparsity
    from repro.user_code import UserCode

    code = UserCode(fixes.load(fix), list(workloads), trains=True)
    code.prepare()
    code.calls.clear()
    steps = [code.guarded(code.compiled(f"drafter {number}", number)) for number in range(len(workloads))]
    with memory.AllocationMeter(workloads[0].device) as together:
        said = at_once([code.fix.thread(step) for step in steps])
    if set(said) != {"ok"}:
        return {"said": said}
    found = [memory.judge(together, min(workloads, key=lambda workload: workload.dense_bound))]
    unseen = []
    for call in code.calls:
        assert call.gradients is not None
        gradients = sparsity.judge_gradients(call.inputs, call.gradients)
        unseen.append(gradients.data["unseen keys"])
        found += [sparsity.judge(call.inputs, call.output), numerics.judge(call.output, call.inputs), gradients]
    code.calls.clear()
    for step in steps:
        step()
    shares = []
    for call in code.calls:
        assert call.meter is not None
        assert call.backward is not None
        assert call.gradients is not None
        workload = call.inputs.workload
        forward = memory.judge(call.meter, workload)
        backward = memory.judge_backward(call.backward, workload, call.gradients)
        shares.append([each.data["peak"] / each.data["bound"] for each in (forward, backward)])
        found += [forward, backward]
    ops = kernels.profile(steps[0])
    found.append(kernels.judge(ops, workloads[0]))
    return {
        "said": said,
        "findings": [{"oracle": f.oracle, "sight": f.sight.value, "message": f.message} for f in found],
        "keys that nobody sees": max(unseen),
        "largest shares of all scores, of forward and backward": [max(each) for each in zip(*shares, strict=True)],
        "triton": sorted({op.name for op in ops if op.name.startswith("triton_")}),
    }


def one_step(device: str) -> dict[str, Any]:
    """One training step, and what came out of the caches."""
    from repro.oracles import recompiles, sparsity

    code = _training([device], [1024])
    started = time.monotonic()
    code.compiled("drafter")()
    seconds = time.monotonic() - started
    call = code.calls[0]
    assert call.gradients is not None
    return {
        "seconds": round(seconds, 2),
        "forward": sparsity.judge(call.inputs, call.output).sight.value,
        "backward": sparsity.judge_gradients(call.inputs, call.gradients).sight.value,
        **{name: recompiles.counted(name) for name in COUNTS},
    }


def calls(story: Workload) -> dict[str, Any]:
    """Peak, kernel and time of the story's call, forward and backward; how its time grows with what is visited."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from repro.oracles import kernels, scaling
    from repro.oracles.memory import AllocationMeter

    compiled = torch.compile(flex_attention)

    def median_ms(call: Callable[[], Any], times: int = 20) -> float:
        call()
        taken = []
        for _ in range(times):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            taken.append(begin.elapsed_time(end))
        return statistics.median(taken)

    def peak(call: Callable[[], Any]) -> int | None:
        with AllocationMeter(story.device) as meter:
            call()
            torch.cuda.synchronize()
        return meter.peak

    def look(workload: Workload, attention: Callable[..., Any]) -> dict[str, Any]:
        tensors = [tensor.requires_grad_() for tensor in workload.tensors()]
        mask_mod = workload.mask_mod()
        sizes = (None, None, workload.queries, workload.keys)
        mask = create_block_mask(mask_mod, *sizes, device=workload.device)
        cotangent = torch.ones_like(tensors[0])

        @torch.no_grad()
        def forward() -> Any:
            return attention(*tensors, block_mask=mask)

        def step() -> None:
            for tensor in tensors:
                tensor.grad = None
            torch.autograd.backward(attention(*tensors, block_mask=mask), cotangent)

        found: dict[str, Any] = {
            "sparsity in percent": float(mask.sparsity()),
            "mask ms": median_ms(lambda: create_block_mask(mask_mod, *sizes, device=workload.device), 5),
            "all scores in bytes": workload.dense_bound,
        }
        for name, call in (("forward", forward), ("step", step)):
            first = peak(call)
            found[name] = {"first peak": first, "peak": peak(call), "ms": median_ms(call)}
            ops = kernels.profile(call)
            found[name]["kernels"] = kernels.judge(ops, workload).message
            found[name]["triton"] = sorted({op.name for op in ops if op.name.startswith("triton_")})
        return found

    def timed(looked: dict[str, Any], what: str) -> scaling.Timed:
        return scaling.Timed(1 - looked["sparsity in percent"] / 100, looked[what]["ms"])

    short = replace(story, heads=8, queries=4096, keys=8192, reach=128)
    found = {
        "story": look(story, compiled),
        "twice the reach": look(replace(story, reach=2 * (story.reach or 0)), compiled),
        "all of the context": look(replace(story, reach=None), compiled),
        "short, compiled": look(short, compiled),
        "short, uncompiled": look(short, flex_attention),
        "short, uncompiled, all of the context": look(replace(short, reach=None), flex_attention),
    }
    for name, few in (
        ("all of the context", "story"),
        ("short, uncompiled, all of the context", "short, uncompiled"),
    ):
        for what in ("forward", "step"):
            finding = scaling.judge(timed(found[few], what), timed(found[name], what))
            found[name][what]["scaling"] = {"sight": finding.sight.value, "message": finding.message, **finding.data}
    return found


def compared(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ratios = sorted(fixed / bare for bare, fixed in pairs)
    return {
        "tokens a second without": statistics.median(bare for bare, _ in pairs),
        "tokens a second with": statistics.median(fixed for _, fixed in pairs),
        "ratio": statistics.median(ratios),
        "from": ratios[0],
        "to": ratios[-1],
        "lower 95 % bound of the median": lower_bound(ratios),
        "pairs": [[round(bare), round(fixed)] for bare, fixed in pairs],
    }


def lower_bound(ordered: Sequence[float], chance: float = 0.05) -> float | None:
    """The largest of the values that the median is above but for this ``chance``, by the sign test."""
    count = len(ordered)
    bound = None
    for index in range(count):
        if sum(comb(count, below) for below in range(index + 1)) / 2**count > chance:
            break
        bound = ordered[index]
    return bound


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Between which values the median is with 95 %."""
    low = lower_bound(sorted(values), 0.025)
    high = lower_bound(sorted(-value for value in values), 0.025)
    assert low is not None, "six values are needed at least"
    assert high is not None
    return low, -high
