"""The cache directory is deleted when a kernel is compiled but not yet loaded: the compile fails.

Run it:  python -m repro.races.processes.cache_wiped_loading

The library is loaded from where the compiler put it. It was there a moment ago, so nobody asks again.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"compiler": own(code.compiled("compiler")), "janitor": foreign(cache_directory.wipe())}


RACE = Race(
    threads=threads,
    schedule="compiler:cache.library#1>janitor",
    cache="kernels",
    workload={"head_dim": 16},
    outcomes={
        "error": (Grade.REQUIRED, "the library was deleted before it was loaded"),
        "ok": (Grade.ACCEPTABLE, "what was deleted is made again, or not needed"),
    },
    upstream=(
        "https://github.com/intel/torch-xpu-ops/issues/4936",
        "https://github.com/pytorch/pytorch/pull/196189",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
