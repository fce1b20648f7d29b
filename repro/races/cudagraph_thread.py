"""Attention compiled with ``mode="reduce-overhead"`` fails in any thread but the one that imported torch.

Run it:  python -m repro run cudagraph-thread --device cuda

What keeps CUDA graphs of a device is thread-local, and is set up for the importing thread and autograd's. A drafter's
thread of its own has none: an assertion, without a word of threads. One thread is enough, so no lock helps.
"""

import torch
from torch.nn.attention.flex_attention import flex_attention

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode, mask_then

# The first call of a graph warms up, the second records, the third replays.
CALLS = 3


def threads(code: UserCode) -> dict[str, Thread]:
    graphed = code.guarded(mask_then(torch.compile(flex_attention, mode="reduce-overhead")))

    def drafter() -> None:
        for _ in range(CALLS):
            # The next replay writes over what this one returned.
            code.compiled("drafter", through=lambda *inputs: graphed(*inputs).clone())()

    return {"drafter": own(drafter)}


RACE = Race(
    threads=threads,
    schedule="-",
    cuda_only=True,
    workload={"queries": 1024, "keys": 1024},
    outcomes={
        "error": (Grade.REQUIRED, "the thread has no keeper of CUDA graphs"),
        "wrong": (Grade.INTERESTING, "it replayed what another thread recorded"),
        "ok": (Grade.ACCEPTABLE, "every thread has a keeper of its own"),
    },
    upstream=("https://github.com/pytorch/pytorch/issues/123177",),
)

if __name__ == "__main__":
    run_alone(__file__)
