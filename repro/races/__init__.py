"""Races: what threads do at the same time, one file each.

A race file's name is the race's name; the first line of its docstring says what happens. It defines ``RACE``. A
thread is the user's *own*, which a fix wraps, or *foreign*, another library that compiles or traces, which it cannot.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.interleave.schedule import Schedule
from repro.workloads import Workload

if TYPE_CHECKING:
    from repro.user_code import UserCode

FOLDER = Path(__file__).parent


class UnknownRace(ValueError):
    """No race of that name; the message has the nearest names."""


class Grade(str, Enum):
    """What it means that an outcome appears.

    ``REQUIRED``: on a release that is known to be broken, a run without a fix must end so; this proves that the
    check can go red. ``ACCEPTABLE``: nothing is wrong. ``INTERESTING``: allowed, worth a look. Whatever a race does
    not grade is ``FORBIDDEN``.
    """

    REQUIRED = "required"
    ACCEPTABLE = "acceptable"
    INTERESTING = "interesting"
    FORBIDDEN = "forbidden"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Thread:
    """What one thread does, and whether it is the user's ``own`` code."""

    body: Callable[[], Any]
    own: bool


def own(body: Callable[[], Any]) -> Thread:
    return Thread(body, own=True)


def foreign(body: Callable[[], Any]) -> Thread:
    return Thread(body, own=False)


@dataclass(frozen=True, kw_only=True)
class Race:
    """A race: ``threads`` given the user's code, the recorded ``schedule``, and what each outcome means.

    ``warm`` calls the compiled attention once before the threads start, as in a program that has been running for a
    while. ``setup`` runs before everything else. ``workload`` has the fields of a
    :class:`repro.workloads.Workload` that are not the default, and there is one for each of ``key_lengths`` if any
    are given. ``seams`` names the extra seams of
    ``torch_names.toml`` that this race needs; each makes its space of schedules larger. ``context`` says where a
    thread's context variables come from (see :class:`repro.interleave.Scheduler`). With ``trains`` every compiled
    call goes backward too. With ``cuda_only`` there is no such race on the CPU, where a compiled flex_attention is
    for inference and ``backward`` runs in the thread that calls it.
    """

    threads: Callable[[UserCode], Mapping[str, Thread]]
    schedule: str
    outcomes: Mapping[str, tuple[Grade, str]]
    upstream: tuple[str, ...] = ()
    warm: bool = False
    setup: Callable[[], None] | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    key_lengths: tuple[int, ...] = ()
    seams: tuple[str, ...] = ()
    context: str = "copied"
    trains: bool = False
    cuda_only: bool = False

    def grade(self, outcome: str) -> tuple[Grade, str]:
        return self.outcomes.get(outcome, (Grade.FORBIDDEN, "not an outcome of this race"))

    def workloads(self) -> tuple[Workload, ...]:
        lengths: list[dict[str, int]] = [{"keys": length} for length in self.key_lengths] or [{}]
        return tuple(Workload(**{**self.workload, **length}) for length in lengths)

    def recorded(self) -> Schedule:
        return Schedule.parse(self.schedule)


def names() -> list[str]:
    """The races that there are, by file name, without importing any."""
    return sorted(path.stem.replace("_", "-") for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def documentation(name: str) -> str:
    """A race's docstring, without importing it."""
    path = FOLDER / f"{_checked(name).replace('-', '_')}.py"
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def cuda_only(name: str) -> bool:
    """Whether a race exists on CUDA alone, without importing it."""
    path = FOLDER / f"{_checked(name).replace('-', '_')}.py"
    keywords = [
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.keyword)
    ]
    return any(keyword.arg == "cuda_only" and ast.literal_eval(keyword.value) for keyword in keywords)


def load(name: str) -> Race:
    """The race called ``name``. Imports torch. Raises :class:`UnknownRace`."""
    race = importlib.import_module(f"{__name__}.{_checked(name).replace('-', '_')}").RACE
    assert isinstance(race, Race)
    return race


def _checked(name: str) -> str:
    if name not in names():
        near = get_close_matches(name, names(), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(names())}"
        raise UnknownRace(f"no race is called {name!r}; {hint}")
    return name


def run_alone(file: str) -> None:
    """What a race file does when it is run by itself: ``python -m repro run`` of that race."""
    from repro.cli import main

    name = Path(file).stem.replace("_", "-")
    raise SystemExit(main(["run", name, *(["--device", "cuda"] if cuda_only(name) else [])]))
