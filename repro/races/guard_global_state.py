"""A model is loaded in one thread, in bfloat16, and attention that was warm in another compiles once more.

Run it:  python -m repro.races.guard_global_state

Loaders set the default dtype while they build a model, and it belongs to the process. Compiled code is used under
the settings of its compile only: a call that falls into the window compiles for the loader's dtype, though its own
tensors have one of their own. Once for each setting, and going back costs nothing; but each counts against the
recompile limit of eight, and no warm-up saw it coming. Autocast, inference mode, deterministic algorithms and the
number of threads are settings like it. Load before you serve, in a process of its own, or under the lock that is
around attention.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from repro.interleave import point
from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """What loaders of models do, each with a function of its own."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def load() -> None:
    with default_dtype(torch.bfloat16):
        torch.nn.Linear(16, 16)
        point("loading")


def threads(code: UserCode) -> dict[str, Thread]:
    return {"loader": own(code.guarded(load)), "compiled": own(code.compiled("compiled"))}


RACE = Race(
    threads=threads,
    schedule="loader:loading#1>compiled",
    warm=True,
    graphs=0,
    outcomes={
        "wasteful": (Grade.REQUIRED, "a call that was warm compiled again, for a setting that it does not use"),
        "ok": (Grade.ACCEPTABLE, "the default dtype is the loader's own, or compiled code does not depend on it"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/111569",
        "https://github.com/pytorch/pytorch/issues/114674",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
