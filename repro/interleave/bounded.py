"""Bounded search: every schedule without a switch, then with one, then with two, and so on up to the bound.

After Musuvathi and Qadeer, "Iterative context bounding for systematic testing of multithreaded programs" (PLDI
2007): most bugs need few switches, so fewest first also gives the smallest failing schedule first.

Deviation: the paper counts preemptions only. Here the choice of another than the first ready thread, where the
running one has ended or waits, counts as a switch too: so a schedule stays a list of differences from the default,
and a bound of zero is exactly one schedule.

The schedules are a tree. A run follows its schedule's switches and the default from there on; wherever it could have
left the default after its last switch, there is a child with one switch more. Each schedule has one parent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from repro.interleave.replay import Replay
from repro.interleave.schedule import Schedule, Step, Switch
from repro.interleave.scheduler import Strategy
from repro.interleave.search import Promise


class Bounded:
    """All schedules of up to ``switches`` switches, each once.

    ``ran`` counts the schedules seen. ``strayed`` are those whose run did not follow them, by nondeterminism or
    because its steps were lost: what lies below them is unknown, so the search then never calls itself exhausted.
    """

    def __init__(self, *, switches: int = 2) -> None:
        if switches < 0:
            raise ValueError(f"switches must be 0 or more, not {switches}")
        self.switches = switches
        self.ran = 0
        self.strayed: list[Schedule] = []
        self._queue = deque([Schedule()])
        self._known = {Schedule()}
        self._out = 0

    def next(self) -> Strategy | None:
        if not self._queue:
            return None
        self._out += 1
        return Replay(self._queue.popleft())

    def saw(self, strategy: Strategy, steps: Sequence[Step], conclusive: bool = True) -> None:
        if not isinstance(strategy, Replay):
            raise TypeError(f"bounded search hands out Replay, it cannot have seen {strategy!r}")
        self._out -= 1
        self.ran += 1
        schedule = strategy.schedule
        if not steps or Schedule.of(steps) != schedule:
            self.strayed.append(schedule)
        elif len(schedule) < self.switches:
            for child in _children(schedule, steps):
                # A program that strays may lead to the same schedule twice.
                if child not in self._known:
                    self._known.add(child)
                    self._queue.append(child)

    @property
    def left(self) -> int:
        """How many schedules it knows of that it has not handed out; with one switch, after the first run, all."""
        return len(self._queue)

    @property
    def promise(self) -> Promise:
        through = not self._queue and not self._out and not self.strayed
        return Promise(exhausted=through, switches=self.switches)


def _children(schedule: Schedule, steps: Sequence[Step]) -> list[Schedule]:
    """``schedule`` and one switch more, wherever its run could have left the default after the last one."""
    left = [number for number, step in enumerate(steps) if step.ready and step.chosen != step.default]
    return [
        Schedule((*schedule.switches, Switch(step.thread, step.seam, step.visit, to)))
        for step in steps[left[-1] + 1 if left else 0 :]
        for to in step.ready
        if to != step.chosen
    ]
