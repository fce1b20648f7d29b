"""From a recorded schedule to a script that anybody can run."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2

from repro import audit, expectations, races
from repro.export import audited
from repro.fixes import NONE
from repro.interleave.schedule import ScheduleError, Switch
from repro.outcome import Kind
from repro.recording import Recording
from repro.torch_names import entries

FORMS = Path(__file__).parent / "forms"
_FORMS = jinja2.Environment(
    loader=jinja2.FileSystemLoader(FORMS),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
# How often the script of a race and schedule shows it with nothing of torch wrapped, as an export counted it.
_COUNTED = {("backward-bystander", "trainer:backward.trace#1>compiled"): "0 of 10 times on torch 2.11.0"}
_NOT_COUNTED = "that was not counted"
# Where a thread stood before a lock that another one held.
_WAITING = re.compile(r"(?P<thread>[^:]+):(?P<seam>wait:[^#]+)#(?P<visit>\d{1,9})")
_MODULES = ["faulthandler", "os", "sys", "threading"]
_AROUND = ("entering", "entered", "exiting", "exited")
# Stands where a place has no hand-over; its line goes.
_NOTHING = "\N{NULL}"
# Where a user's module will stand, which is put in as it is.
_SOURCE = "# (the module)"
# Seconds until a thread goes on that handed over while it holds a lock which the other turned out to need.
_PATIENCE = 20


@dataclass(frozen=True)
class HandOver:
    """Hand-over ``number`` of a script; ``patience`` as in the script's own ``hand_over``."""

    number: int
    switch: Switch
    patience: int | None = None

    @property
    def address(self) -> str:
        return f"{self.switch.thread}:{self.switch.seam}#{self.switch.visit}"

    @property
    def waits(self) -> bool:
        """What comes by itself, at a lock. Where the form has a place before the lock it hands over there."""
        return self.switch.seam.startswith("wait:")

    def line(self, *, visit: int = 1, patience: int | None = None) -> str:
        options = [f"visit={visit}"] * (visit > 1)
        if bound := max(self.patience or 0, patience or 0):
            options.append(f"patience={bound}")
        arguments = ", ".join([str(self.number), f'"{self.switch.thread}"', f'to="{self.switch.to}"', *options])
        return f"hand_over({arguments})"


def name(race: str) -> str:
    """What the script of ``race`` is called."""
    return f"repro_{re.sub(r'[-.:]', '_', audit.parse(race).name if races.is_audit(race) else race)}.py"


@dataclass(frozen=True)
class Script:
    """``text``, and the functions of torch that it wraps: none, where code of users reaches every hand-over."""

    file: str
    text: str
    wrapped: tuple[str, ...]
    # By its place in the schedule, as ``thread:seam#visit``; empty once they were numbered anew.
    numbers: Mapping[str, int] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self._paragraphs[0]

    @property
    def story(self) -> str:
        return self._paragraphs[1]

    @property
    def _paragraphs(self) -> list[str]:
        return (ast.get_docstring(ast.parse(self.text)) or "").split("\n\n")


def write(recording: Recording, *, wrap: bool = True, unwrapped: str | None = None) -> Script:
    """The script of what was recorded.

    Without ``wrap`` the hand-overs that need a function of torch wrapped are left out, and where none is left the
    threads run freely. How often the race shows then is told where one is wrapped: ``unwrapped``, or else what was
    counted before. Raises :class:`repro.interleave.ScheduleError` where no script can be made.
    """
    form = _form(recording.race)
    users = audited.of(recording) if races.is_audit(recording.race) else None
    # Rendered a first time to see which hand-overs it has a place for.
    first = _Places(_hand_overs(recording))
    form.render(_context(recording, users, first, [], "", free=False))
    places = _Places(_renumbered(first, wrap))
    stray = [each for each in places.hand_overs if each.address not in first.placed]
    wraps = _wraps(stray, recording)
    wrapped = tuple(f"{wrap['module']}.{wrap['path']}" for wrap in wraps)
    note = _note(stray, wrapped, unwrapped or _COUNTED.get((recording.race, str(recording.asked)), _NOT_COUNTED))
    free = not wrap and not places.hand_overs
    text = _tidy(form.render(_context(recording, users, places, wraps, note, free=free)))
    if users:
        users.check_names(text)
        text = text.replace(_SOURCE, users.source)
    return Script(name(recording.race), text, wrapped, {each.address: each.number for each in places.hand_overs})


def formed() -> list[str]:
    """The races that have a form."""
    return sorted(path.name.partition(".")[0] for path in FORMS.glob("[!_]*.py.j2"))


def _form(race: str) -> jinja2.Template:
    if races.is_audit(race):
        return _FORMS.get_template("_audited.py.j2")
    try:
        return _FORMS.get_template(f"{race}.py.j2")
    except jinja2.TemplateNotFound:
        seen = [kind for _, kind in expectations.recorded(race, NONE)]
        if seen and all(kind is Kind.OK for kind in seen):
            raise ScheduleError(f"{race} shows on no recorded release, so there is nothing to report") from None
        raise ScheduleError(
            f"{race} has no script; attach what python -m repro run {race} --json FILE keeps, or write "
            f"repro/export/forms/{race}.py.j2 after one beside it"
        ) from None


class _Places:
    """What a form asks about its places, and which hand-overs found one."""

    def __init__(self, hand_overs: Iterable[HandOver]) -> None:
        self.hand_overs = list(hand_overs)
        self.placed: set[str] = set()

    def at(self, addresses: str, why: str, visit: int = 1, patience: int | None = None) -> str:
        """The hand-over at the first of the ``addresses``, which stand for this place at its ``visit``-th time."""
        for address in addresses.split():
            if found := self.find(address):
                return f"{found.line(visit=visit, patience=patience)}  # {why}"
        return _NOTHING

    def find(self, address: str) -> HandOver | None:
        found = next((each for each in self.hand_overs if each.address == address), None)
        if found:
            self.placed.add(address)
        return found


def _hand_overs(recording: Recording) -> list[HandOver]:
    """The switches that were asked for and, between them, where a thread stood at a lock and another went on."""
    left = list(recording.asked.switches)
    found = []
    for step in recording.trace:
        address, _, to = step.partition(">")
        if left and address == f"{left[0].thread}:{left[0].seam}#{left[0].visit}":
            found.append(left.pop(0))
        elif to and ":wait:" in address:
            waiting = _WAITING.fullmatch(address)
            if waiting is None:
                raise ScheduleError(f"{recording.race}: {step!r} in its trace is no step; record it again")
            found.append(Switch(waiting["thread"], waiting["seam"], int(waiting["visit"]), to))
    return [HandOver(number, switch) for number, switch in enumerate([*found, *left], start=1)]


def _renumbered(first: _Places, wrap: bool) -> list[HandOver]:
    """Without the waits that have no place; before such a wait the thread that holds the lock must have patience."""
    kept: list[HandOver] = []
    for each in first.hand_overs:
        if each.address in first.placed or (wrap and not each.waits):
            kept.append(replace(each, number=len(kept) + 1))
        elif each.waits:
            kept = [
                replace(other, patience=_PATIENCE) if other.switch.thread == each.switch.to else other
                for other in kept
            ]
    return kept


def _wraps(stray: Iterable[HandOver], recording: Recording) -> list[dict[str, Any]]:
    """What ``_wrap.py.j2`` needs for the hand-overs that the form has no place for: a wrap for each seam."""
    seams = {entry["name"]: entry for entry in entries("seam", recording.torch)}
    by_seam: dict[str, list[HandOver]] = defaultdict(list)
    for each in stray:
        by_seam[each.switch.seam.removesuffix(".acquire")].append(each)
    found = []
    # Whoever mends a callable where it stands in the script does so with a lock, as often as not.
    patience = _PATIENCE * (3 if races.is_audit(recording.race) else 1)
    for seam, hand_overs in by_seam.items():
        if seam not in seams or seams[seam]["where"] == "engine":
            raise ScheduleError(
                f"{recording.race}: nothing in a script stands for {hand_overs[0].address}; export a schedule that "
                "switches at other points"
            )
        entry = seams[seam]
        module, _, path = entry["target"].partition(":")
        found.append(
            {
                "number": hand_overs[0].number,
                "module": module,
                "path": path,
                "within": entry["within"].split(":") if "within" in entry else None,
                "where": entry["where"],
                "lines": [
                    f"{each.line(visit=each.switch.visit, patience=patience)}  # no code that users write runs here"
                    for each in hand_overs
                ],
            }
        )
    return found


def _note(stray: list[HandOver], targets: Iterable[str], rate: str) -> str:
    if not stray:
        return ""
    which = " and ".join(f"hand-over {each.number}" for each in stray)
    wrapped = "".join(f"    {target}\n" for target in targets)
    bare = f"How often it shows with nothing wrapped: {rate}."
    return f"No code that users write runs at {which}, so this wraps\n{wrapped}{bare}"


def _context(
    recording: Recording,
    users: audited.Audited | None,
    places: _Places,
    wraps: list[dict[str, Any]],
    note: str,
    *,
    free: bool,
) -> dict[str, Any]:
    # With nothing to leave out there is no control to start.
    control = ["subprocess"] if places.hand_overs else []
    title = users.title if users else races.documentation(recording.race).partition("\n")[0]
    return {
        # For readers of Markdown and of plain text.
        "title": title.replace("``", "`"),
        "file": name(recording.race),
        "threads": list(dict.fromkeys(step.partition(":")[0] for step in recording.trace)),
        "hand_overs": places.hand_overs,
        "at": places.at,
        "find": places.find,
        "wraps": wraps,
        "note": note,
        # Whoever wants to may run: no hand-over says whose turn it is.
        "free": free,
        "audited": users,
        "source": _SOURCE,
        "modules": sorted(
            {*_MODULES, *control, *["functools"] * bool(users), *(each for wrap in wraps for each in _modules(wrap))}
        ),
    }


def _modules(wrap: dict[str, Any]) -> list[str]:
    return [
        "importlib",
        *["contextlib"] * (wrap["where"] in _AROUND),
        *["inspect", "traceback"] * bool(wrap["within"]),
    ]


def _tidy(text: str) -> str:
    """Without the lines of places that have no hand-over, and without a condition that has nothing left to guard."""
    lines: list[str] = []
    source = [line.rstrip() for line in text.splitlines()]
    for number, line in enumerate(source):
        if _NOTHING not in line:
            lines.append(line)
        elif _opens_a_block(lines[-1]) and _indent(source[number + 1]) < _indent(line):
            if lines[-1].lstrip().startswith("if "):
                lines.pop()
            else:
                lines.append(f"{' ' * _indent(line)}pass")
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines).strip() + "\n")


def _opens_a_block(line: str) -> bool:
    return line.partition("  #")[0].endswith(":")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
