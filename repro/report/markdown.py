"""Markdown: the gate's answer for a pull request, and the table of releases for the README."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    races = sorted({race for record in by_release.values() for race, fix in record.cells if fix == NONE})
    rows = []
    for race in races:
        cells = [by_release[version].cells.get((race, NONE)) for version in versions]
        shown = ["" if cell is None else "clean" if cell.outcome is Kind.OK else str(cell.outcome) for cell in cells]
        rows.append([f"`{race}`", *shown])
    return _table(["race", *map(str, versions)], rows) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
