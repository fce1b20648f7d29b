"""The JSON that every command writes with ``--json``: one envelope, plain data inside."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from repro.experiment import Observation
from repro.exploring import Searched
from repro.interleave.exploration import Exploration
from repro.verdict import Cell

SCHEMA = 1


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


def of_cells(command: str, torch: str, cells: Sequence[Cell]) -> dict[str, Any]:
    return envelope(command, torch, {"cells": [of_cell(cell) for cell in cells]}, seeds=[])


def of_search(torch: str, found: Searched) -> dict[str, Any]:
    """The document of ``explore``; the smallest failure is its one cell, so that ``replay`` can take it."""
    cells = []
    if found.smallest is not None:
        cells = [{"race": found.race, "fix": found.fix, **of_observation(found.smallest.trial)}]
    content = {
        "race": found.race,
        "fix": found.fix,
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


def of_cell(cell: Cell) -> dict[str, Any]:
    return {
        "race": cell.race,
        "fix": cell.fix,
        "verdict": cell.verdict.value,
        "by": "replay",
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
        "trace": [str(step) for step in observation.steps],
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


def write(document: Mapping[str, Any], target: str) -> None:
    """Write to the file ``target``, whole or not at all; ``-`` is standard output. Raises :class:`Unwritable`."""
    text = json.dumps(document, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    path = Path(target)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Unwritable(f"cannot write {target}: {error.strerror}") from None
