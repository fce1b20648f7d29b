"""Which kernel ran, by name: a second witness beside ``sparsity`` and ``memory``, which need no names.

Torch's profiler sees the thread that profiles alone, and several at once crash torch 2.13.0: profile one warm call,
when no other thread is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from repro.outcome import Finding, Sight
from repro.torch_names import entries
from repro.workloads import Workload


@dataclass(frozen=True)
class Op:
    """One profiler event: its ``name`` and the ``shapes`` of its tensor inputs, ``()`` where not recorded."""

    name: str
    shapes: tuple[tuple[int, ...], ...] = ()


def profile(call: Callable[[], Any]) -> list[Op]:
    """What torch's profiler recorded of one ``call``, on the CPU and, where there is one, on the GPU."""
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True) as recorded:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    return [Op(event.name, tuple(map(tuple, event.input_shapes or ()))) for event in recorded.events()]


def judge(ops: Sequence[Op], workload: Workload) -> Finding:
    """``fail`` if a softmax over all scores ran, ``pass`` if instead a compiled kernel did; ``blind`` otherwise."""
    import torch

    score_shape = (workload.queries, workload.keys)
    # a compiled graph has no operators in it: its kernels do not go through the dispatcher
    dense = sorted({op.name for op in ops if "softmax" in op.name and score_shape in {s[-2:] for s in op.shapes}})
    device = workload.device.partition(":")[0]
    kernels = [entry["name"] for entry in entries("kernel", torch.__version__) if entry["device"] == device]
    compiled = sorted({op.name for op in ops if any(kernel in op.name for kernel in kernels)})
    data = {"dense": dense, "compiled": compiled, "events": len(ops)}
    if dense:
        return Finding("kernels", Sight.FAIL, f"dense: {', '.join(dense)} over all {score_shape} scores", data)
    if compiled:
        return Finding("kernels", Sight.PASS, f"compiled: {', '.join(compiled)}", data)
    return Finding("kernels", Sight.BLIND, f"neither a compiled kernel nor a softmax in {len(ops)} events", data)
