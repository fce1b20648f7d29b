"""What users do that reaches the compile stack: each makes a thread's body, given the user's code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.fx.traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils.flop_counter import FlopCounterMode

from repro.user_code import UserCode
from repro.workloads import Workload

Body = Callable[[], Any]


class Layer(torch.nn.Module):
    """Something to trace, compile and export, of a size of its own in each thread."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3 + index, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def compiled(code: UserCode, thread: str, index: int) -> Body:
    return code.compiled(thread, index)


def uncompiled(code: UserCode, thread: str, index: int) -> Body:
    return code.uncompiled(thread, index)


def mask(code: UserCode, thread: str, index: int) -> Body:
    workload = Workload(queries=512, keys=512)
    mask_mod = workload.mask_mod()
    return lambda: create_block_mask(mask_mod, None, None, 512, 512, device=workload.device)


def training(code: UserCode, thread: str, index: int) -> Body:
    layer, x = torch.compile(Layer(index)), torch.ones(2, 3 + index)
    return lambda: layer(x).sum().backward()


def fake_fx(code: UserCode, thread: str, index: int) -> Body:
    x = torch.ones(3 + index)
    return lambda: make_fx(lambda x: (x.sin() + 1).sum(), tracing_mode="fake")(x)


def symbolic_fx(code: UserCode, thread: str, index: int) -> Body:
    layer = Layer(index)
    return lambda: torch.fx.symbolic_trace(layer)


def exported(code: UserCode, thread: str, index: int) -> Body:
    layer, x = Layer(index), torch.ones(2, 3 + index)
    return lambda: torch.export.export(layer, (x,)).run_decompositions()


def exported_strict(code: UserCode, thread: str, index: int) -> Body:
    layer, x = Layer(index), torch.ones(2, 3 + index)
    return lambda: torch.export.export(layer, (x,), strict=True)


def stance(code: UserCode, thread: str, index: int) -> Body:
    def body() -> None:
        with torch.compiler.set_stance("force_eager"):
            torch.ones(3).sin()

    return body


def flops(code: UserCode, thread: str, index: int) -> Body:
    """A dispatch mode of the user's: here the one that counts operations."""
    x = torch.ones(3, 3)

    def body() -> None:
        with FlopCounterMode(display=False):
            x @ x

    return body


def annotated(code: UserCode, thread: str, index: int) -> Body:
    def body() -> None:
        with torch.fx.traceback.annotate({"by": thread}):
            make_fx(lambda x: x.sin())(torch.ones(3))

    return body


def no_break(code: UserCode, thread: str, index: int) -> Body:
    def body() -> None:
        with getattr(torch._dynamo, "error_on_graph_break", contextlib.nullcontext)(True):
            torch.compile(torch.cos)(torch.ones(3 + index))

    return body


def explained(code: UserCode, thread: str, index: int) -> Body:
    layer, x = Layer(index), torch.ones(2, 3 + index)
    return lambda: torch._dynamo.explain(layer)(x)


ACTIONS: dict[str, Callable[[UserCode, str, int], Body]] = {
    "mask": mask,
    "uncompiled": uncompiled,
    "symbolic_trace": symbolic_fx,
    "make_fx": fake_fx,
    "annotate": annotated,
    "stance": stance,
    "flops": flops,
    "export": exported,
    "export_strict": exported_strict,
    "compiled": compiled,
    "training": training,
    "error_on_graph_break": no_break,
    "explain": explained,
}
