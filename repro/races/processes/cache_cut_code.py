"""The Python code of a graph is cut short in the cache: every process fails until it is deleted.

Run it:  python -m repro.races.processes.cache_cut_code

The code of a graph lies among its kernels and is named by its hash. A file of that name is not written again,
whatever is in it.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"failure": foreign(cache_directory.cut("*/*.py", keep=0.5)), "reader": own(code.compiled("reader"))}


RACE = Race(
    threads=threads,
    schedule="-",
    cache="warm",
    workload={"head_dim": 16},
    outcomes={
        "error": (Grade.REQUIRED, "the code is not whole, and is taken for written"),
        "ok": (Grade.ACCEPTABLE, "what is not whole is written anew"),
    },
    upstream=("https://github.com/pytorch/pytorch/issues/102539",),
)

if __name__ == "__main__":
    run_alone(__file__)
