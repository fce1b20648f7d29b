"""What an exploration came to: how much was run, what failed, what could not be judged, and what that proves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from repro.interleave.schedule import Schedule
from repro.interleave.scheduler import Strategy
from repro.interleave.search import Promise, Trial

T = TypeVar("T", bound=Trial)


@dataclass(frozen=True)
class Failure(Generic[T]):
    """A failing schedule, the run that showed it, and what a replay of exactly this schedule came to.

    ``schedule`` is ``None`` where the run left no steps behind, as after a crash; then ``strategy`` was run again.
    ``divergence`` says in words how the replay differs: uncontrolled nondeterminism.
    """

    schedule: Schedule | None
    strategy: Strategy
    trial: T
    replay: T | None
    divergence: str | None


@dataclass(frozen=True)
class Inconclusive(Generic[T]):
    """A schedule of which nothing can be said; ``trial`` is ``None`` where its run was lost."""

    strategy: Strategy
    trial: T | None
    reason: str


@dataclass
class Exploration(Generic[T]):
    """What an exploration has come to so far.

    ``schedules`` were run, replays not counted; ``failing`` of these failed, by as many different schedules as there
    are ``failures``. ``threads`` and ``steps`` are those of the first run.
    """

    budget: int
    schedules: int = 0
    threads: int = 0
    steps: int = 0
    failing: int = 0
    failures: list[Failure[T]] = field(default_factory=list)
    inconclusive: list[Inconclusive[T]] = field(default_factory=list)
    promise: Promise = field(default_factory=Promise)

    @property
    def exhausted(self) -> bool:
        """Every schedule within the search's bound was run, and each was conclusive."""
        return self.promise.exhausted and not self.inconclusive

    @property
    def nondeterministic(self) -> list[Failure[T]]:
        return [failure for failure in self.failures if failure.divergence is not None]

    def __str__(self) -> str:
        parts = [
            f"{self.schedules} schedules of {self.threads} threads, {self.steps} steps",
            f"{self.failing} failing",
        ]
        if self.inconclusive:
            parts.append(f"{len(self.inconclusive)} inconclusive")
        if self.nondeterministic:
            parts.append(f"{len(self.nondeterministic)} not replayed")
        if self.exhausted:
            parts.append(f"exhausted {self.promise.reach}")
        if self.promise.floor is not None:
            parts.append(
                f"depth {self.promise.depth}: floor {self.promise.floor:.2g}, detection {self.promise.detection:.1%}"
            )
        return ", ".join(parts)
