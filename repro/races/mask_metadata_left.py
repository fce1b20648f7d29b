"""Two threads that only build block masks, and compile nothing, leave the metadata of all later traces changed.

Run it:  python -m repro.races.mask_metadata_left

From 2.13 ``create_block_mask`` puts a note into metadata that the whole process shares, and at the end puts back
what it found. Whoever starts in the middle of another's finds the other's note and puts that back, after the other
has gone. From then on FX traces that keep metadata mark every node as one that the compiler should not fuse.
"""

from repro.races import Grade, Race, Thread, run_alone
from repro.races.mask_metadata_error import build_mask
from repro.user_code import UserCode


def threads(code: UserCode) -> dict[str, Thread]:
    return {"one": build_mask(code), "two": build_mask(code)}


RACE = Race(
    threads=threads,
    schedule="one:mask.sort#1>two, two:mask.sort#1>one",
    seams=("mask.sort",),
    outcomes={
        "poisoned": (Grade.REQUIRED, "the note of a mask that is long built stays in the metadata of traces"),
        "ok": (Grade.ACCEPTABLE, "building a mask leaves the metadata of traces alone, or it belongs to a thread"),
        "error": (Grade.INTERESTING, "a thread missed its note when it wanted to take it back"),
    },
    upstream=("https://github.com/pytorch/pytorch/pull/184917",),
)

if __name__ == "__main__":
    run_alone(__file__)
