"""Races: what threads do at the same time, one file each.

A race file's name is the race's name; the first line of its docstring says what happens. It defines ``RACE``. A
thread is the user's *own*, which a fix wraps, or *foreign*, another library that compiles or traces, which it cannot.

There are three groups. In the first, threads share the state of one process. In the second, in ``processes/``, each
thread is the only one of a process of its own, and all that they share is inductor's cache directory; whatever else
happens to that directory, such as its deletion, is a foreign process of the race; it has fixes of its own. The third,
in ``cuda/``, are threads again, in races that need a CUDA device: on the CPU a compiled flex_attention is for
inference, and ``backward`` runs in the thread that calls it.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterable, Mapping
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
THREADS, PROCESSES, CUDA = "threads", "processes", "cuda"
GROUPS = (THREADS, PROCESSES, CUDA)
# How the name of a race ends in which a thread is another library's, which no guard of the user's is around.
FOREIGN = "-foreign"
_FOLDERS = {THREADS: FOLDER, PROCESSES: FOLDER / PROCESSES, CUDA: FOLDER / CUDA}


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
    """What one thread does, and whether it is the user's ``own`` code.

    In a race of processes one may be ``doomed``: it is there to be killed, or to fail, and how it ends is not judged.
    """

    body: Callable[[], Any]
    own: bool
    doomed: bool = False


def own(body: Callable[[], Any]) -> Thread:
    return Thread(body, own=True)


def foreign(body: Callable[[], Any]) -> Thread:
    return Thread(body, own=False)


def doomed(body: Callable[[], Any]) -> Thread:
    return Thread(body, own=True, doomed=True)


@dataclass(frozen=True, kw_only=True)
class Race:
    """A race: ``threads`` given the user's code, the recorded ``schedule``, and what each outcome means.

    ``warm`` calls the compiled attention once before the threads start, as in a program that has been running for a
    while. ``setup`` runs before everything else. ``workload`` has the fields of a
    :class:`repro.workloads.Workload` that are not the default, and there is one for each of ``key_lengths`` if any
    are given. ``seams`` names the extra seams of ``torch_names.toml`` that this race needs; each makes its space of
    schedules larger. ``context`` says where a thread's context variables come from (see
    :class:`repro.interleave.Scheduler`). ``graphs`` bounds what Dynamo may hand to a backend while the threads run:
    more than that is ``wasteful``. With ``trains`` every compiled call goes backward too.

    A race of processes says what is in the ``cache`` directory that they share when they start: it is ``"empty"``,
    has the compiled ``"kernels"`` but no graph, or is ``"warm"``. A directory that a fix gives to a process alone is
    as full.
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
    graphs: int | None = None
    trains: bool = False
    cache: str | None = None

    def grade(self, outcome: str) -> tuple[Grade, str]:
        return self.outcomes.get(outcome, (Grade.FORBIDDEN, "not an outcome of this race"))

    def workloads(self) -> tuple[Workload, ...]:
        lengths: list[dict[str, int]] = [{"keys": length} for length in self.key_lengths] or [{}]
        return tuple(Workload(**{**self.workload, **length}) for length in lengths)

    def recorded(self) -> Schedule:
        return Schedule.parse(self.schedule)


def names(group: str | None = None) -> list[str]:
    """The races that there are, or those of one ``group``, by file name, without importing any."""
    folders = _FOLDERS.values() if group is None else [_FOLDERS[group]]
    files = [path.stem for folder in folders for path in folder.glob("*.py")]
    return sorted(stem.replace("_", "-") for stem in files if not stem.startswith("_"))


def names_on(devices: Iterable[str]) -> list[str]:
    """The races that there are on ``devices``, such as ``cpu`` and ``cuda:1``."""
    here = (THREADS, PROCESSES) if "cpu" in devices else (THREADS, CUDA)
    return [name for name in names() if group(name) in here]


def group(name: str) -> str:
    """The group of the race called ``name``. Raises :class:`UnknownRace`."""
    if is_audit(name):
        return THREADS
    return next(group for group, folder in _FOLDERS.items() if (folder / _file(name)).is_file())


def is_audit(name: str) -> bool:
    """Whether ``name`` is no race of the catalogue but one of a user's own callable, ``MODULE:CALLABLE``."""
    return ":" in name


def documentation(name: str) -> str:
    """A race's docstring, without importing it."""
    if is_audit(name):
        from repro import audit

        audit.parse(name)
        return ""
    path = _FOLDERS[group(name)] / _file(name)
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def load(name: str) -> Race:
    """The race called ``name``. Imports torch. Raises :class:`UnknownRace`."""
    if is_audit(name):
        from repro import audit

        return audit.race(name)
    package = __name__ if group(name) == THREADS else f"{__name__}.{group(name)}"
    race = importlib.import_module(f"{package}.{Path(_file(name)).stem}").RACE
    assert isinstance(race, Race)
    return race


def link(name: str) -> str | None:
    """The first upstream thread of a race. Imports torch."""
    return next(iter(load(name).upstream), None)


def _file(name: str) -> str:
    return f"{_checked(name).replace('-', '_')}.py"


def _checked(name: str) -> str:
    if name not in names():
        near = get_close_matches(name, names(), n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "python -m repro list shows all"
        raise UnknownRace(f"no race is called {name!r}; {hint}")
    return name


def run_alone(file: str) -> None:
    """What a race file does when it is run by itself: ``python -m repro run`` of that race."""
    from repro.cli import main

    name = Path(file).stem.replace("_", "-")
    raise SystemExit(main(["run", name, *(["--device", "cuda"] if group(name) == CUDA else [])]))
