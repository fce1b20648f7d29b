"""Each graph in the cache is cut short, as by a full disk or a power failure: it counts as not found.

Run it:  python -m repro.races.processes.cache_cut_graph

Half a pickle cannot be read; that is said in the log, and the graph is compiled anew. This race is a guard.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    cut = cache_directory.cut(*cache_directory.graphs(), keep=0.5)
    return {"failure": foreign(cut), "reader": own(code.compiled("reader"))}


RACE = Race(
    threads=threads,
    schedule="-",
    cache="warm",
    workload={"head_dim": 16},
    outcomes={
        "ok": (Grade.ACCEPTABLE, "what cannot be read is compiled anew"),
    },
    upstream=("https://github.com/pytorch/pytorch/pull/172144",),
)

if __name__ == "__main__":
    run_alone(__file__)
