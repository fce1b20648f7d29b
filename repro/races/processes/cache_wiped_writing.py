"""The cache directory is deleted between a write to a temporary file and the renaming: the compile fails.

Run it:  python -m repro.races.processes.cache_wiped_writing

Torch writes each file of the cache under a temporary name first. Somebody cleans up, or goes back to an older release
and empties the cache, while a process compiles: the temporary file is gone, and that it cannot be renamed is an error
that nobody catches. The same at the graph that is written last does no harm: there the error is caught.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"compiler": own(code.compiled("compiler")), "janitor": foreign(cache_directory.wipe())}


RACE = Race(
    threads=threads,
    schedule="compiler:cache.rename#1>janitor",
    cache="kernels",
    workload={"head_dim": 16},
    outcomes={
        "error": (Grade.REQUIRED, "the temporary file was deleted before it had its name"),
        "ok": (Grade.ACCEPTABLE, "what was deleted is made again, or not needed"),
    },
    upstream=(
        "https://github.com/intel/torch-xpu-ops/issues/4936",
        "https://github.com/pytorch/pytorch/pull/196189",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
