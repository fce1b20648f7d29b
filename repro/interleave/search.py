"""What a search is: it hands out strategies, and learns from what became of them.

One search a file: ``bounded.py``, ``pct.py``, ``random_walk.py``. They know nothing of executors, budgets or
failures; ``explore.py`` does, and it hands back what it saw in the order in which it was given out. A search that
depends on nothing else gives out the same schedules on one core and on a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from repro.interleave.schedule import Step
from repro.interleave.scheduler import Strategy


class Trial(Protocol):
    """What one run came to. ``signature`` is what makes two failures the same."""

    @property
    def steps(self) -> Sequence[Step]: ...

    @property
    def failed(self) -> bool: ...

    @property
    def signature(self) -> str: ...

    @property
    def conclusive(self) -> bool: ...


@dataclass(frozen=True)
class Promise:
    """What a search can say of the schedules that it has seen the end of.

    ``exhausted``: every schedule of up to ``switches`` switches was run. ``floor``: each of ``runs`` schedules had at
    least this chance to meet a bug of depth ``depth``, in runs of up to ``steps`` steps.
    """

    exhausted: bool = False
    switches: int | None = None
    depth: int | None = None
    steps: int | None = None
    floor: float | None = None
    runs: int = 0

    @property
    def reach(self) -> str:
        """How far the schedules went that were all run, in words."""
        return "up to one switch" if self.switches == 1 else f"up to {self.switches} switches"

    @property
    def detection(self) -> float | None:
        """The chance that all the runs together had to meet such a bug, at least."""
        return None if self.floor is None else 1 - (1 - self.floor) ** self.runs


class Search(Protocol):
    """Hands out one strategy after the other."""

    def next(self) -> Strategy | None:
        """The next one to run; ``None`` when there is none, or none before more was seen."""
        ...

    def saw(self, strategy: Strategy, steps: Sequence[Step], conclusive: bool = True) -> None:
        """The run by ``strategy`` took ``steps``, none if they were lost. Called in the order of :meth:`next`."""
        ...

    @property
    def promise(self) -> Promise: ...


def seeds(seed: int) -> Iterator[int]:
    """A seed of its own for every schedule of a search; unlike ``seed + i``, two searches share none."""
    random = Random(seed)
    while True:
        yield random.getrandbits(48)
