"""A compiled call that has worked for hours fails while another of the user's threads is inside an FX trace.

Run it:  python -m repro.races.tracing_bystander

Every compiled call, warm or not, first asks whether somebody is tracing with FX, and refuses if so. The answer is
kept per process, so a trace in one thread refuses the calls of all others. Here the tracer is the user's own code,
so a lock around both helps; see tracing_bystander_foreign for the tracer that takes no lock.
"""

import torch

from repro.interleave import point
from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


class Traced(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        point("in-forward")
        return x + 1


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "tracer": own(code.guarded(lambda: torch.fx.symbolic_trace(Traced()))),
        "compiled": own(code.compiled("compiled")),
    }


RACE = Race(
    threads=threads,
    schedule="tracer:in-forward#1>compiled",
    warm=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "error": (Grade.REQUIRED, "the compiled call takes the other thread's trace for its own and refuses"),
        "ok": (Grade.ACCEPTABLE, "the mark belongs to the thread that traces"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/126024",
        "https://github.com/pytorch/pytorch/pull/168999",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
