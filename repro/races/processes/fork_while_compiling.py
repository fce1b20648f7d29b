"""A process is forked while a thread of its parent compiles: its own first compile never ends.

Run it:  python -m repro.races.processes.fork_while_compiling

The child has a copy of the compile lock as it was at the fork: held by a thread that the child does not have, so that
nobody will ever free it. Spawned processes start without it, and so do forked ones whose parent starts no thread.
"""

import threading
from typing import Any

import torch

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def start_a_compile_that_lasts() -> None:
    """Returns when a thread is in the middle of a compile; it stays there."""
    inside = threading.Event()

    def backend(graph: Any, inputs: Any) -> Any:
        inside.set()
        threading.Event().wait()

    compiled = torch.compile(lambda tensor: tensor + 1, backend=backend)
    threading.Thread(target=compiled, args=(torch.zeros(1),), daemon=True).start()
    inside.wait()


def threads(code: UserCode) -> dict[str, Thread]:
    start_a_compile_that_lasts()
    return {"child": own(code.compiled("child"))}


RACE = Race(
    threads=threads,
    schedule="-",
    cache="warm",
    workload={"head_dim": 16},
    outcomes={
        "hang": (Grade.REQUIRED, "the child waits for a lock whose holder was not forked"),
        "ok": (Grade.ACCEPTABLE, "a forked child starts with a free lock"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/148651",
        "https://github.com/pytorch/pytorch/issues/121197",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
