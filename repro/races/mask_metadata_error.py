"""Building a block mask fails with ``KeyError: 'custom'`` while another thread compiles.

Run it:  python -m repro.races.mask_metadata_error

From 2.13 ``create_block_mask`` notes something about its sort in the metadata that FX traces give to their nodes, and
takes the note back. That metadata is one dict of the process. A compile in another thread saves it, changes it and
puts its own copy back, so that the note is gone when the mask's thread wants to take it back.
"""

from dataclasses import replace

from repro.races import Grade, Race, Thread, own, run_alone
from repro.user_code import UserCode


def build_mask(code: UserCode) -> Thread:
    """A thread of the user's that builds a block mask and calls nothing."""
    workload = replace(code.workloads[0], queries=512, keys=512)
    mask_mod = workload.mask_mod()
    return own(code.guarded(lambda: code.build_mask(mask_mod, None, None, 512, 512, device=workload.device)))


def threads(code: UserCode) -> dict[str, Thread]:
    return {"compiled": own(code.compiled("compiled")), "masks": build_mask(code)}


RACE = Race(
    threads=threads,
    schedule="compiled:fx.trace#1>masks, masks:mask.sort#1>compiled",
    seams=("mask.sort",),
    outcomes={
        "error": (Grade.REQUIRED, "the note was taken away by the compile that ended meanwhile"),
        "ok": (Grade.ACCEPTABLE, "building a mask leaves the metadata of traces alone, or it belongs to a thread"),
        "poisoned": (Grade.INTERESTING, "the mask's note stays behind"),
    },
    upstream=("https://github.com/pytorch/pytorch/pull/184917",),
)

if __name__ == "__main__":
    run_alone(__file__)
