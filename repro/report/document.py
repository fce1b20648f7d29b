"""The JSON that every command writes with ``--json``: one envelope, plain data inside."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from repro.audit import Audited
from repro.expectations import PROCESSES
from repro.experiment import Experiment, Observation
from repro.exploring import Searched
from repro.gate import Gate
from repro.interleave.exploration import Exploration
from repro.interleave.schedule import steps_to_json
from repro.recording import SCHEMA
from repro.results import Asked
from repro.surface import Difference
from repro.verdict import Cell


class Unwritable(Exception):
    """The JSON file cannot be written; the message says why."""


def envelope(command: str, torch: str | None, content: Mapping[str, Any], *, seeds: list[int]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "command": command,
        "torch": torch,
        "python": platform.python_version(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "seeds": seeds,
        **content,
    }


def of_cells(
    command: str,
    torch: str,
    cells: Sequence[Cell],
    *,
    seeds: Sequence[int] = (),
    asked: Asked | None = None,
    devices: Sequence[str],
) -> dict[str, Any]:
    """The document of cells that ran on ``devices``, and what the run was to do where that is known."""
    narrowed = {} if asked is None else {"asked": plain(dataclasses.asdict(asked))}
    content = {"devices": list(devices), **narrowed, "cells": [of_cell(cell) for cell in cells]}
    return envelope(command, torch, content, seeds=list(seeds))


def of_gate(answer: Gate) -> dict[str, Any]:
    """What the gate says, beside the cells that it speaks of."""
    return {
        "standing": answer.standing.value,
        "devices": [answer.device],
        "against": answer.against,
        "changes": [
            {**{key: plain(value) for key, value in dataclasses.asdict(change).items()}, "red": change.red}
            for change in answer.changes
        ],
        "gained_seams": list(answer.gained),
        "meaning": list(answer.meaning),
        "notes": list(answer.notes),
        "surface": None if answer.surface is None else of_surface(answer.surface),
    }


def of_surface(difference: Difference) -> dict[str, Any]:
    """What the gate shows of the surface: how much changed, and which suspects came, went or moved."""
    return {
        "old": difference.old,
        "new": difference.new,
        "counts": dict(difference.counts),
        "changes": [dataclasses.asdict(change) for change in difference.turns],
    }


def of_run(torch: str, experiment: Experiment, observation: Observation) -> dict[str, Any]:
    """The document of one run that was not judged; ``replay`` can take it, with the workloads it had."""
    cell = {
        "race": experiment.race,
        "fix": PROCESSES if experiment.processes else experiment.fix,
        "workloads": None if experiment.workloads is None else [each.to_json() for each in experiment.workloads],
        **of_observation(observation),
    }
    return envelope("run", torch, {"devices": list(experiment.devices), "cells": [cell]}, seeds=[])


def of_search(torch: str, found: Searched, devices: Sequence[str]) -> dict[str, Any]:
    """The document of ``explore``; the smallest failure is its one cell, so that ``replay`` can take it."""
    cells = []
    if found.smallest is not None:
        cells = [{"race": found.race, "fix": found.fix, **of_observation(found.smallest.trial)}]
    content = {
        "race": found.race,
        "fix": found.fix,
        "devices": list(devices),
        "strategy": found.strategy,
        "verdict": found.verdict.value,
        "by": "search",
        "reason": found.reason,
        "search": _exploration(found.exploration),
        "without_fix": _exploration(found.baseline) if found.baseline is not None else None,
        "cells": cells,
    }
    return envelope("explore", torch, content, seeds=[found.seed])


def _exploration(seen: Exploration[Observation]) -> dict[str, Any]:
    return {
        "budget": seen.budget,
        "schedules": seen.schedules,
        "threads": seen.threads,
        "steps": seen.steps,
        "exhausted": seen.exhausted,
        **dataclasses.asdict(seen.promise),
        "detection": seen.promise.detection,
        "failing": seen.failing,
        "failures": [
            {
                "schedule": str(failure.schedule),
                "signature": failure.trial.signature,
                "divergence": failure.divergence,
            }
            for failure in seen.failures
        ],
        "inconclusive": [lost.reason for lost in seen.inconclusive],
    }


def of_audit(found: Audited) -> dict[str, Any]:
    """The document of ``audit``; the run that breaks the callable is its one cell, so that ``replay`` can take it."""
    cells = []
    if found.shown is not None:
        cells = of_run(found.torch, found.experiment, found.shown)["cells"]
    how = None
    if found.shown is not None:
        how = {
            "by": "search" if found.origin is None else "recorded schedule",
            "recorded_of": [] if found.origin is None else [each.race for each in found.origin.recordings],
            "races": found.races,
            "fixes": found.holding,
            "raised_at": found.raised_at,
            "text": found.how,
        }
    beside = None
    if found.beside is not None:
        beside = [
            {
                "thread": one.name,
                "breaks": one.breaks,
                "schedules": one.schedules,
                "inconclusive": one.inconclusive or None,
                "race": one.race,
                "fixes": list(one.holding),
                "text": one.how,
                "shown": None if one.shown is None else of_observation(one.shown),
            }
            for one in found.beside
        ]
    content = {
        "target": found.target.name,
        "devices": list(found.experiment.devices),
        "threads": found.threads,
        "strategy": found.strategy,
        "verdict": found.verdict.value,
        "by": "search",
        "reason": found.reason,
        "recorded": found.recorded,
        "found": how,
        "search": _exploration(found.exploration),
        "foreign": beside,
        "cells": cells,
    }
    return envelope("audit", found.torch, content, seeds=[found.seed])


def of_cell(cell: Cell) -> dict[str, Any]:
    return {
        "race": cell.race,
        "fix": cell.fix,
        "verdict": cell.verdict.value,
        "by": cell.by,
        "reason": cell.reason,
        "expected": cell.expected.outcome.value if cell.expected else None,
        "as_expected": cell.as_expected,
        "upstream": cell.expected.upstream if cell.expected else None,
        **of_observation(cell.observation),
    }


def of_observation(observation: Observation) -> dict[str, Any]:
    return {
        "outcome": observation.outcome.kind.value,
        "signature": observation.signature,
        "explanation": observation.outcome.reason,
        "details": plain(observation.outcome.details),
        "schedule": observation.schedule,
        "switches": [str(switch) for switch in observation.switches],
        "seams": observation.seams,
        "trace": steps_to_json(observation.steps),
        "findings": [plain(dataclasses.asdict(finding)) for finding in observation.findings],
        "compiled_frames": observation.compiled,
    }


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)


def check_target(target: str, option: str = "--json") -> None:
    """Find out before a long run whether :func:`write` can write there. Raises :class:`Unwritable`."""
    if target == "-":
        return
    path, kept = _place(target)
    try:
        if kept:
            with path.open("ab"):
                pass
        else:
            _beside(path).touch(exist_ok=False)
            _beside(path).unlink()
    except OSError as error:
        raise _unwritable(target, error, option) from None


def write(document: Mapping[str, Any], target: str) -> None:
    """Write ``document`` as JSON; see :func:`write_text`."""
    write_text(json.dumps(document, indent=2) + "\n", target)


def write_text(text: str, target: str, option: str = "--json") -> None:
    """Write to the file ``target``, whole or not at all; ``-`` is standard output. Raises :class:`Unwritable`."""
    if target == "-":
        sys.stdout.write(text)
        return
    path, kept = _place(target)
    try:
        if kept:
            path.write_text(text, encoding="utf-8")
            return
        try:
            with _beside(path).open("x", encoding="utf-8") as file:
                file.write(text)
            _beside(path).replace(path)
        except BaseException:
            _beside(path).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _unwritable(target, error, option) from None


def _place(target: str) -> tuple[Path, bool]:
    """Where ``target`` is, and whether something is there that must not be replaced, such as a device."""
    path = Path(target)
    if path.exists() and not path.is_file():
        return path, True
    # What a link points to is written, not the link.
    return Path(os.path.realpath(path)), False


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _unwritable(target: str, error: OSError, option: str) -> Unwritable:
    return Unwritable(f"cannot write {target!r}: {error.strerror}; give {option} another file, or -")
