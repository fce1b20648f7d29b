"""Controlled interleaving around code that we do not own.

One thread runs at a time. It runs freely until it reaches a *seam* (a point patched into a named function, a
modelled lock, or a ``point()`` in code of our own); there a *strategy* says who goes on. What was chosen is a
*schedule*: a value that can be printed, saved and replayed.

Nothing in here knows of attention.
"""

from repro.interleave.schedule import Schedule, ScheduleError, Step, Switch
from repro.interleave.scheduler import Fate, Run, Scheduler, point
from repro.interleave.seams import LostSeam, Seam, Seams

__all__ = [
    "Fate",
    "LostSeam",
    "Run",
    "Schedule",
    "ScheduleError",
    "Scheduler",
    "Seam",
    "Seams",
    "Step",
    "Switch",
    "point",
]
