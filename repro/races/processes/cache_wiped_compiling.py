"""The cache directory is deleted when the source of a kernel has been written: the C++ compiler finds no source.

Run it:  python -m repro.races.processes.cache_wiped_compiling

The source code of a kernel is a file of the cache, and so is the library that the compiler makes of it. With the
directory deleted between the two, the compiler is asked for something that is not there.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"compiler": own(code.compiled("compiler")), "janitor": foreign(cache_directory.wipe())}


RACE = Race(
    threads=threads,
    schedule="compiler:cache.compile#1>janitor",
    cache="empty",
    workload={"head_dim": 16},
    outcomes={
        "error": (Grade.REQUIRED, "the compiler was asked to compile a file that had been deleted"),
        "ok": (Grade.ACCEPTABLE, "what was deleted is made again, or not needed"),
    },
    upstream=(
        "https://github.com/intel/torch-xpu-ops/issues/4936",
        "https://github.com/pytorch/torchdynamo/issues/1185",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
