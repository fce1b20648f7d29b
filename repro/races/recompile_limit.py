"""The ninth mask in a program runs dense, with no more than a warning: the recompile limit is eight.

Run it:  python -m repro.races.recompile_limit

Each mask function with code of its own is a compile of flex_attention, and Dynamo allows eight of one piece of code.
What comes then runs as it is written: all scores, no error. The count belongs to flex_attention, not to a thread or
to a ``torch.compile``: here each of two threads stays well below the limit. This is lost_config without its lost
setting. Raising the limit helps as long as it is seen where the compile happens.
"""

from typing import Any

import torch

from repro.races import Grade, Race, Thread, own, run_alone
from repro.races.lost_config import written_anew
from repro.user_code import UserCode

EACH = 5


def threads(code: UserCode) -> dict[str, Thread]:
    def new_masks(name: str) -> Thread:
        def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask_mod: Any) -> torch.Tensor:
            return code.attention(query, key, value, written_anew())

        def body() -> None:
            for _ in range(EACH):
                code.compiled(name, through=attention)()

        return own(body)

    return {name: new_masks(name) for name in ("one", "two")}


RACE = Race(
    threads=threads,
    schedule="-",
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (Grade.REQUIRED, "the ninth compile of flex_attention was refused, with no more than a warning"),
        "ok": (Grade.ACCEPTABLE, "every mask is compiled, or the limit is counted where it is not shared"),
        "error": (Grade.INTERESTING, "the ninth compile was refused with an error"),
    },
    upstream=(
        "https://github.com/vllm-project/vllm/issues/27178",
        "https://github.com/pytorch/pytorch/issues/166153",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
