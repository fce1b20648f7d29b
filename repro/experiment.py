"""What to run, and what it came to: the two values that cross into a sandbox and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from repro.fixes import NONE
from repro.interleave.replay import SwitchFate
from repro.interleave.schedule import Step
from repro.interleave.scheduler import Strategy
from repro.outcome import Finding, Kind, Outcome

if TYPE_CHECKING:
    from repro.workloads import Workload


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A race under a fix, on workloads, by a strategy.

    ``strategy`` ``None`` replays the race's recorded schedule. ``processes`` puts each thread into a process of its
    own: the control group, in which no Python state is shared. ``context`` says where a thread's context variables
    come from (see :class:`repro.interleave.Scheduler`). ``context`` and ``workloads`` ``None`` are the race's own.
    ``devices`` are dealt to the workloads in turn; with fewer workloads than devices they are dealt out again.
    """

    race: str
    fix: str = NONE
    strategy: Strategy | None = None
    processes: bool = False
    context: str | None = None
    workloads: tuple[Workload, ...] | None = None
    devices: tuple[str, ...] = ("cpu",)


@dataclass
class Observation:
    """What one run came to.

    ``schedule`` is the one that was followed, in its one-line form, and ``steps`` every decision; ``switches`` says
    what became of each switch that was asked for. ``compiled`` counts the frames that Dynamo compiled since the
    threads started, for the lone calls after them too; ``None`` if that could not be seen. ``seams`` names the seams
    and the modelled locks that stood.
    """

    outcome: Outcome
    schedule: str = "-"
    steps: list[Step] = field(default_factory=list)
    switches: list[SwitchFate] = field(default_factory=list)
    seams: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    compiled: int | None = None
    output: str = ""

    @property
    def failed(self) -> bool:
        return self.outcome.kind not in (Kind.OK, Kind.INCONCLUSIVE)

    @property
    def conclusive(self) -> bool:
        return self.outcome.kind is not Kind.INCONCLUSIVE

    @property
    def signature(self) -> str:
        """What makes two failures the same: the kind, and the type and torch frame of what was raised, or the signal.

        Where more was raised, what a lone call raised, or the first thread that failed.
        """
        details = self.outcome.details
        raised = next(iter(details.get("errors", {}).values()), details)
        source = details if "type" in details else details.get("lone call", raised)
        return ":".join(
            [self.outcome.kind, *(str(source[key]) for key in ("type", "frame", "signal") if key in source)]
        )
