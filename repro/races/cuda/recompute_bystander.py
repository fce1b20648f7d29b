"""A checkpointed training step fails in its backward while another of the user's threads is inside an FX trace.

Run it:  python -m repro.races.recompute_bystander

Activation checkpointing calls the compiled attention once more during backward, on CUDA in autograd's thread. Warm
or not, that call asks whether somebody traces, and is refused for the trace of a third thread. It is
tracing_bystander at a place where nobody wrote a call.
"""

from torch.fx import symbolic_trace
from torch.utils.checkpoint import checkpoint

from repro.races import Race, Thread, own, run_alone
from repro.races.tracing_bystander import RACE as BYSTANDER
from repro.races.tracing_bystander import Traced
from repro.user_code import Attention, UserCode


def checkpointed(attention: Attention) -> Attention:
    return lambda *inputs: checkpoint(attention, *inputs, use_reentrant=False)


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "trainer": own(code.compiled("trainer", through=checkpointed(code.attention))),
        "tracer": own(code.guarded(lambda: symbolic_trace(Traced()))),
    }


RACE = Race(
    threads=threads,
    schedule="trainer:backward#1>tracer, tracer:in-forward#1>trainer",
    warm=True,
    trains=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes=BYSTANDER.outcomes,
    upstream=BYSTANDER.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
