"""Autograd's device threads, as the model sees them.

On CUDA ``backward`` does not run in the thread that calls it: each device has one thread, which works for all
callers of the process, one node of a graph after another. For as long as it is inside a node it is like a lock that
the node's caller holds; and since the caller does nothing but wait for it, what it does is done in the caller's name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from repro.interleave import scheduler


def modelled(run_backward: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``run_backward``, with the thread of each device that it works on modelled as a lock called ``name``."""
    holders: dict[str, str] = {}

    @functools.wraps(run_backward)
    def call(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        here = scheduler.current()
        device = next((str(output.device) for output in outputs if output.device.type != "cpu"), None)
        if here is None or device is None:
            return run_backward(outputs, *args, **kwargs)
        run, me = here
        while holders.get(device, me) != me:
            run.wait(me, name, holders[device])
        if device in holders:  # a backward within a backward
            return run_backward(outputs, *args, **kwargs)
        holders[device] = me
        # A graph's first nodes are its outputs': from there on the device's thread acts for this one.
        adopting = [
            output.grad_fn.register_prehook(lambda gradients: scheduler.drive(run, me))
            for output in outputs
            if output.grad_fn is not None
        ]
        try:
            return run_backward(outputs, *args, **kwargs)
        finally:
            for handle in adopting:
                handle.remove()
            del holders[device]
            run.freed(name)

    return call
