"""A recorded schedule: what was followed, where, and the trace that a replay is checked against.

Forward compatible: a release may gain seams and modelled locks. The trace is compared at the recorded ones only, so
an unrelated new seam does not break an old schedule. Fields that are not known here are ignored; a schema that is not
known here is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.interleave.schedule import (
    SCHEMA,
    Schedule,
    ScheduleError,
    Step,
    first_divergence,
    read_field,
    steps_to_json,
)


@dataclass(frozen=True)
class Recorded:
    """``seams`` names the seams and modelled locks that stood; ``versions`` is of whatever matters, by name."""

    schedule: Schedule
    trace: tuple[str, ...]
    seams: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    schema: int = SCHEMA

    @classmethod
    def of(
        cls,
        steps: Sequence[Step],
        *,
        seams: Iterable[str],
        versions: Mapping[str, str],
        seed: int | None = None,
    ) -> Recorded:
        """Record a run."""
        return cls(Schedule.of(steps), tuple(steps_to_json(steps)), tuple(seams), dict(versions), seed)

    def divergence(self, steps: Sequence[Step]) -> str | None:
        """Where a replay leaves the recorded trace, in words; ``None`` when it follows it to the end."""
        return first_divergence(self.trace, steps_to_json([step for step in steps if self._stood(step.seam)]))

    def _stood(self, seam: str) -> bool:
        if seam in ("start", "end"):
            return True
        # A modelled lock has two points of its own.
        return not {seam, seam.removeprefix("wait:"), seam.removesuffix(".acquire")}.isdisjoint(self.seams)

    def to_json(self) -> dict[str, Any]:
        """Plain data; :meth:`from_json` reads it."""
        return {
            "schema": self.schema,
            "schedule": str(self.schedule),
            "trace": list(self.trace),
            "seams": list(self.seams),
            "versions": dict(self.versions),
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, data: Any, where: str) -> Recorded:
        """Read it; ``where`` names the file in messages. Raises :class:`ScheduleError`."""
        schema = read_field(data, "schema", int, where)
        if schema != SCHEMA:
            raise ScheduleError(
                f"{where}: 'schema' is {schema}, this release reads {SCHEMA}; record the schedule again or upgrade"
            )
        try:
            schedule = Schedule.parse(read_field(data, "schedule", str, where))
        except ScheduleError as error:
            raise ScheduleError(f"{where}: 'schedule': {error}") from error
        trace, seams = (_strings(data, name, where) for name in ("trace", "seams"))
        versions = read_field(data, "versions", dict, where)
        if not all(isinstance(version, str) for version in versions.values()):
            raise ScheduleError(f"{where}: 'versions' must hold strings only, such as \"3.12.1\"")
        seed = data.get("seed")
        if seed is not None and not isinstance(seed, int):
            raise ScheduleError(f"{where}: 'seed' must be an int or null, not {type(seed).__name__}")
        return cls(schedule, trace, seams, versions, seed, schema)

    @classmethod
    def load(cls, path: Path) -> Recorded:
        """Read a file. Raises :class:`ScheduleError`."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ScheduleError(f"{path}: cannot be read as JSON: {error}") from error
        return cls.from_json(data, str(path))

    def save(self, path: Path) -> None:
        """Write a file that a person can read and compare."""
        path.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")


def _strings(data: Any, name: str, where: str) -> tuple[str, ...]:
    found = read_field(data, name, list, where)
    for index, item in enumerate(found):
        if not isinstance(item, str):
            raise ScheduleError(f"{where}: '{name}[{index}]' must be a str, not {type(item).__name__}")
    return tuple(found)
