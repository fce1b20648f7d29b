"""Threads that come while the first call compiles wait for it, and then compile the same thing once more each.

Run it:  python -m repro.races.waiting_recompiles

A call looks for compiled code, finds none, and waits for the compile lock. When it has the lock it does not look
again. So N threads that start together compile N times, one after another; each counts against the recompile limit
of eight, and from nine threads on the last ones run dense. Call once before the threads start, or take a lock that
is around the look-up as well.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {name: own(code.compiled(name)) for name in ("first", "waiting")}


RACE = Race(
    threads=threads,
    schedule="first:dynamo.compile#1>waiting",
    graphs=1,
    outcomes={
        "wasteful": (Grade.REQUIRED, "the thread that waited compiled the same thing once more"),
        "ok": (Grade.ACCEPTABLE, "whoever waited for a compile looks for it again"),
    },
    upstream=("https://github.com/pytorch/pytorch/issues/168042",),
)

if __name__ == "__main__":
    run_alone(__file__)
