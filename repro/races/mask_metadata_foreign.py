"""Building a block mask fails while a thread that is not the user's, and takes no lock, compiles an attention.

Run it:  python -m repro.races.mask_metadata_foreign

The same as mask_metadata_error, but the compile is a library's. No present fix holds against it: no lock of the
user's holds the library back, and a warm-up only warms the user's own shapes. What is left is to build all masks
before the library's threads start.
"""

from collections.abc import Callable

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from repro.races import Race, Thread, foreign, run_alone
from repro.races.mask_metadata_error import RACE as OWN_COMPILE
from repro.races.mask_metadata_error import build_mask
from repro.user_code import UserCode
from repro.workloads import Workload


def library(device: str) -> Callable[[], None]:
    """A first call of an attention that is not the user's; its mask was built in good time."""
    workload = Workload(head_dim=64, device=device)
    query, key, value = workload.tensors()
    mask = create_block_mask(workload.mask_mod(), None, None, workload.queries, workload.keys, device=workload.device)

    def attend() -> None:
        with torch.no_grad():
            torch.compile(flex_attention)(query, key, value, block_mask=mask)

    return attend


def threads(code: UserCode) -> dict[str, Thread]:
    return {"library": foreign(library(code.workloads[0].device)), "masks": build_mask(code)}


RACE = Race(
    threads=threads,
    schedule="library:fx.trace#1>masks, masks:mask.sort#1>library",
    seams=OWN_COMPILE.seams,
    outcomes=OWN_COMPILE.outcomes,
    upstream=OWN_COMPILE.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
