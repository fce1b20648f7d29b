"""With the error switched off, a call beside ``symbolic_trace`` computes all scores and then fails on a module.

Run it:  python -m repro.races.dense_then_nameerror

``symbolic_trace`` also patches ``nn.Module`` for the whole process. The bypassed call of dense_fallback first
allocates the scores and then, when it calls a module of its own, ends in the other thread's tracer: a NameError
about a submodule that is not installed.
"""

from repro.races import Grade, Race, run_alone
from repro.races.dense_fallback import switch_the_error_off
from repro.races.tracing_bystander import RACE as BYSTANDER
from repro.races.tracing_bystander import threads

RACE = Race(
    threads=threads,
    schedule=BYSTANDER.schedule,
    setup=switch_the_error_off,
    warm=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (Grade.REQUIRED, "memory for all scores was taken before the call failed"),
        "error": (Grade.INTERESTING, "the call failed before it took memory for the scores"),
        "ok": (Grade.ACCEPTABLE, "the mark belongs to the thread that traces"),
    },
    upstream=(*BYSTANDER.upstream, "https://github.com/pytorch/pytorch/pull/187589"),
)

if __name__ == "__main__":
    run_alone(__file__)
