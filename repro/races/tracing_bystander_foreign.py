"""A compiled call fails while a thread that is not the user's, and takes no lock, is inside an FX trace.

Run it:  python -m repro.races.tracing_bystander_foreign

The same as tracing_bystander, but the tracer belongs to a library. No lock of the user's can hold it back: only a
release that keeps the mark per thread, or never tracing beside a call, helps.
"""

import torch

from repro.races import Race, Thread, foreign, own, run_alone
from repro.races.tracing_bystander import RACE as OWN_TRACER
from repro.races.tracing_bystander import Traced
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "tracer": foreign(lambda: torch.fx.symbolic_trace(Traced())),
        "compiled": own(code.compiled("compiled")),
    }


RACE = Race(
    threads=threads,
    schedule=OWN_TRACER.schedule,
    warm=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes=OWN_TRACER.outcomes,
    upstream=OWN_TRACER.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
