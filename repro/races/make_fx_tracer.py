"""A compile fails with "not under a make_fx tracing session", because another thread's ``make_fx`` has just ended.

Run it:  python -m repro.races.make_fx_tracer

``make_fx`` keeps its tracer in one global of the process, and puts back at its end what it found there. A compile of
flex_attention traces so too, and asks that global for its tracer when it comes to the mask. If another thread's
``make_fx`` began before the compile and ends in its middle, the global is empty by then and the compile fails. In the
other order nobody fails, and a tracer that is long done stays in the global.
"""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "tracer": own(code.guarded(lambda: make_fx(plus_one)(torch.ones(4)))),
        "compiled": own(code.compiled("compiled")),
    }


RACE = Race(
    threads=threads,
    schedule="tracer:make_fx.entered#1>compiled, compiled:flex.trace#1>tracer",
    seams=("make_fx.entered", "make_fx.exiting", "flex.trace", "flex.traced"),
    outcomes={
        "error": (Grade.REQUIRED, "the compile found no tracer where it had put its own"),
        "ok": (Grade.ACCEPTABLE, "the tracer belongs to the thread that traces"),
        "poisoned": (Grade.INTERESTING, "a tracer that is done stays in the global"),
    },
    # Thread safety as such; no report names this.
    upstream=("https://github.com/pytorch/pytorch/issues/168042",),
)

if __name__ == "__main__":
    run_alone(__file__)
