"""What a sandbox does once so that its jobs find torch ready: on the CPU :func:`torch_and_one_compile`.

For CUDA it is :func:`torch_imported`: a forked child cannot use a device once its parent has asked the driver for
one, and compiling asks even for the CPU. What a first compile sets for the whole process is then left to each job:
:func:`first_compile`.
"""

from __future__ import annotations

import functools

import jinja2

_compiled = False


def torch_settings() -> None:
    """Import torch and set what a schedule needs to come out the same twice, and a fork to be safe."""
    import torch
    import torch._functorch.config
    import torch._inductor.config

    # a thread pool does not survive a fork, and its order of work is nobody's to choose
    torch.set_num_threads(1)
    torch._inductor.config.compile_threads = 1
    # a cached graph skips most of the points at which threads can be interleaved
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False


def _read_once() -> None:
    """What every job would read for itself, and comes out the same: a third of its time."""
    import repro.perform  # noqa: F401
    from repro.oracles import state

    state.known_beforehand()
    # Inductor writes its C++ by templates, and has jinja read each of them anew in every compile. What comes of
    # reading one depends on its text, and on the environment, of which inductor has one.
    if not hasattr(jinja2.Environment.compile, "cache_info"):
        jinja2.Environment.compile = functools.cache(jinja2.Environment.compile)  # type: ignore[method-assign,assignment]


def torch_imported() -> None:
    """Import what a compile imports, and compile nothing; torch must have been told to ask NVML for devices."""
    torch_settings()
    _read_once()
    import torch._dynamo
    import torch._inductor.compile_fx
    import torch._inductor.kernel.flex.flex_attention
    import torch.nn.attention.flex_attention

    # Wraps functions of torch once and for all, and compiles nothing.
    torch.compile(first_compile)


def first_compile() -> None:
    """Compile something, unless this process has: what the first one sets for good is no race's doing."""
    global _compiled
    if not _compiled:
        import torch

        torch.compile(torch.neg, backend="eager")(torch.zeros(1))
        torch._dynamo.reset()
        _compiled = True


def torch_and_one_compile() -> None:
    """Compile one small flex_attention on the CPU, then forget it: imports and tools stay warm."""
    torch_settings()
    _read_once()
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(batch: object, head: object, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return query >= key

    with torch.no_grad():
        # three tensors: torch 2.9.1 does not lower a call whose query, key and value are one
        query, key, value = (torch.zeros(1, 2, 256, 32) for _ in range(3))
        mask = create_block_mask(causal, None, None, 256, 256, device="cpu")
        torch.compile(flex_attention)(query, key, value, block_mask=mask)
    torch._dynamo.reset()
    global _compiled
    _compiled = True
