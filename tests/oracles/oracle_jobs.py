"""What the tests of the oracles run in a sandbox."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
import torch._dynamo
import torch._inductor.ir
import torch.fx.traceback
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from repro.oracles import kernels, memory, numerics, recompiles, sparsity, state
from repro.outcome import Finding
from repro.workloads import Workload

# seconds that a job may take; only ever waited out by a test that fails
NET = 300.0

Attention = Callable[..., torch.Tensor]


def block_mask_of(workload: Workload) -> Any:
    return create_block_mask(workload.mask_mod(), None, None, workload.queries, workload.keys, device=workload.device)


def both(workload: Workload) -> dict[str, dict[str, Finding]]:
    """Every oracle of a call, on the same inputs, for the compiled operator and the uncompiled one."""
    inputs, block_mask = sparsity.canary(workload), block_mask_of(workload)

    def look(attention: Attention) -> dict[str, Finding]:
        def call() -> torch.Tensor:
            return attention(inputs.query, inputs.key, inputs.value, block_mask=block_mask)

        with torch.no_grad():
            call()
            with memory.AllocationMeter() as meter:
                output = call()
            clean = attention(*workload.tensors(), block_mask=block_mask)
            ops = kernels.profile(call)
        return {
            "sparsity": sparsity.judge(inputs, output, clean),
            "memory": memory.judge(meter, workload),
            "numerics": numerics.judge(output, inputs),
            "kernels": kernels.judge(ops, workload),
        }

    return {"compiled": look(torch.compile(flex_attention)), "uncompiled": look(flex_attention)}


def whole(workload: Workload) -> sparsity.Canary:
    """The workload's own tensors, without NaN, every row checked."""
    return sparsity.Canary(workload, *workload.tensors(), torch.ones(workload.queries, dtype=torch.bool))


def without_an_output(workload: Workload) -> list[Finding]:
    inputs = sparsity.canary(workload)
    return [sparsity.judge(inputs, None), numerics.judge(None, inputs)]


def with_nothing_to_check(workload: Workload) -> list[Finding]:
    inputs = sparsity.canary(workload)
    return [sparsity.judge(inputs, inputs.query), numerics.judge(inputs.query, inputs), clean(inputs)]


def clean(inputs: sparsity.Canary) -> Finding:
    """Where no row can be checked nothing may have been poisoned."""
    return numerics.judge(
        numerics.reference(inputs.workload, inputs.query, inputs.key, inputs.value), whole(inputs.workload)
    )


def changed_by_one_bit(workload: Workload) -> list[Finding]:
    inputs = sparsity.canary(workload)
    output = numerics.reference(workload, inputs.query, inputs.key, inputs.value).float()
    other = output.clone()
    row = int(inputs.checked.nonzero()[0])
    other[0, 0, row, 0] = other[0, 0, row, 0].nextafter(torch.tensor(torch.inf))
    return [sparsity.judge(inputs, output, output), sparsity.judge(inputs, output, other)]


def uncompiled_with(workload: Workload, other: Workload) -> Finding:
    """The numbers of an uncompiled call on clean tensors with the mask of ``other``, judged by ``workload``."""
    inputs = whole(workload)
    with torch.no_grad():
        output = flex_attention(inputs.query, inputs.key, inputs.value, block_mask=block_mask_of(other))
    assert isinstance(output, torch.Tensor)
    return numerics.judge(output, inputs)


def wrong_shape(workload: Workload) -> Finding:
    inputs = whole(workload)
    return numerics.judge(inputs.query[:, :, 1:], inputs)


def peaks(workload: Workload) -> dict[str, list[int | None]]:
    """Peaks of calls: compiled ones in this thread and in a worker while another holds a lot, and an uncompiled."""
    query, key, value = workload.tensors()
    block_mask = block_mask_of(workload)
    compiled = torch.compile(flex_attention)

    @torch.no_grad()
    def peak(attention: Attention, inside: Callable[[], None] = lambda: None) -> int | None:
        with memory.AllocationMeter() as meter:
            inside()
            attention(query, key, value, block_mask=block_mask)
        return meter.peak

    peak(compiled)
    held: list[torch.Tensor] = []
    main = [peak(compiled), peak(compiled)]
    worker: list[int | None] = []

    def work() -> None:
        worker.append(peak(compiled, lambda: in_a_thread(lambda: held.append(torch.ones(workload.dense_bound // 4)))))
        worker.append(peak(compiled))

    in_a_thread(work)
    return {"main": main, "worker": worker, "uncompiled": [peak(flex_attention)]}


def in_a_thread(body: Callable[[], None]) -> None:
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def metered(tensor: int, other: int) -> tuple[int | None, int]:
    """Peak and count of a block that makes a tensor of so many bytes, and another object of so many."""
    with memory.AllocationMeter() as meter:
        torch.empty(tensor, dtype=torch.uint8)
        bytearray(other)
    return meter.peak, meter.events


def out_of_memory(size: int) -> int | None:
    try:
        torch.empty(size, dtype=torch.uint8)
    except RuntimeError as error:
        return memory.requested_bytes(error)
    raise AssertionError("there is that much memory")


def score_sized(message: str, workload: Workload) -> bool:
    return memory.score_sized(RuntimeError(message), workload)


def masks(workload: Workload) -> dict[str, Finding]:
    """What building a mask and attending takes, as it is and compiled."""
    attention = torch.compile(flex_attention)

    def look(create: Callable[..., Any]) -> Finding:
        def step() -> None:
            mask = create(workload.mask_mod(), None, None, workload.queries, workload.keys, device=workload.device)
            call(attention, workload.tensors(), mask)

        step()
        with memory.AllocationMeter() as meter:
            step()
        return memory.judge_mask(meter, workload)

    return {"uncompiled": look(create_block_mask), "compiled": look(torch.compile(create_block_mask))}


def profile_of_nothing(workload: Workload) -> Finding:
    return kernels.judge(kernels.profile(lambda: None), workload)


def looked_at(names: list[str]) -> tuple[list[str], list[str]]:
    """Of these names the ones that a snapshot has, and the ones that it leaves out though they are there."""
    seen = {f"{holder}.{name}" for holder, there in state.snapshot().values.items() for name in there}
    missed = [name for name in names if name not in seen and state.look(name) != "<absent>"]
    return [name for name in names if name in seen], missed


def leave(what: str) -> Finding:
    before = state.snapshot()
    globals()[what]()
    return state.judge(before, state.snapshot())


def nothing() -> None:
    """All that a well-behaved program does, one after another."""
    for workload in (Workload(), Workload(mask="document", queries=300, keys=300)):
        query, key, value = workload.tensors()
        block_mask = block_mask_of(workload)
        call(torch.compile(flex_attention), (query, key, value), block_mask)
        in_a_thread(partial(call, flex_attention, (query, key, value), block_mask))
    torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    torch.compile(torch.nn.Linear(3, 3))(torch.ones(2, 3)).sum().backward()


@torch.no_grad()
def call(attention: Attention, inputs: tuple[torch.Tensor, ...], block_mask: Any) -> None:
    attention(*inputs, block_mask=block_mask)


def overlapping_traces() -> None:
    """Two threads trace; the first to begin is the first to end, and the second restores what it found."""
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def first(x: Any) -> Any:
        first_is_in.set()
        second_is_in.wait()
        return x + 1

    def second(x: Any) -> Any:
        second_is_in.set()
        first_is_out.wait()
        return x + 1

    def trace_first() -> None:
        try:
            torch.fx.symbolic_trace(first)
        finally:
            first_is_out.set()

    def trace_second() -> None:
        first_is_in.wait()
        torch.fx.symbolic_trace(second)

    threads = [threading.Thread(target=quietly, args=(body,)) for body in (trace_first, trace_second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def quietly(body: Callable[[], None]) -> None:
    """The state is what counts here: a trace that notices the other one and raises is no better."""
    try:
        body()
    except Exception as error:
        print(repr(error))


def overlapping_stances() -> None:
    _in_the_wrong_order(torch.compiler.set_stance("force_eager"), torch.compiler.set_stance("eager_on_recompile"))


def overlapping_annotations() -> None:
    """Two threads build block masks, which annotates the graphs of whoever traces; releases before 2.13 do not."""
    annotate = torch.fx.traceback.annotate
    _in_the_wrong_order(annotate({"one": 1}), annotate({"other": 2}))


def _in_the_wrong_order(one: Any, other: Any) -> None:
    stack, later = ExitStack(), ExitStack()
    stack.enter_context(one)
    later.enter_context(other)
    stack.close()
    later.close()


def config() -> None:
    torch._dynamo.config.suppress_errors = True


def environment() -> None:
    os.environ["LEFT_BY_A_TEST"] = "1"


def attribute_of_a_class() -> None:
    torch._inductor.ir.FlexibleLayout.allow_indexing = True


def function_beside_the_stack() -> None:
    torch.cuda.set_rng_state = lambda *state: None  # type: ignore[assignment]


def filters_of_warnings() -> None:
    warnings.simplefilter("ignore")


def patched_module_call() -> None:
    original = torch.nn.Module.__call__

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    patched.__qualname__, patched.__module__ = original.__qualname__, original.__module__
    torch.nn.Module.__call__ = patched  # type: ignore[method-assign]


def graphs_of_a_whole_graph() -> tuple[int | None, int | None]:
    """Graphs counted before and after one compile with ``fullgraph=True``."""
    workload = Workload()
    before = recompiles.compiled_graphs()
    attention = torch.compile(flex_attention, fullgraph=True, backend="eager")
    in_a_thread(partial(call, attention, workload.tensors(), block_mask_of(workload)))
    return before, recompiles.compiled_graphs()


def frames_of(lengths: list[int]) -> int | None:
    """Frames compiled for calls of one compiled function, each in a thread of its own, without dynamic shapes."""
    attention = torch.compile(flex_attention, dynamic=False, backend="eager")
    before = recompiles.compiled_frames()
    for length in lengths:
        workload = Workload(queries=length, keys=length)
        in_a_thread(partial(call, attention, workload.tensors(), block_mask_of(workload)))
    after = recompiles.compiled_frames()
    return None if before is None or after is None else after - before
