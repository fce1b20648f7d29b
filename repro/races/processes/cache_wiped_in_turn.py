"""The cache directory is deleted by the program itself, while another of its processes compiles: the compile fails.

Run it:  python -m repro.races.processes.cache_wiped_in_turn

It is cache_wiped_writing with a deletion that is the user's own code, so that a fix can be around it too: this is how
to delete a cache under a running program, and it needs a lock that both sides take.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "compiler": own(code.compiled("compiler")),
        "janitor": own(code.guarded(cache_directory.wipe())),
    }


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
