"""A compiled call runs dense, without a word, while another thread has set a stance for its own calls.

Run it:  python -m repro.races.stance_leak

``torch.compiler.set_stance("force_eager")`` reads like a block around one's own code, say around a debugging run.
The stance is the whole process's: a warm compiled call in any other thread is bypassed for as long as the block
lasts. Here the other thread is the user's and a lock around both helps; against a library that sets a stance and
takes no lock no present fix does.
"""

import torch

from repro.interleave import point
from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def uncompiled_for_a_while() -> None:
    with torch.compiler.set_stance("force_eager"):
        point("in-stance")


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "debugging": own(code.guarded(uncompiled_for_a_while)),
        "compiled": own(code.compiled("compiled")),
    }


RACE = Race(
    threads=threads,
    schedule="debugging:in-stance#1>compiled",
    warm=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (Grade.REQUIRED, "the compiled function was bypassed by the other thread's stance"),
        "ok": (Grade.ACCEPTABLE, "a stance belongs to the thread that sets it"),
    },
    upstream=("https://github.com/pytorch/pytorch/pull/196637",),
)

if __name__ == "__main__":
    run_alone(__file__)
