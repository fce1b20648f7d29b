"""The cache directory is warm, but nobody may write to it: even a process that finds all it needs there fails.

Run it:  python -m repro.races.processes.cache_read_only

Before a kernel is loaded, the lock file of its compile is opened, and to lock a file torch opens it for writing. So a
cache that is baked into an image, or belongs to somebody else, is an error and no hit. As root, for whom modes mean
nothing, the reader gives that privilege up first.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "administrator": foreign(cache_directory.make_read_only()),
        "reader": own(cache_directory.without_privileges(code.compiled("reader"))),
    }


RACE = Race(
    threads=threads,
    schedule="-",
    cache="warm",
    workload={"head_dim": 16},
    outcomes={
        "ok": (Grade.ACCEPTABLE, "what is there can be read"),
        "error": (Grade.REQUIRED, "the lock file of a kernel cannot be opened"),
    },
    upstream=("https://github.com/pytorch/pytorch/pull/91607",),
)

if __name__ == "__main__":
    run_alone(__file__)
