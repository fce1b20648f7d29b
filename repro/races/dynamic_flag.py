"""Two first calls at once, compiled with ``dynamic=True``, leave every later compile in the process dynamic.

Run it:  python -m repro.races.dynamic_flag

Up to 2.11 ``dynamic=`` is a process-wide setting that a call changes before it waits for the compile lock and puts
back when it is through. Whoever comes in the middle of another's finds it changed, and puts that back in the end:
"sizes are static unless they change" is switched off for good, for compiles that never asked for it. From 2.12
settings belong to a context, and this race is a guard.
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode, mask_then


def threads(code: UserCode) -> dict[str, Thread]:
    attention = code.guarded(mask_then(torch.compile(flex_attention, dynamic=True), code.build_mask))
    return {name: own(code.compiled(name, index, through=attention)) for index, name in enumerate(("one", "two"))}


RACE = Race(
    threads=threads,
    schedule="one:backend.call#1>two",
    outcomes={
        "poisoned": (Grade.REQUIRED, "the setting of a call that is over stayed behind for the whole process"),
        "ok": (Grade.ACCEPTABLE, "the setting belongs to the context of the call"),
    },
    upstream=(
        "https://github.com/pytorch/pytorch/issues/118260",
        "https://github.com/pytorch/pytorch/pull/173568",
    ),
)

if __name__ == "__main__":
    run_alone(__file__)
