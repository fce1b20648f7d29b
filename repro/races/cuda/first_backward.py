"""Two training steps at once, each with its first compile: the process stops for good, on CUDA.

Run it:  python -m repro.races.first_backward

The backward of a compiled function is compiled when it is first asked for, on CUDA in the one thread that autograd
has for the device. That thread wants the compile lock. Whoever has it compiles flex_attention forward for training,
which runs autograd on the score's gradient, and so waits for that same thread. Neither can go on. A lock around mask
and forward does not help, for the backward is outside: see first_backward_step.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {name: own(code.compiled(name, index)) for index, name in enumerate(("one", "two"))}


RACE = Race(
    threads=threads,
    schedule="one:backward.compile#1>two",
    trains=True,
    seams=("backward.compile",),
    workload={"queries": 1024},
    # A length of its own for each, so that each compiles its forward.
    key_lengths=(1152, 1408),
    outcomes={
        "hang": (Grade.REQUIRED, "autograd's thread waits for the compile lock, whose holder waits for it"),
        "ok": (Grade.ACCEPTABLE, "a compile does not wait for autograd's thread while it holds the lock"),
        "error": (Grade.INTERESTING, "the second was refused before it came to wait"),
    },
    upstream=("https://github.com/pytorch/pytorch/pull/140626",),
)

if __name__ == "__main__":
    run_alone(__file__)
