"""The user's code of a run: build the mask, then call attention, shaped by a fix and watched by the oracles."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from repro.fixes import Fix
from repro.interleave import point
from repro.oracles.memory import AllocationMeter
from repro.oracles.sparsity import Canary, canary
from repro.outcome import Finding
from repro.workloads import Workload

Attention = Callable[..., torch.Tensor]


@dataclass
class Call:
    """One call of attention that was watched.

    ``output`` is ``[batch, heads, queries, head_dim]``, ``None`` when the call raised. ``meter`` counted what the
    attention allocated, without the mask, and ``backward`` what its backward did; ``None`` when it was never reached.
    ``gradients`` are those of query, key and value, ``None`` where no backward was asked for or it raised.
    """

    thread: str
    compiled: bool
    inputs: Canary
    output: torch.Tensor | None = None
    meter: AllocationMeter | None = None
    backward: AllocationMeter | None = None
    gradients: tuple[torch.Tensor | None, ...] | None = None


class _Watched(threading.local):
    call: Call | None = None


_watched = _Watched()


def metered(function: Attention) -> Attention:
    """``function``, with what it allocates counted towards the watched call that it is part of."""

    def counting(query: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        call = _watched.call
        if call is None:
            return function(query, *rest, **options)
        call.meter = AllocationMeter(query.device)
        with call.meter:
            return function(query, *rest, **options)

    return counting


def mask_then(flex: Attention, build: Callable[..., Any] = create_block_mask) -> Attention:
    """What users write: ``(query, key, value, mask_mod) -> output``; it builds its block mask on every call."""
    flex = metered(flex)

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask_mod: Any) -> torch.Tensor:
        block_mask = build(mask_mod, None, None, query.shape[-2], key.shape[-2], device=str(query.device))
        return flex(query, key, value, block_mask=block_mask)

    return attention


@dataclass
class UserCode:
    """What a race makes its threads of.

    ``compiled`` and ``uncompiled`` give a thread body that builds its block mask and calls attention; ``index`` says
    on which of the ``workloads``, round and round, and ``through`` what to call instead of ``attention``, such as
    another one :meth:`compiled_anew`. ``build_mask`` is ``create_block_mask`` as the fix has it, and
    ``guarded(function)`` any other code of the user's. The fix is around all of them. ``findings`` takes what a
    race's own threads have looked at. With ``trains`` a compiled call goes backward too, outside the fix, as in a
    training step; otherwise every call runs under ``no_grad``: on the CPU compiled flex_attention is for inference.
    """

    fix: Fix
    workloads: list[Workload]
    trains: bool = False
    calls: list[Call] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inputs = [canary(workload) for workload in self.workloads]
        self._masks = [workload.mask_mod() for workload in self.workloads]
        self.build_mask = self.fix.compile_mask(create_block_mask)
        self.attention = self.compiled_anew()
        self.uncompiled_attention = self.fix.guard(mask_then(flex_attention, self.build_mask))

    def compiled_anew(self) -> Attention:
        """The user's attention, compiled by another call of ``torch.compile``."""
        return self.fix.guard_attention(mask_then(self.fix.compile_attention(flex_attention), self.build_mask))

    def compiled(self, thread: str, index: int = 0, through: Attention | None = None) -> Callable[[], None]:
        return lambda: self._call(thread, through or self.attention, True, index)

    def uncompiled(self, thread: str, index: int = 0) -> Callable[[], None]:
        return lambda: self._call(thread, self.uncompiled_attention, False, index)

    def guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.fix.guard(function)

    def prepare(self) -> None:
        """Let the fix do what it does before any thread starts."""
        examples = [
            (*self._tensors(inputs), mask_mod) for inputs, mask_mod in zip(self.inputs, self._masks, strict=True)
        ]
        with torch.set_grad_enabled(self.trains):
            self.fix.before_threads(self.attention, examples)

    def _call(self, thread: str, attention: Attention, compiled: bool, index: int) -> None:
        index %= len(self.workloads)
        inputs, mask_mod = self.inputs[index], self._masks[index]
        trains = self.trains and compiled
        tensors = self._tensors(inputs)
        call = Call(thread, compiled, inputs)
        self.calls.append(call)
        _watched.call = call
        try:
            with torch.set_grad_enabled(trains):
                output = attention(*tensors, mask_mod)
        finally:
            _watched.call = None
        if trains:
            point("backward")
            cotangent = torch.ones_like(output)
            call.backward = AllocationMeter(output.device)
            with call.backward:
                torch.autograd.backward(output, cotangent)
            call.gradients = tuple(tensor.grad for tensor in tensors)
        call.output = output.detach()

    def _tensors(self, inputs: Canary) -> list[torch.Tensor]:
        tensors = (inputs.query, inputs.key, inputs.value)
        return [tensor.detach().requires_grad_(self.trains) for tensor in tensors]
