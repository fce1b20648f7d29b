"""Recorded results: what a release was seen to do, ``fixtures/results/torch-RELEASE-pyPYTHON.json``.

What it was seen to do on CUDA stands in ``fixtures/results/cuda/``.

A :class:`Report` is what releases are compared by. It is read from what ``matrix`` and ``gate`` write with
``--json``, or from a recorded file, which is the same reduced: no date and no message; of a cell that failed the seam
trace, of one that was inconclusive nothing. Traces that many cells share are written once.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from repro.expectations import PROCESSES, Expected, expected, fixtures
from repro.fixes import NONE, names
from repro.interleave.schedule import ScheduleError
from repro.outcome import Kind
from repro.recording import SCHEMA, outcome_named, read, required, strings

CPU, CUDA = DEVICES = ("cpu", "cuda")
# This Python, as reports name it.
PYTHON = ".".join(platform.python_version_tuple()[:2])
# The commands whose files hold cells that were judged.
MEASURED = ("gate", "matrix", "run")
# A cell's place: the race, and the column.
Place = tuple[str, str]


class ReportError(ValueError):
    """A report that cannot be read or is not there; the message names the file and the place."""


@dataclass(frozen=True)
class Seen:
    """What one cell came to.

    ``signature`` is what makes two failures the same, ``trace`` the way there, empty where that was not kept.
    """

    verdict: str
    outcome: Kind
    signature: str
    schedule: str = "-"
    trace: tuple[str, ...] = ()
    reason: str = ""
    by: str = "replay"

    @property
    def conclusive(self) -> bool:
        return self.verdict != "INCONCLUSIVE" and self.outcome is not Kind.INCONCLUSIVE

    @property
    def failed(self) -> bool:
        return self.conclusive and self.outcome is not Kind.OK


@dataclass(frozen=True)
class Asked:
    """What a run was to do.

    ``races`` and ``fixes`` are what it was narrowed to, by name; ``None`` stands for all there are. ``times`` is how
    often each cell ran, ``searched`` whether races that stayed away were searched for; ``None`` where nobody knows.
    """

    races: tuple[str, ...] | None = None
    fixes: tuple[str, ...] | None = None
    times: int | None = None
    searched: bool | None = None


@dataclass(frozen=True)
class Look:
    """A search for a race that its recorded schedule does not show; ``found`` is a schedule that does."""

    race: str
    text: str
    found: str | None = None


@dataclass(frozen=True)
class Report:
    """All cells of one run; ``source`` is where it was read, and ``asked`` what the run was to do.

    ``seams`` names by race the seams and torch locks that stood without a fix, which may bring locks of its own.
    ``looks`` are the searches for races that stayed away. ``devices`` are those that it ran on.
    """

    torch: str
    python: str
    platform: str
    seams: Mapping[str, tuple[str, ...]]
    cells: Mapping[Place, Seen]
    source: str = "this run"
    asked: Asked = Asked()
    looks: tuple[Look, ...] = ()
    devices: tuple[str, ...] = (CPU,)

    @property
    def device(self) -> str:
        """The sort of device that it ran on, one of :data:`DEVICES`."""
        return kind_of(self.devices)

    @property
    def title(self) -> str:
        """The release, and the sort of device where that is not the CPU, in words."""
        return f"torch {self.version}{on(self.device)}"

    @property
    def version(self) -> Version:
        return Version(Version(self.torch).public)

    @property
    def release(self) -> Version:
        """The release that expectations are written for; a build before it belongs to it."""
        return Version(Version(self.torch).base_version)

    @property
    def minor(self) -> str:
        """The Python, as ``3.11``."""
        return ".".join(self.python.split(".")[:2])

    @property
    def name(self) -> str:
        return f"torch-{self.version}-py{self.minor}.json"


def load(file: str) -> Report:
    """Read ``file``. Raises :class:`ReportError`."""
    try:
        return of_document(read(file, MEASURED), file)
    except ScheduleError as error:
        raise ReportError(str(error)) from None


def of_document(document: Any, source: str = "this run") -> Report:
    """The report in a document that ``matrix`` or ``gate`` made. Raises :class:`ReportError`."""
    try:
        return _report(document, source)
    except ScheduleError as error:
        raise ReportError(str(error)) from None


def _report(document: Any, source: str) -> Report:
    torch = required(document, "torch", str, source)
    try:
        Version(torch)
    except InvalidVersion:
        raise ReportError(f"{source}: torch {torch!r} is not a version") from None
    traces = document.get("traces", {})
    named = required(document, "seams", dict, source) if "seams" in document else {}
    seams = {race: strings(named, race, f"{source}: seams") for race in named}
    cells: dict[Place, Seen] = {}
    for number, cell in enumerate(required(document, "cells", list, source), start=1):
        where = f"{source}: cell {number}"
        place = (required(cell, "race", str, where), required(cell, "fix", str, where))
        if place in cells:
            raise ReportError(f"{where}: {' / '.join(place)} stands there twice")
        trace: tuple[str, ...] = ()
        if isinstance(cell.get("trace"), str):
            trace = strings(traces, cell["trace"], f"{source}: traces")
        elif "trace" in cell:
            trace = strings(cell, "trace", where)
        cells[place] = Seen(
            verdict=required(cell, "verdict", str, where),
            outcome=outcome_named(required(cell, "outcome", str, where), where),
            signature=required(cell, "signature", str, where),
            schedule=required(cell, "schedule", str, where),
            trace=trace,
            reason=cell.get("reason", ""),
            by=cell.get("by", "replay"),
        )
        if place[1] == NONE and cell.get("seams"):
            seams[place[0]] = strings(cell, "seams", where)
    return Report(
        torch,
        required(document, "python", str, source),
        required(document, "platform", str, source),
        seams,
        cells,
        source,
        _asked(document, source),
        tuple(_looks(document, source)),
        _devices(document, source),
    )


def on(device: str) -> str:
    """What is added to the name of a release for a sort of ``device`` that is not the CPU."""
    return "" if device == CPU else f" on {device.upper()}"


def kind_of(devices: Iterable[str]) -> str:
    """What sort of device ``devices`` are, as ``cuda`` for ``cuda:0`` and ``cuda:1``. Raises :class:`ValueError`."""
    kinds = {device.partition(":")[0] for device in devices}
    if not kinds or not kinds <= set(DEVICES):
        raise ValueError(
            f"{', '.join(devices) or 'nothing'}: no device that races run on; those are {', '.join(DEVICES)}"
        )
    return CPU if kinds == {CPU} else CUDA


def device_of(file: str) -> str:
    """The sort of device that ``file``, which a command wrote, is of. Raises :class:`ReportError`."""
    try:
        return kind_of(_devices(read(file), file))
    except ScheduleError as error:
        raise ReportError(str(error)) from None


def _devices(document: Any, source: str) -> tuple[str, ...]:
    """Those that the file names; one that names none is of the CPU."""
    devices = strings(document, "devices", source) if "devices" in document else (CPU,)
    try:
        kind_of(devices)
    except ValueError as error:
        raise ReportError(f"{source}: devices: {error}") from None
    return devices


def _looks(document: Any, source: str) -> Iterable[Look]:
    looks = required(document, "looks", list, source) if "looks" in document else []
    for number, look in enumerate(looks, start=1):
        where = f"{source}: look {number}"
        found = required(look, "found", str, where) if isinstance(look, dict) and look.get("found") else None
        yield Look(required(look, "race", str, where), required(look, "text", str, where), found)


def _asked(document: Any, source: str) -> Asked:
    """What the file says that it was narrowed to. One that says nothing is of everything, and must hold it."""
    if "asked" not in document:
        return Asked()
    asked, where = required(document, "asked", dict, source), f"{source}: asked"
    races, fixes = (strings(asked, name, where) if asked.get(name) else None for name in ("races", "fixes"))
    times = required(asked, "times", int, where) if asked.get("times") is not None else None
    searched = required(asked, "searched", bool, where) if asked.get("searched") is not None else None
    return Asked(races, fixes, times, searched)


def reduced(report: Report) -> str:
    """The text of a recorded file: a line for each cell, in a stable order."""
    kept = {place: seen for place, seen in sorted(report.cells.items()) if seen.conclusive and seen.by == "replay"}
    traces = {_digest(seen.trace): list(seen.trace) for seen in kept.values() if seen.failed}
    head = {
        "schema": SCHEMA,
        "torch": str(report.version),
        "python": report.minor,
        "platform": report.platform,
        **({} if report.device == CPU else {"devices": list(report.devices)}),
    }
    cells = [
        {
            "race": race,
            "fix": fix,
            "verdict": seen.verdict,
            "outcome": seen.outcome.value,
            "signature": seen.signature,
            "schedule": seen.schedule,
            **({"trace": _digest(seen.trace)} if seen.failed else {}),
        }
        for (race, fix), seen in kept.items()
    ]
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    lines.append(' "cells": [\n' + ",\n".join(f"  {json.dumps(cell)}" for cell in cells) + "\n ]")
    rows = [f"  {json.dumps(race)}: {json.dumps(list(report.seams[race]))}" for race in sorted(report.seams)]
    lines.append(' "seams": {\n' + ",\n".join(rows) + "\n }")
    rows = [f"  {json.dumps(digest)}: {json.dumps(trace)}" for digest, trace in sorted(traces.items())]
    lines.append(' "traces": {' + ("\n" + ",\n".join(rows) + "\n " if rows else "") + "}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _digest(trace: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(trace).encode()).hexdigest()[:12]


def folder(device: str = CPU) -> Path:
    results = fixtures() / "results"
    return results if device == CPU else results / device


def apart(place: Path | None = None) -> Path:
    """Where that is recorded which is no column of the matrix: further combinations of fixes, and traps."""
    return (place or folder()) / "apart"


def recorded(place: Path | None = None) -> list[Report]:
    """All recorded reports, oldest release first. Raises :class:`ReportError`."""
    files = sorted((place or folder()).glob("torch-*.json"))
    reports = [load(str(file)) for file in files]
    for file, report in zip(files, reports, strict=True):
        if file.name != report.name:
            raise ReportError(f"{file}: holds torch {report.version} on Python {report.minor}; call it {report.name}")
    return sorted(reports, key=lambda report: (report.version, Version(report.python)))


def split(report: Report) -> tuple[Report, Report]:
    """The columns of the matrix, and what is recorded apart."""
    columns = {NONE, PROCESSES, *names()}
    mine = {place: seen for place, seen in report.cells.items() if place[1] in columns}
    rest = {place: seen for place, seen in report.cells.items() if place[1] not in columns}
    return replace(report, cells=mine), replace(report, cells=rest, seams={})


def record(report: Report, place: Path) -> Path:
    """Lay ``report`` over what ``place`` has of its release and Python; cells that did not run stay as they were."""
    place.mkdir(parents=True, exist_ok=True)
    path = place / report.name
    if path.is_file():
        old = load(str(path))
        fresh = {cell: seen for cell, seen in report.cells.items() if seen.conclusive and seen.by == "replay"}
        report = replace(report, seams={**old.seams, **report.seams}, cells={**old.cells, **fresh})
    path.write_text(reduced(report), encoding="utf-8")
    return path


def find(wanted: str, device: str = CPU) -> Report:
    """The report in a file, or what is recorded of a release; on such a ``device``. Raises :class:`ReportError`."""
    if Path(wanted).exists():
        given = load(wanted)
        if given.device != device:
            raise ReportError(f"{wanted} is of {given.device}, and what is to be compared with it of {device}")
        return given
    try:
        version = Version(wanted)
    except InvalidVersion:
        raise ReportError(f"{wanted}: no such file, and no release such as 2.13.0") from None
    records = recorded(folder(device))
    found = best(records, version, PYTHON)
    if found is None:
        known = ", ".join(map(str, sorted({report.version for report in records}))) or "none"
        raise ReportError(f"nothing is recorded of torch {wanted}{on(device)}; recorded are: {known}")
    return found


def expectation(torch: str, devices: Iterable[str]) -> Callable[[str, str], Expected | None]:
    """What a race under a fix must come to on ``torch``: what is written down, or on CUDA was recorded there."""
    record = None
    if kind_of(devices) != CPU:
        record = best(recorded(folder(CUDA)), Version(Version(torch).public), "")

    def known(race: str, fix: str) -> Expected | None:
        written = expected(race, fix, torch)
        seen = record.cells.get((race, fix)) if record else None
        return written if seen is None else Expected(seen.outcome, written.upstream if written else None)

    return known


def best(reports: Iterable[Report], version: Version, python: str) -> Report | None:
    """What is recorded of ``version``, on this Python where there is such a record."""
    same = [report for report in reports if report.version == version]
    return next((report for report in same if report.minor == python), same[-1] if same else None)


def newest(reports: Iterable[Report], before: Version, python: str) -> Report | None:
    """The newest recorded release before ``before``; without one, the newest of all."""
    versions = sorted({report.version for report in reports})
    older = [version for version in versions if version < before]
    return best(reports, (older or versions)[-1], python) if versions else None
