"""The two training steps of first_backward where the fix is around the whole step, its backward too.

Run it:  python -m repro.races.first_backward_step

Without a fix they stop for good all the same. One lock around the step holds, and costs what it says: forward and
backward of all threads run one after another. With activation checkpointing not even that: see recompute_locked_out.
"""

from repro.races import Race, Thread, own, run_alone
from repro.races.cuda.first_backward import RACE as FIRST_BACKWARD
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {name: own(code.guarded(code.compiled(name, index))) for index, name in enumerate(("one", "two"))}


RACE = Race(
    threads=threads,
    schedule=FIRST_BACKWARD.schedule,
    trains=True,
    seams=FIRST_BACKWARD.seams,
    workload=FIRST_BACKWARD.workload,
    key_lengths=FIRST_BACKWARD.key_lengths,
    outcomes=FIRST_BACKWARD.outcomes,
    upstream=FIRST_BACKWARD.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
