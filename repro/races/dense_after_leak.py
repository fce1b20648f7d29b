"""With the error switched off, one leaked tracing mark makes every later compiled call run dense, alone or not.

Run it:  python -m repro.races.dense_after_leak

The overlap of tracing_flag_leak leaves the mark set with nobody tracing. With ``error_on_nested_fx_trace = False``
nothing ever fails; the process goes on, slow and fat, until it ends.
"""

from repro.races import Grade, Race, run_alone
from repro.races.dense_fallback import switch_the_error_off
from repro.races.tracing_flag_leak import RACE as LEAK
from repro.races.tracing_flag_leak import threads

RACE = Race(
    threads=threads,
    schedule=LEAK.schedule,
    setup=switch_the_error_off,
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (Grade.REQUIRED, "a later, lone compiled call bypasses its kernel"),
        "ok": (Grade.ACCEPTABLE, "the mark belongs to the thread that traces"),
    },
    upstream=LEAK.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
