"""A process is killed while it writes to the cache: the next one compiles as if nothing were there.

Run it:  python -m repro.races.processes.writer_killed

The temporary file that it leaves is nobody's, and its locks are free. This race is a guard, at this step; at all of
them: `python -m repro explore writer-killed --strategy bounded`.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, doomed, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "writer": doomed(code.compiled("writer")),
        "killer": foreign(cache_directory.kill("writer")),
        "next": own(code.compiled("next")),
    }


RACE = Race(
    threads=threads,
    schedule="writer:cache.rename#1>killer",
    cache="kernels",
    workload={"head_dim": 16},
    outcomes={
        "ok": (Grade.ACCEPTABLE, "what a killed process leaves behind is in nobody's way"),
    },
    upstream=("https://github.com/pytorch/pytorch/pull/172144",),
)

if __name__ == "__main__":
    run_alone(__file__)
