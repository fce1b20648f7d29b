"""Two threads set a stance for a while; both are done, and every compiled call in the process runs dense for good.

Run it:  python -m repro.races.stance_left

``set_stance`` remembers the stance that it found and puts it back. Whoever begins in the middle of another's finds
``force_eager`` and puts that back, after the other has gone. Nothing is raised and nothing is warned of: the compiled
functions are still there, and nobody runs them.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.stance_leak import RACE as LEAK
from repro.races.stance_leak import uncompiled_for_a_while
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {name: own(code.guarded(uncompiled_for_a_while)) for name in ("one", "two")}


RACE = Race(
    threads=threads,
    schedule="one:in-stance#1>two, two:in-stance#1>one",
    warm=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (Grade.REQUIRED, "a later, lone compiled call is bypassed by a stance that nobody holds"),
        "poisoned": (Grade.INTERESTING, "a stance stayed behind, but the lone call was block-sparse"),
        "ok": (Grade.ACCEPTABLE, "a stance belongs to the thread that sets it"),
    },
    upstream=LEAK.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
