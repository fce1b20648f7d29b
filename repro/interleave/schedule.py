"""A schedule as a value: switches against run-to-completion.

Without any switch each thread runs to its end, in the order in which the threads are declared. A switch is
addressed by (thread, seam, nth visit of that seam by that thread), never by a global step number: a new seam
elsewhere does not move it.

One line, as in a bug report::

    uncompiled:start#1>compiled, compiled:fx.trace#1>uncompiled

reads: *uncompiled*, before it does anything, hands over to *compiled*; when *compiled* reaches the seam
``fx.trace`` for the first time it hands back. ``-`` is the schedule without a switch.

Three seams exist for every thread: ``start``, ``end``, and ``wait:LOCK`` where it cannot go on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_SWITCH = re.compile(r"\s*(?P<thread>[\w.-]+):(?P<seam>[^#>,\s]+)#(?P<visit>[1-9]\d{0,99})>(?P<to>[\w.-]+)\s*")


class ScheduleError(ValueError):
    """A schedule that cannot be read; the message says where and what to do."""


@dataclass(frozen=True, order=True)
class Switch:
    """At its ``visit``-th visit of ``seam``, ``thread`` hands over ``to`` another thread."""

    thread: str
    seam: str
    visit: int
    to: str

    def __str__(self) -> str:
        return f"{self.thread}:{self.seam}#{self.visit}>{self.to}"


@dataclass(frozen=True)
class Step:
    """One decision of a run: where the running thread stood, who could have gone on, and who did."""

    thread: str
    seam: str
    visit: int
    ready: tuple[str, ...]
    chosen: str

    @property
    def default(self) -> str:
        """Who goes on when nothing is switched: the thread itself, else the first that can."""
        return self.thread if self.thread in self.ready else self.ready[0]

    @property
    def address(self) -> str:
        return f"{self.thread}:{self.seam}#{self.visit}"

    def __str__(self) -> str:
        return self.address if self.chosen == self.thread else f"{self.address}>{self.chosen}"


@dataclass(frozen=True)
class Schedule:
    """Switches in the order in which they are meant to happen."""

    switches: tuple[Switch, ...] = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self.switches)) or "-"

    def __len__(self) -> int:
        return len(self.switches)

    @classmethod
    def parse(cls, line: str) -> Schedule:
        """Read the one-line form. Raises :class:`ScheduleError`."""
        if line.strip() == "-":
            return cls()
        switches = []
        for part in line.split(","):
            match = _SWITCH.fullmatch(part)
            if match is None:
                raise ScheduleError(
                    f"{part.strip()!r} is not a switch; write THREAD:SEAM#VISIT>THREAD, with commas between "
                    "switches, or - for none"
                )
            switches.append(Switch(match["thread"], match["seam"], int(match["visit"]), match["to"]))
        return cls(tuple(switches))

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Schedule:
        """The schedule that a run followed: every step that left the default."""
        return cls(
            tuple(
                Switch(step.thread, step.seam, step.visit, step.chosen)
                for step in steps
                if step.ready and step.chosen != step.default
            )
        )


def steps_to_json(steps: Sequence[Step]) -> list[str]:
    """The seam trace in a form that two runs can be compared by."""
    return [str(step) for step in steps]


def first_divergence(recorded: Sequence[str], seen: Sequence[str]) -> str | None:
    """Where two seam traces part, in words; ``None`` when they are the same."""
    for number, (was, now) in enumerate(zip(recorded, seen, strict=False), start=1):
        if was != now:
            return f"step {number}: recorded {was}, now {now}"
    if len(recorded) != len(seen):
        shorter, longer, who = (seen, recorded, "recorded") if len(seen) < len(recorded) else (recorded, seen, "now")
        return f"step {len(shorter) + 1}: only {who} goes on, with {longer[len(shorter)]}"
    return None
