"""The cache directory is deleted while a process loads from it what it needs: it compiles anew.

Run it:  python -m repro.races.processes.cache_wiped_warm

A graph that was found loads its code from the directory. Where that fails the graph counts as not found, so a warm
start stands a deletion that a cold one does not, at this step. This race is a guard.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"compiler": own(code.compiled("compiler")), "janitor": foreign(cache_directory.wipe())}


RACE = Race(
    threads=threads,
    schedule="compiler:cache.load#1>janitor",
    cache="warm",
    workload={"head_dim": 16},
    outcomes={
        "error": (Grade.INTERESTING, "what was found could not be loaded, and that was an error"),
        "ok": (Grade.ACCEPTABLE, "what was deleted is made again, or not needed"),
    },
    upstream=("https://github.com/intel/torch-xpu-ops/issues/4936",),
)

if __name__ == "__main__":
    run_alone(__file__)
