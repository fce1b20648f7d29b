"""Replay: follow a recorded schedule and say what became of each switch.

Under a fix a switch may be impossible, and that is how a fix is proven: the thread that should go on waits for a
lock. So each switch ends as one of

* ``taken``: the other thread went on;
* ``refused``: it could not, with the reason: the lock and its holder, or that it had already ended;
* ``absent``: the thread ended without that visit, so there was nothing to switch at.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.interleave.schedule import Schedule, Switch
from repro.interleave.scheduler import Run


@dataclass
class Replay:
    """A strategy that takes the switches of ``schedule`` and otherwise runs each thread to its end."""

    schedule: Schedule

    def choose(self, thread: str, seam: str, visit: int, ready: tuple[str, ...]) -> str:
        default = thread if thread in ready else ready[0]
        for switch in self.schedule.switches:
            if (switch.thread, switch.seam, switch.visit) == (thread, seam, visit):
                return switch.to if switch.to in ready else default
        return default


@dataclass(frozen=True)
class SwitchFate:
    """What became of one switch: ``status`` is ``taken``, ``refused`` or ``absent``."""

    switch: Switch
    status: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.switch} {self.status}" + (f" ({self.reason})" if self.reason else "")


def fates(schedule: Schedule, run: Run) -> list[SwitchFate]:
    """What became of each switch of ``schedule`` in ``run``."""
    return [_fate(switch, run) for switch in schedule.switches]


def _fate(switch: Switch, run: Run) -> SwitchFate:
    for index, step in enumerate(run.steps):
        if (step.thread, step.seam, step.visit) != (switch.thread, switch.seam, switch.visit):
            continue
        waits = [wait for wait in run.waits if wait.thread == switch.to]
        if step.chosen == switch.to:
            # Handed over, but the other thread only got as far as a lock: that is a refusal too.
            after = [later for later in run.steps[index + 1 :] if later.thread == switch.to]
            reached = next(
                (later for later in after if later.seam != "start" and not later.seam.endswith(".acquire")),
                None,
            )
            if reached is not None and reached.seam.startswith("wait:"):
                wait = next(wait for wait in waits if wait.step >= index)
                return SwitchFate(switch, "refused", str(wait))
            return SwitchFate(switch, "taken")
        blocked = [wait for wait in waits if wait.step <= index]
        if any(done.thread == switch.to and done.seam == "end" for done in run.steps[:index]):
            why = f"{switch.to} had ended"
            mine = [wait for wait in run.waits if wait.thread == switch.thread and wait.step <= index]
            if mine:
                held = f", held by {mine[0].holder}" if mine[0].holder else ""
                why += f", since {switch.thread} waited for {mine[0].lock}{held}"
        elif blocked:
            why = str(blocked[-1])
        else:
            why = f"{switch.to} could not go on"
        return SwitchFate(switch, "refused", why)
    return SwitchFate(switch, "absent", f"{switch.thread} never came to {switch.seam}#{switch.visit}")
