"""A worker thread does not see the recompile limit that the program raised, and runs dense from its ninth mask on.

Run it:  python -m repro.races.lost_config

Since 2.12 settings are kept in context variables, and a new ``threading.Thread`` starts with none of them:
``recompile_limit`` is 8 there again. A worker that needs more compiles than that is bypassed, without an error. One
thread is enough, so no lock helps, and no present fix does; ``contextvars.copy_context().run`` around the thread's
function would.
"""

from collections.abc import Callable
from typing import Any

import torch._dynamo

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode

LIMIT = 64
MASKS = 9


def raise_the_limit() -> None:
    torch._dynamo.config.recompile_limit = LIMIT


def written_anew() -> Callable[..., Any]:
    """A causal mask with code of its own, as if the program had written it: flex_attention compiles for each."""
    mask_mod: Callable[..., Any] = eval("lambda batch, head, query, key: key <= query")
    return mask_mod


def threads(code: UserCode) -> dict[str, Thread]:
    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask_mod: Any) -> torch.Tensor:
        return code.attention(query, key, value, written_anew())

    def worker() -> None:
        for _ in range(MASKS):
            code.compiled("worker", through=attention)()

    return {"worker": own(worker)}


RACE = Race(
    threads=threads,
    schedule="-",
    setup=raise_the_limit,
    context="empty",
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "dense": (Grade.REQUIRED, "the limit was back at 8, and the ninth compile was refused without a word"),
        "ok": (Grade.ACCEPTABLE, "a new thread sees the settings of the program"),
    },
    upstream=("https://github.com/pytorch/pytorch/issues/186537",),
)

if __name__ == "__main__":
    run_alone(__file__)
