"""A temporary file of a writer that is not through lies among the graphs of the cache: it is not read.

Run it:  python -m repro.races.processes.cache_temporary_file

Whoever looks for a graph reads all files of a folder. From 2.13 it leaves out those whose name begins with a dot; a
release before that reads half a pickle, says so in the log, and goes on to the next. This race is a guard.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"writer": foreign(cache_directory.plant_temporary()), "reader": own(code.compiled("reader"))}


RACE = Race(
    threads=threads,
    schedule="-",
    cache="warm",
    workload={"head_dim": 16},
    outcomes={
        "ok": (Grade.ACCEPTABLE, "a file that is not whole is left out"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/pull/172144",
        "https://github.com/vllm-project/vllm/issues/31199",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
