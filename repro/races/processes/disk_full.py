"""The disk is full while a process compiles: that is an error, and the next process, on a disk with room, is right.

Run it:  python -m repro.races.processes.disk_full

A limit on the size of a file stands for the disk: source code still fits, the library of a kernel does not. The
linker fails, and what it has written by then must not stay under the name of the library. This race is a guard.
"""

import resource
from collections.abc import Callable

from repro.races import Grade, Race, Thread, doomed, own, run_alone
from repro.user_code import UserCode

# More than any source code of a small graph, less than its library.
ROOM = 100_000


def with_little_room(body: Callable[[], None]) -> Callable[[], None]:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, resource.RLIM_INFINITY))
        body()

    return limited


def threads(code: UserCode) -> dict[str, Thread]:
    return {
        "writer": doomed(with_little_room(code.compiled("writer"))),
        "next": own(code.compiled("next")),
    }


RACE = Race(
    threads=threads,
    schedule="-",
    cache="empty",
    workload={"head_dim": 16},
    outcomes={
        "ok": (Grade.ACCEPTABLE, "what did not fit is not there, and is compiled again"),
        "error": (Grade.INTERESTING, "what did not fit is taken for whole"),
    },
    upstream=("https://github.com/pytorch/pytorch/issues/102539",),
)

if __name__ == "__main__":
    run_alone(__file__)
