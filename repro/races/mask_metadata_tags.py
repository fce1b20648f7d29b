"""A compile fails for no reason of its own, because another thread was building a block mask at that moment.

Run it:  python -m repro.races.mask_metadata_tags

From 2.13 ``create_block_mask`` notes "fall back to eager" in the metadata that FX traces give to their nodes, for its
own sort. That metadata is the whole process's. A compile in another thread that is just putting flex_attention into
its graph copies the note, and then looks for an eager kernel of flex_attention: there is none, and the user is told
``'Subgraph' object has no attribute 'dtype'``. An operator that has one becomes slow instead, without a word.
"""

from repro.races import Grade, Race, run_alone
from repro.races.mask_metadata_error import RACE as ERROR
from repro.races.mask_metadata_error import threads

RACE = Race(
    threads=threads,
    schedule="compiled:flex.trace#1>masks, masks:mask.sort#1>compiled, compiled:flex.traced#1>masks",
    seams=("mask.sort", "flex.trace", "flex.traced"),
    outcomes={
        "error": (Grade.REQUIRED, "the compiler obeyed a note that was meant for another thread's sort"),
        "ok": (Grade.ACCEPTABLE, "building a mask leaves the metadata of traces alone, or it belongs to a thread"),
        "dense": (Grade.INTERESTING, "flex_attention itself fell back to its eager form"),
    },
    upstream=ERROR.upstream,
)

if __name__ == "__main__":
    run_alone(__file__)
