"""Three processes start on one empty cache directory and meet at their first write: all of them must be right.

Run it:  python -m repro.races.processes.cold_start

Each writes the same files under temporary names of its own, and a lock file for each kernel lets one process compile
it. The others find its library. This race is a guard.
"""

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {name: own(code.compiled(name)) for name in ("first", "second", "third")}


RACE = Race(
    threads=threads,
    schedule="first:cache.write#1>second, second:cache.write#1>third",
    cache="empty",
    workload={"head_dim": 16},
    outcomes={
        "ok": (Grade.ACCEPTABLE, "each is right, and each kernel is compiled once"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/pull/172144",
        "https://github.com/pytorch/torchdynamo/issues/1347",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
