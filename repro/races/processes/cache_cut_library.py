"""The library of a kernel is empty, as a killed linker leaves it: every process fails until somebody deletes it.

Run it:  python -m repro.races.processes.cache_cut_library

The linker writes the library under its final name: an empty file first, and all of it at the end. Where it is killed
in between, say with all of a job that ran out of memory, whoever comes next finds that the file is there and asks for
nothing more: it is not compiled again, and cannot be loaded. A lock does not help, since nobody holds one.
"""

from repro import cache_directory
from repro.races import Grade, Race, Thread, foreign, own, run_alone
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"failure": foreign(cache_directory.cut("*/*.so", keep=0)), "reader": own(code.compiled("reader"))}


RACE = Race(
    threads=threads,
    schedule="-",
    cache="warm",
    workload={"head_dim": 16},
    outcomes={
        "error": (Grade.REQUIRED, "the library is not whole, and is taken for compiled"),
        "ok": (Grade.ACCEPTABLE, "what is not whole is compiled anew"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/102539",
        "https://github.com/pytorch/pytorch/issues/180841",
        "https://github.com/pytorch/torchdynamo/issues/1347",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
