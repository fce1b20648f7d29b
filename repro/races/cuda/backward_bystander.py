"""A compiled call fails while autograd's thread compiles the backward of another thread, on CUDA.

Run it:  python -m repro.races.backward_bystander

The first backward of a new shape compiles after its forward, in a thread that nobody started. It traces with FX, and
that is marked for the whole process: a compiled call of anybody else is refused, be it warm or not. No lock around
mask and forward covers it; a warm-up that goes backward too does.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {name: own(code.compiled(name, index)) for index, name in enumerate(("trainer", "compiled"))}


RACE = Race(
    threads=threads,
    schedule="trainer:backward.trace#1>compiled",
    trains=True,
    seams=("backward.trace",),
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "error": (Grade.REQUIRED, "a call takes the backward's trace for its own and is refused"),
        "ok": (Grade.ACCEPTABLE, "the mark belongs to the thread that traces"),
        "hang": (Grade.INTERESTING, "the two wait for each other"),
    },
    upstream=("https://github.com/pytorch/pytorch/issues/126024",),
)

if __name__ == "__main__":
    run_alone(__file__)
