"""Does a call take longer with more blocks to visit?

The time of a block-sparse call grows with the blocks that its mask visits, that of a dense one does not. Times are of
the device, of the same call with two masks, in one run.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.outcome import Finding, Sight

# With fewer blocks more than this, what a call takes whatever its mask is could hide the difference.
LEAST = 3.0
# What each block more adds to the time, as a share of what the first took: 0.64 was seen, of dense calls nothing.
SPARSE, DENSE = 0.4, 0.15


@dataclass(frozen=True)
class Timed:
    """A call that visits ``visited`` of all blocks (0 to 1) and takes ``ms`` milliseconds of the device's time."""

    visited: float
    ms: float


def judge(few: Timed, many: Timed) -> Finding:
    """``fail`` if the time does not grow from the mask that visits ``few`` blocks to the one that visits ``many``.

    ``blind`` if the masks differ by less than three times the blocks, or the answer is neither.
    """
    blocks, time = many.visited / few.visited, many.ms / few.ms
    data = {"blocks": blocks, "time": time}
    said = f"{blocks:.1f} times the blocks take {time:.1f} times as long"
    if blocks < LEAST:
        return Finding("scaling", Sight.BLIND, f"{said}: too few more to tell; compare masks further apart", data)
    data["share"] = share = (time - 1) / (blocks - 1)
    if share >= SPARSE:
        return Finding("scaling", Sight.PASS, f"block-sparse: {said}", data)
    if share <= DENSE:
        return Finding("scaling", Sight.FAIL, f"dense: {said}", data)
    return Finding("scaling", Sight.BLIND, f"{said}: neither one nor the other", data)
