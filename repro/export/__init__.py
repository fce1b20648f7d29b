"""Reproducers for upstream: a recorded schedule becomes one script that needs torch alone, and an issue to file.

A race's *form* (``forms/RACE.py.j2``) is its script with places where threads may hand over: in code that users
write, a ``forward`` or a backend, inside the window that a seam of torch marks. The recording says at which of the
places they do. A hand-over for which the form has no place goes into a wrapped function of torch, and the script says
so.

A form extends ``_script.py.j2``, which has what all scripts share. ``{{ at("tracer:in-forward#1", "why") }}`` is a
place: at these addresses of a schedule the thread is here, inside the same window. What ``test_fn`` looks at is what
a user would see. A form is right when its script shows the race on a release that has it, and is clean on one that
has not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from repro import audit, preflight, races, recording
from repro.expectations import fixtures
from repro.export import issue
from repro.export.issue import clean_since, runs
from repro.export.minimise import minimise
from repro.export.script import Script, formed, write
from repro.export.trial import Trial, run
from repro.fixes import NONE
from repro.interleave.schedule import ScheduleError
from repro.recording import Recording

__all__ = ["Exported", "Script", "Trial", "clean_since", "export", "formed", "recorded", "runs", "write"]


@dataclass(frozen=True)
class Exported:
    """``script`` and ``issue`` as they are to be written, and what the runs of the script came to on ``torch``."""

    script: Script
    issue: str
    trials: list[Trial]
    torch: str

    @property
    def shown(self) -> int:
        return sum(trial.shown for trial in self.trials)


def recorded(race: str, file: str | None = None) -> Recording:
    """What ``file`` recorded of ``race`` without a fix, or else what this package did.

    Of a callable, ``MODULE:CALLABLE``, it is what ``audit`` wrote. Raises :class:`repro.interleave.ScheduleError`,
    :class:`repro.audit.BadTarget` and :class:`repro.races.UnknownRace`.
    """
    if races.is_audit(race):
        audit.check(race)
        return _of_audit(race, file)
    races.documentation(race)
    if file is None:
        return recording.load(str(fixtures() / "schedules" / f"{race}.json"))
    # A script has no fix.
    return recording.load(file, place=(race, NONE))


def _of_audit(name: str, file: str | None) -> Recording:
    if file is None:
        raise ScheduleError(
            f"nothing is recorded of {name}: give what breaks it with --schedule, as python -m repro audit {name} "
            "--json FILE writes it"
        )
    document = recording.read(file, ("audit",))
    if not document.get("cells"):
        raise ScheduleError(f"{file}: nothing breaks the callable there, so there is nothing to report")
    found = recording.load(file)
    if found.fix != NONE:
        raise ScheduleError(f"{file} is of {found.race} under {found.fix}: a script has no fix")
    if audit.parse(found.race).name != name:
        raise ScheduleError(f"{file} is of {audit.parse(found.race).name}, not of {name}")
    return found


def export(
    recording: Recording, *, times: int, smaller: bool = False, native: bool = False, on_run: Callable[[], None]
) -> Exported:
    """Write the script of ``recording``, run it ``times`` times and under other backends, and write the issue.

    With ``smaller`` the script is minimised first; with ``native`` the issue of a crash has its native stacks.
    ``on_run`` is told of each run but those of minimising. Raises :class:`repro.interleave.ScheduleError`,
    :class:`repro.interleave.shrink.Unsteady` and :class:`repro.preflight.NotReady`.
    """
    torch = preflight.torch_version()
    written = write(recording)
    if written.wrapped:
        without = write(recording, wrap=False)
        shown = sum(run(without.text).shown for _ in range(times))
        written = write(recording, unwrapped=f"{shown} of {times} times on torch {torch}")
    if smaller:
        written = minimise(written, times=times)
    trials = issue.trials(written, times, on_run)
    text = issue.write(recording, written, trials, torch, on_run, native=native)
    return Exported(written, text, trials, torch)
