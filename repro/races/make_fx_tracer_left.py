"""Two ``make_fx`` at once; both are done, and every later ``torch.cond`` that needs gradients fails.

Run it:  python -m repro.races.make_fx_tracer_left

``make_fx`` puts its tracer into one global of the process and at its end puts back what it found. Whoever begins in
the middle of another's finds the other's tracer, and puts that back after the other has gone. Operators that trace
their own backward, such as ``torch.cond``, take a tracer there for a sign that somebody traces them, ask the dead one
to do it, and fail. No compile is needed to get there, and no lock of torch's is taken.
"""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.make_fx_tracer import plus_one
from repro.user_code import UserCode


def trace() -> None:
    make_fx(plus_one)(torch.ones(4))


def trace_and_choose() -> None:
    trace()
    torch.cond(torch.tensor(True), plus_one, torch.neg, (torch.ones(4, requires_grad=True),))


def threads(code: UserCode) -> dict[str, Thread]:
    return {"one": own(code.guarded(trace)), "two": own(code.guarded(trace_and_choose))}


RACE = Race(
    threads=threads,
    schedule="one:make_fx.entered#1>two, two:make_fx.entered#1>one",
    seams=("make_fx.entered", "make_fx.exiting"),
    outcomes={
        "error": (Grade.REQUIRED, "torch.cond asked a tracer that is long done"),
        "ok": (Grade.ACCEPTABLE, "the tracer belongs to the thread that traces"),
        "poisoned": (Grade.REQUIRED, "a tracer that is done stays in the global, and nobody asks it (2.9)"),
    },
    # Thread safety as such; no report names this.
    upstream=("https://github.com/pytorch/pytorch/issues/168042",),
)

if __name__ == "__main__":
    run_alone(__file__)
