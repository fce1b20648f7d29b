"""Markdown: the gate's answer for a pull request, the table of releases for the README, and ``docs/races.md``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from repro import expectations, fixes, races, recording
from repro.fixes import NONE
from repro.gate import Gate
from repro.outcome import Kind
from repro.report.terminal import counted, place, surface_lines
from repro.results import Report
from repro.verdict import Standing

_MARK = {Standing.AS_EXPECTED: "\N{WHITE HEAVY CHECK MARK}", Standing.NOT: "\N{CROSS MARK}"}


def gate(answer: Gate) -> str:
    mark = _MARK.get(answer.standing, "\N{BLACK QUESTION MARK ORNAMENT}")
    parts = [
        f"## {mark} torch {answer.torch}: {answer.standing.value}",
        f"Against {_text(answer.against)}. {counted(answer)}.",
    ]
    if answer.notes:
        parts.append("\n".join(f"* {_text(note)}" for note in answer.notes))
    if answer.red:
        rows = [
            [str(change.word), place(change), _text(change.text), f"<{change.upstream}>" if change.upstream else ""]
            for change in answer.red
        ]
        parts.append(_table(["", "cell", "what", "upstream"], rows))
    if answer.gained:
        parts.append(f"Seams gained: {', '.join(answer.gained)}.")
    if answer.meaning:
        parts += ["### What it means", "\n".join(f"* {_text(sentence)}" for sentence in answer.meaning)]
    if answer.surface:
        head, *lines = surface_lines(answer.surface)
        parts += [f"### {head[0].upper()}{head[1:]}", "\n".join(f"* {_text(line)}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def releases(records: Iterable[Report]) -> str:
    """What each race comes to without a fix, by release; of several Pythons the newest one counts."""
    by_release = {record.version: record for record in records}
    versions = sorted(by_release)
    names = sorted({race for record in by_release.values() for race, fix in record.cells if fix == NONE})
    rows = []
    for race in names:
        cells = [by_release[version].cells.get((race, NONE)) for version in versions]
        shown = ["" if cell is None else "clean" if cell.outcome is Kind.OK else str(cell.outcome) for cell in cells]
        rows.append([f"`{race}`", *shown])
    return _table(["race", *map(str, versions)], rows) + "\n"


_GROUPS = {
    races.THREADS: "Between threads",
    races.PROCESSES: "Between processes that share a cache directory",
    races.CUDA: "Between threads that need a CUDA device",
}
_HEAD = """\
# Races

Every race of the catalogue: what happens, the schedule that shows it, what it must come to on which releases, and
which fix holds against it there. Written by `python -m repro list --markdown docs/races.md` from the race files, from
`fixtures/schedules/` and from `fixtures/expectations/`; edit those."""


def catalogue() -> str:
    """The races."""
    parts = [_HEAD]
    for group, title in _GROUPS.items():
        parts.append(f"## {title}")
        parts += [_race(name, group) for name in races.names(group)]
    return "\n\n".join(parts) + "\n"


def _race(name: str, group: str) -> str:
    schedule = recording.load(str(expectations.fixtures() / "schedules" / f"{name}.json")).schedule
    text = [line for line in races.documentation(name).splitlines() if not line.startswith("Run it:")]
    story = re.sub(r"\n{3,}", "\n\n", "\n".join(text)).replace("``", "`")
    device = " --device cuda" if group == races.CUDA else ""
    lines = [f"* `python -m repro run {name}{device}`", f"* schedule: `{schedule}`" if len(schedule) else ""]
    under = {fix: dict(expectations.recorded(name, fix)) for fix in fixes.names(group)}
    for releases, outcome in expectations.recorded(name, NONE):
        if outcome is Kind.OK:
            worse = [
                f"`{fix}` fails ({each[releases]})"
                for fix, each in under.items()
                if each.get(releases, outcome) is not outcome
            ]
            lines.append(f"* torch `{releases}`: clean" + (f"; {', '.join(worse)}" if worse else ""))
            continue
        held = [f"`{fix}`" for fix, each in under.items() if each.get(releases) is Kind.OK]
        lines.append(f"* torch `{releases}`: {outcome}; fixes that hold: {', '.join(held) or 'none'}")
    return f"### {name}\n\n{story}\n\n" + "\n".join(filter(None, lines))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
