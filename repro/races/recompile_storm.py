"""Lengths that differ on every call, compiled with static shapes: from the ninth length on attention runs dense.

Run it:  python -m repro.races.recompile_storm

By itself torch compiles twice, the second time for any length. Who wants the fastest code for each length says
``dynamic=False``, or switches off ``automatic_dynamic_shapes`` for the program as here, and then each length is a
compile: a stall first, and after eight of them, in whichever threads, no compile and all scores. No order of the
threads is needed. Compile with ``dynamic=True``, or pad to a few lengths.
"""

from typing import Any

import torch
import torch._dynamo

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode

# The mask is causal: no query sees the keys beyond, so that the output is the same for each of these lengths.
QUERIES = 1024
KEYS = [QUERIES + 128 * number for number in range(10)]


def static_shapes() -> None:
    torch._dynamo.config.automatic_dynamic_shapes = False


def threads(code: UserCode) -> dict[str, Thread]:
    def requests(name: str, lengths: list[int]) -> Thread:
        left = iter(lengths)

        def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask_mod: Any) -> torch.Tensor:
            length = next(left)
            return code.attention(query, key[:, :, :length], value[:, :, :length], mask_mod)

        def body() -> None:
            for _ in lengths:
                code.compiled(name, through=attention)()

        return own(body)

    return {"one": requests("one", KEYS[::2]), "two": requests("two", KEYS[1::2])}


RACE = Race(
    threads=threads,
    schedule="-",
    setup=static_shapes,
    workload={"queries": QUERIES, "keys": KEYS[-1]},
    graphs=2,
    outcomes={
        "dense": (Grade.REQUIRED, "every length was a compile, and the ninth was refused without a word"),
        "wasteful": (Grade.INTERESTING, "every length was a compile, and none was refused"),
        "ok": (Grade.ACCEPTABLE, "a few compiles are enough for all lengths"),
        "error": (Grade.INTERESTING, "the ninth compile was refused with an error"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/134560",
        "https://github.com/pytorch/pytorch/issues/136196",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
