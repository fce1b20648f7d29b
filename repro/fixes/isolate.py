"""Give each thread its own tracing mark and mask note, inside torch: what a compile shares without need.

Call ``mend()`` once, before any thread starts. It mends torch for the whole process, so it holds against libraries
that take no lock, and it makes nobody wait. Two things are changed, each only on releases that need it:

* the mark "somebody traces" belongs to the thread that traces, as from 2.14 on (up to 2.13 it is one for all);
* ``create_block_mask`` says nothing to FX traces outside a compile (from 2.13 on it writes into metadata that all
  threads share; inside ``torch.compile`` it still does, and there the lock of the compiler is held).

Limits: it reaches for private names, so a new release needs a look (the suite runs it on each release that it lists).
What ``symbolic_trace`` replaces in ``nn.Module``, a stance, and ``is_compiling()`` stay shared.
"""

import functools
import threading
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch._higher_order_ops
import torch.fx._symbolic_trace as tracing
import torch.nn.attention.flex_attention as flex


class _Mark(threading.local):
    tracing = False


MARK = _Mark()


class _PerThread(types.ModuleType):
    """The module of the tracer, whose mark is asked of, and set for, the calling thread."""

    @property
    def _is_fx_tracing_flag(self) -> bool:
        return MARK.tracing

    @_is_fx_tracing_flag.setter
    def _is_fx_tracing_flag(self, value: bool) -> None:
        MARK.tracing = value


def mark_per_thread() -> None:
    # The module's own functions bypass the property above: they read and write the global itself.
    def is_fx_tracing() -> bool:
        is_fx_tracing_warning()  # type: ignore[name-defined]  # noqa: F821
        return torch.fx._symbolic_trace._is_fx_tracing_flag

    def is_fx_symbolic_tracing() -> bool:
        return torch.fx._symbolic_trace._is_fx_tracing_flag and not torch.compiler.is_compiling()

    # New code for the old functions: whoever imported them by name has the new answer too.
    tracing.is_fx_tracing.__code__ = is_fx_tracing.__code__
    tracing.is_fx_symbolic_tracing.__code__ = is_fx_symbolic_tracing.__code__
    trace = tracing.Tracer.trace

    @functools.wraps(trace)
    def marked(*args: Any, **kwargs: Any) -> Any:
        before, MARK.tracing = MARK.tracing, True
        try:
            return trace(*args, **kwargs)
        finally:
            MARK.tracing = before
            # Nobody asks the global any more; overlapping traces would leave it set.
            vars(tracing)["_is_fx_tracing_flag"] = False

    tracing.Tracer.trace = marked  # type: ignore[method-assign]
    tracing.__class__ = _PerThread


def masks_without_a_note() -> None:
    noting = flex._dense_to_ordered

    @functools.wraps(noting)
    def dense_to_ordered(dense_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.compiler.is_dynamo_compiling():
            return noting(dense_mask)
        ordered = dense_mask.to(torch.int32)
        count = ordered.sum(-1).to(torch.int32, memory_format=torch.contiguous_format)
        indices = torch.argsort(ordered, dim=-1, descending=True, stable=True)
        return count, indices.to(torch.int32, memory_format=torch.contiguous_format)

    flex._dense_to_ordered = dense_to_ordered


def before_threads(attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
    mend()


def mend() -> None:
    if "_is_fx_tracing_flag" in vars(tracing):
        mark_per_thread()
    if "annotate" in flex._dense_to_ordered.__code__.co_names:
        masks_without_a_note()
