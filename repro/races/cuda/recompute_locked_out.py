"""A lock around the whole training step stops it for good where activations are checkpointed, on CUDA.

Run it:  python -m repro run recompute-locked-out --fix lock --device cuda

The step holds the lock and waits for its backward. The backward calls attention once more, in autograd's thread, and
attention takes the lock too: it is the same lock, but another thread, so that even a re-entrant one does not let it
in. Without a fix one thread alone has nothing to fail on; this race is one of the fix itself.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.cuda.recompute_bystander import checkpointed
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"trainer": own(code.guarded(code.compiled("trainer", through=checkpointed(code.attention))))}


RACE = Race(
    threads=threads,
    schedule="-",
    warm=True,
    trains=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes={"ok": (Grade.ACCEPTABLE, "nothing is locked"), "hang": (Grade.INTERESTING, "it waits for itself")},
)

if __name__ == "__main__":
    run_alone(__file__)
