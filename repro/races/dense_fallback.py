"""With the error switched off, a compiled call made while another thread traces runs dense, without a word.

Run it:  python -m repro.races.dense_fallback

``error_on_nested_fx_trace = False`` looks like a fix for the refused call. But where the error stood, the compiled
function is now bypassed: the call computes every score. Nothing is raised and the numbers are right; only the NaN
rows that a block-sparse kernel never reads, and the bytes allocated, tell. On a real shape that is 284 GiB.
"""

import torch
import torch._dynamo
from torch.fx.experimental.proxy_tensor import make_fx

from repro.interleave import point
from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def traced(x: torch.Tensor) -> torch.Tensor:
    point("in-make-fx")
    return x + 1


def switch_the_error_off() -> None:
    torch._dynamo.config.error_on_nested_fx_trace = False


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "tracer": own(code.guarded(lambda: make_fx(traced)(torch.ones(4)))),
        "compiled": own(code.compiled("compiled")),
    }


RACE = Race(
    threads=threads,
    schedule="tracer:in-make-fx#1>compiled",
    setup=switch_the_error_off,
    warm=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (Grade.REQUIRED, "the compiled function was bypassed and the uncompiled operator ran"),
        "ok": (Grade.ACCEPTABLE, "the mark belongs to the thread that traces"),
    },
    upstream=("https://github.com/pytorch/pytorch/issues/126024",),
)

if __name__ == "__main__":
    run_alone(__file__)
