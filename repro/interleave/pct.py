"""PCT: random priorities, with a few random points at which the running thread's priority drops.

Burckhardt, Kothari, Musuvathi and Nagarakatte, "A randomized scheduler with probabilistic guarantees of finding bugs"
(ASPLOS 2010): with n threads and at most k steps, one run meets a bug of depth d (one that needs d ordering
constraints between steps) with a chance of at least 1/(n k^(d-1)).

Deviations, none of which lowers the floor:

* only steps at which more than one thread can go on are counted against the change points: at the others a drop
  shows its effect no sooner than at the next that counts;
* the change points of a run are distinct, where the paper draws each by itself: two at one step are one wasted;
* k is all the steps of a first run by the default schedule. Where a later run has more decisions than that, its tail
  had no change point: k grows, and earlier runs no longer count towards the promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule, Step
from repro.interleave.scheduler import Strategy
from repro.interleave.search import Promise, seeds


@dataclass
class Priorities:
    """One run's priorities. Threads are learnt when they show up; the same seed ranks the same names alike.

    It counts decisions as it goes, so it is good for one run; :class:`repro.interleave.scheduler.Turns` takes a copy.
    """

    seed: int
    depth: int
    steps: int
    _decisions: int = field(default=0, init=False, repr=False, compare=False)
    _priority: dict[str, tuple[int, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ValueError(
                f"depth must be 1 or more (1 finds what a mere order of threads shows), not {self.depth}"
            )
        if self.steps < 1:
            raise ValueError(f"steps must be 1 or more, not {self.steps}; take the number of steps of a first run")
        drops = min(self.depth - 1, self.steps)
        points = Random(f"{self.seed}:drops").sample(range(1, self.steps + 1), drops)
        # In no order of time: a later drop may well be the smaller one.
        self._drops = {at: level for level, at in enumerate(points)}

    def choose(self, thread: str, seam: str, visit: int, ready: tuple[str, ...]) -> str:
        for name in ready:
            if name not in self._priority:
                self._priority[name] = (1, Random(f"{self.seed}:{name}").random())
        self._decisions += 1
        if self._decisions in self._drops:
            self._priority[thread] = (0, self._drops[self._decisions])
        return max(ready, key=self._priority.__getitem__)


class PCT:
    """Runs without end, after a first one that measures n and k; each with a seed of its own."""

    def __init__(self, *, depth: int = 2, seed: int = 0) -> None:
        if depth < 1:
            raise ValueError(f"depth must be 1 or more, not {depth}; 2 finds most known bugs")
        self.depth = depth
        self.threads = 0
        self.steps = 0
        self.runs = 0
        self._measuring = False
        self._seeds = seeds(seed)

    def next(self) -> Strategy | None:
        if self.steps:
            return Priorities(next(self._seeds), self.depth, self.steps)
        if self._measuring:
            return None
        self._measuring = True
        return Replay(Schedule())

    def saw(self, strategy: Strategy, steps: Sequence[Step], conclusive: bool = True) -> None:
        if not isinstance(strategy, Priorities):
            if steps:
                self.threads, self.steps = len(steps[0].ready), len(steps)
            return
        decisions = sum(len(step.ready) > 1 for step in steps)
        if decisions > self.steps:
            self.steps, self.runs = decisions, 0
        if conclusive and steps and strategy.steps == self.steps:
            self.runs += 1

    @property
    def floor(self) -> float | None:
        """1/(n k^(d-1)); ``None`` before n and k are known."""
        return 1 / (self.threads * self.steps ** (self.depth - 1)) if self.steps else None

    @property
    def promise(self) -> Promise:
        return Promise(depth=self.depth, steps=self.steps or None, floor=self.floor, runs=self.runs)
