"""Schedules for Hypothesis, drawn up front in the test thread and never from a worker.

Drawn are switches that a run can reach. From the points of one default run, each thread's own sequence is known; as
long as threads do not block each other, who stands where after a switch follows from that. So the second switch is
drawn among the points that come after the first, where another thread can go on, not among all points there are.
Where threads do block each other the model is off, and a switch may turn out refused or absent; that is harmless.

Shrinks towards fewer switches, then towards earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from repro.interleave.schedule import Schedule, Step, Switch


@dataclass(frozen=True)
class Point:
    """A place for a switch, and to whom."""

    thread: str
    seam: str
    visit: int
    alternatives: tuple[str, ...]


def points(steps: Sequence[Step]) -> list[Point]:
    """The points of a default run: at each, every other thread is an alternative.

    Waits are left out: whether a thread has to wait, and where, differs from schedule to schedule.
    """
    names = steps[0].ready if steps else ()
    return [
        Point(step.thread, step.seam, step.visit, tuple(name for name in names if name != step.thread))
        for step in steps
        if not step.seam.startswith("wait:")
    ]


def schedules(points: Sequence[Point], *, max_switches: int = 2) -> st.SearchStrategy[Schedule]:
    """Schedules of up to ``max_switches`` switches at ``points`` (those of a default run, in its order)."""
    if not points:
        raise ValueError("no points to switch at: take points() of a run by the default schedule")
    if max_switches < 0:
        raise ValueError(f"max_switches must be 0 or more, not {max_switches}")
    lines = _lines(points)

    @st.composite
    def drawn(draw: st.DrawFn) -> Schedule:
        switches: list[Switch] = []
        current, passed = next(iter(lines)), dict.fromkeys(lines, 0)
        for _ in range(draw(st.integers(0, max_switches))):
            ahead = _ahead(lines, current, passed)
            if not ahead:
                break
            switch, passed = ahead[draw(st.integers(0, len(ahead) - 1))]
            switches.append(switch)
            current = switch.to
        return Schedule(tuple(switches))

    return drawn()


def _lines(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Each thread's points; every thread has an end, where it can go on no more."""
    lines: dict[str, list[Point]] = {}
    for point in points:
        lines.setdefault(point.thread, []).append(point)
    for thread, line in lines.items():
        if line[-1].seam != "end":
            line.append(Point(thread, "end", 1, ()))
    return lines


def _ahead(
    lines: Mapping[str, list[Point]], current: str, passed: Mapping[str, int]
) -> list[tuple[Switch, dict[str, int]]]:
    """The switches that can come next when ``current`` runs on, and how far each thread then is."""
    far = dict(passed)
    found = []
    running: str | None = current
    while running is not None:
        for point in lines[running][far[running] :]:
            far[running] += 1
            ready = [name for name, line in lines.items() if far[name] < len(line)]
            default = running if running in ready else next(iter(ready), None)
            found += [
                (Switch(point.thread, point.seam, point.visit, to), dict(far))
                for to in point.alternatives
                if to in ready and to != default
            ]
        running = next((name for name, line in lines.items() if far[name] < len(line)), None)
    return found
