"""Lengths that differ on every call, compiled with static shapes: every length is a compile.

Run it:  python -m repro.races.recompile_storm

By itself torch compiles a function twice, the second time for any length. Who wants the fastest code for each length
says ``dynamic=False``, or switches ``automatic_dynamic_shapes`` off for the program, as here. Then every new length,
in whichever thread it comes first, is a stall for all that wait for the compile lock, opens the window of every race
of a first call again, and counts against the recompile limit of eight, behind which calls are dense
(recompile_limit). No order of the threads is needed, and no lock helps; a warm-up does for the lengths that it knew.
Compile with ``dynamic=True``, or pad to a few lengths.
"""

from typing import Any

import torch
import torch._dynamo

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode

# The mask is causal: no query sees the keys beyond, so the output is the same for each of these lengths. None of them
# is the number of queries, which torch would take for one size with it, nor all keys, which lie in memory otherwise.
QUERIES = 1024
KEYS = [QUERIES + 128 * number for number in range(1, 6)]


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

    return {"one": requests("one", KEYS[0:4:2]), "two": requests("two", KEYS[1:4:2])}


RACE = Race(
    threads=threads,
    schedule="-",
    setup=static_shapes,
    workload={"queries": QUERIES, "keys": KEYS[-1]},
    # One for the first length, one for all others: what torch does where nobody tells it not to.
    graphs=2,
    outcomes={
        "wasteful": (Grade.REQUIRED, "every length was a compile"),
        "ok": (Grade.ACCEPTABLE, "two compiles are enough for all lengths"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/134560",
        "https://github.com/pytorch/pytorch/issues/136196",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
