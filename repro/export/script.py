"""From a recorded schedule to a script that anybody can run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from repro import races
from repro.interleave.schedule import ScheduleError, Switch
from repro.recording import Recording

FORMS = Path(__file__).parent / "forms"
# Stands where a place has no hand-over; its line goes.
_NOTHING = "\N{NULL}"


@dataclass(frozen=True)
class HandOver:
    """Hand-over ``number`` of a script."""

    number: int
    switch: Switch

    @property
    def address(self) -> str:
        return f"{self.switch.thread}:{self.switch.seam}#{self.switch.visit}"

    def call(self, *, visit: int = 1, patience: int | None = None) -> str:
        """The line of the script; ``patience`` in seconds where the thread holds a lock that the other may need."""
        nth = f", visit={visit}" if visit > 1 else ""
        bound = f", patience={patience}" if patience else ""
        return f'hand_over({self.number}, "{self.switch.thread}", to="{self.switch.to}"{nth}{bound})'


def name(race: str) -> str:
    """What the script of ``race`` is called."""
    return f"repro_{race.replace('-', '_')}.py"


def script(recording: Recording) -> str:
    """The script of what was recorded. Raises :class:`repro.interleave.ScheduleError` where none can be made."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FORMS),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    form = environment.get_template(f"{recording.race}.py.j2")
    # Once to find out which hand-overs the form has a place for, once to write them down.
    wanted = _Places(_hand_overs(recording))
    form.render(_context(recording, wanted, []))
    known = [each for each in wanted.hand_overs if each.address in wanted.placed or not _optional(each)]
    places = _Places([HandOver(number, each.switch) for number, each in enumerate(known, start=1)])
    text = form.render(_context(recording, places, []))
    return _tidy(text)


class _Places:
    """What a form asks about its places, and which hand-overs found one."""

    def __init__(self, hand_overs: list[HandOver]) -> None:
        self.hand_overs = hand_overs
        self.placed: set[str] = set()

    def at(self, addresses: str, why: str, patience: int | None = None) -> str:
        """The hand-over at the first of the ``addresses``, which stand for one place, that has one."""
        for address in addresses.split():
            if found := self.switches(address):
                return f"{found.call(patience=patience)}  # {why}"
        return _NOTHING

    def switches(self, address: str) -> HandOver | None:
        found = next((each for each in self.hand_overs if each.address == address), None)
        if found:
            self.placed.add(address)
        return found


def _context(recording: Recording, places: _Places, wraps: list[str]) -> dict[str, Any]:
    return {
        "title": races.documentation(recording.race).partition("\n")[0],
        "file": name(recording.race),
        "threads": list(dict.fromkeys(step.partition(":")[0] for step in recording.trace)),
        "hand_overs": places.hand_overs,
        "at": places.at,
        "switches": places.switches,
        "wraps": wraps,
        "standard_library": ["faulthandler", "os", "platform", "sys", "threading", "traceback"],
        "note": "",
    }


def _hand_overs(recording: Recording) -> list[HandOver]:
    """The switches that were asked for and, between them, where a thread stood at a lock and another went on."""
    left = list(recording.asked.switches)
    found = []
    for step in recording.trace:
        address, _, to = step.partition(">")
        if left and address == f"{left[0].thread}:{left[0].seam}#{left[0].visit}":
            found.append(left.pop(0))
        elif to and ":wait:" in address:
            thread, seam, visit = re.split(r":(?=wait:)|#", address)
            found.append(Switch(thread, seam, int(visit), to))
    return [HandOver(number, switch) for number, switch in enumerate([*found, *left], start=1)]


def _optional(hand_over: HandOver) -> bool:
    """A wait is what the threads do by themselves; a script that has no place for it lets it come to that."""
    return hand_over.switch.seam.startswith("wait:")


def _tidy(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines() if _NOTHING not in line]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines).strip() + "\n")
