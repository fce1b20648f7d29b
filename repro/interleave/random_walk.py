"""Random walk: at each point, any thread that can go on, all equally likely.

States no floor: a bug behind many points of one thread gets exponentially rare. Cheap, and a good second opinion.

The choice at a point depends on the seed and on the point's address only, not on how many choices came before it. So
a new seam elsewhere does not reshuffle the rest of the walk, as it would with a stream of random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from repro.interleave.schedule import Step
from repro.interleave.scheduler import Strategy
from repro.interleave.search import Promise, seeds


@dataclass(frozen=True)
class Walk:
    """One walk: the same seed takes the same one."""

    seed: int

    def choose(self, thread: str, seam: str, visit: int, ready: tuple[str, ...]) -> str:
        return Random(f"{self.seed}:{thread}:{seam}#{visit}").choice(ready)


class RandomWalk:
    """Walks without end, each with a seed of its own."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seeds = seeds(seed)

    def next(self) -> Strategy | None:
        return Walk(next(self._seeds))

    def saw(self, strategy: Strategy, steps: Sequence[Step], conclusive: bool = True) -> None:
        """A walk learns nothing from another."""

    @property
    def promise(self) -> Promise:
        return Promise()
