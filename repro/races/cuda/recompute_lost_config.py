"""A checkpointed step runs dense in its backward: autograd's thread does not see the limit that the program raised.

Run it:  python -m repro.races.recompute_lost_config

lost_config at a place where no ``copy_context().run`` can be put: on CUDA the second forward of activation
checkpointing runs in autograd's thread, which never had the program's context variables. Its compile is the one too
many for the default limit. Up to 2.11 settings are the whole process's, and this race is a guard.
"""

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from repro.races import Race, Thread, own, run_alone
from repro.races.lost_config import MASKS, raise_the_limit, written_anew
from repro.races.lost_config import RACE as LOST_CONFIG
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask_mod: Any) -> torch.Tensor:
        return code.attention(query, key, value, written_anew())

    def step() -> None:
        inputs = code.inputs[0]
        with torch.no_grad():
            for _ in range(MASKS - 2):
                attention(inputs.query, inputs.key, inputs.value, None)
        # With use_reentrant the first forward is compiled without gradients, the second with them.
        code.compiled("trainer", through=lambda *args: checkpoint(attention, *args, use_reentrant=True))()

    return {"trainer": own(step)}


RACE = Race(
    threads=threads,
    schedule="-",
    setup=raise_the_limit,
    trains=True,
    workload=LOST_CONFIG.workload,
    outcomes=LOST_CONFIG.outcomes,
    upstream=LOST_CONFIG.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
