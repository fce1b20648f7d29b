"""One HTML page about what a command wrote with ``--json``, with nothing to load from anywhere.

The :class:`Page` is the model, ``page.html.j2`` draws it. What is recorded (``fixtures/results``) fills in other
releases, memory and throughput, and is named as recorded. Where something is not known the page says what command
would tell.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from repro import fixes, gate, races, results
from repro.expectations import PROCESSES
from repro.fixes import NONE
from repro.gate import Gate
from repro.interleave.schedule import ScheduleError
from repro.outcome import Kind, Sight
from repro.recording import RUNS, outcome_named, read, release_of, required, strings
from repro.report import pictures
from repro.report.pictures import Bars, Curves, Lanes
from repro.report.terminal import MEANINGS, counted, place, word
from repro.results import CPU, CUDA, DEVICES, Place, Report, ReportError
from repro.verdict import Verdict

_TEMPLATE = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    undefined=jinja2.StrictUndefined,
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATE.filters["size"] = pictures.size
_MARKS = {Verdict.HOLDS: "held", Verdict.FAILS: "shown", Verdict.INCONCLUSIVE: "unclear"}
OTHER = "other"
_TITLES = {
    races.THREADS: "Races of threads",
    races.CUDA: "Races of threads that need a CUDA device",
    races.PROCESSES: "Races of processes",
    OTHER: "Other",
}
_NO_STACKS = "A recorded result keeps neither messages nor stacks."
_SHOWS_IT = "The command above shows it."
# The commands whose files a page is made of.
WROTE = (*RUNS, "replay")
_NOT_JUDGED = "one run, which was not compared with the run without a fix"


@dataclass(frozen=True)
class Release:
    """A release in the matrix. ``note`` says where its cells are from, where they are not of this file."""

    key: str
    name: str
    note: str = ""
    command: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell: what is in the matrix, and what opens from there, if ``id`` names it.

    ``lanes`` names one of the page's pictures, empty where no trace was kept; ``missing`` says what else was not kept
    and ``commands`` how to see the same run again.
    """

    race: str
    fix: str
    release: str
    verdict: Verdict
    outcome: Kind
    reason: str = ""
    id: str = ""
    odd: bool = False
    expected: str = ""
    upstream: str = ""
    signature: str = ""
    schedule: str = ""
    switches: tuple[str, ...] = ()
    lanes: str = ""
    steps: int = 0
    stacks: tuple[tuple[str, str], ...] = ()
    seen: tuple[tuple[str, str, str], ...] = ()
    passed: str = ""
    missing: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        return word(self.verdict, self.fix, self.outcome)

    @property
    def mark(self) -> str:
        return _MARKS[self.verdict]

    @property
    def column(self) -> str:
        return {NONE: "no fix", PROCESSES: "in processes"}.get(self.fix, self.fix)


@dataclass(frozen=True)
class Row:
    race: str
    release: Release
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Table:
    """The races of one group, by fixes; of each race a row for every release."""

    group: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Memory:
    """What calls hold above their inputs; ``rows`` are bytes by curve, by length."""

    torch: str
    platform: str
    workload: str
    rows: Mapping[int, Mapping[str, int]]
    picture: Curves


@dataclass(frozen=True)
class Throughput:
    torch: str
    platform: str
    pairs: int
    threads: int
    rows: Sequence[Mapping[str, Any]]
    picture: Bars


@dataclass(frozen=True)
class Card:
    """What was measured on a GPU: peaks of calls in bytes, and tokens a second under fixes."""

    card: str
    torch: str
    calls: Sequence[Mapping[str, Any]]
    throughput: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Page:
    file: str
    command: str
    torch: str
    python: str
    platform: str
    seeds: Sequence[int]
    releases: Sequence[Release]
    tables: Sequence[Table]
    cells: Sequence[Cell]
    lanes: Mapping[str, Lanes]
    answer: Gate | None
    unseen: int
    search: Mapping[str, Any] | None
    memory: Sequence[Memory]
    throughput: Sequence[Throughput]
    cards: Sequence[Card]
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def own(self) -> list[Cell]:
        """The cells of the file itself."""
        return [cell for cell in self.cells if cell.release == self.releases[0].key]

    def count(self, mark: str) -> int:
        return sum(cell.mark == mark for cell in self.own)


def render(page: Page) -> str:
    return _TEMPLATE.get_template("page.html.j2").render(
        page=page,
        columns=list(dict.fromkeys(column for table in page.tables for column in table.columns)),
        words=sorted({cell.word for table in page.tables for row in table.rows for cell in row.cells.values()}),
        by_key={release.key: release for release in page.releases},
        groups={row.race: table.group for table in page.tables for row in table.rows},
        meanings={kind.value: text for kind, text in MEANINGS.items()},
        counted=counted,
        place=place,
    )


def load(file: str, against: Report | None = None) -> Page:
    """The page of ``file``, compared with ``against``, or with what is recorded of its release.

    Raises :class:`repro.results.ReportError`.
    """
    try:
        return _page(read(file, WROTE), file, against)
    except (ScheduleError, ValueError) as error:
        raise ReportError(str(error)) from None


def _page(document: Mapping[str, Any], file: str, against: Report | None) -> Page:
    drawn: dict[str, Lanes] = {}
    torch = required(document, "torch", str, file)
    own = Release("this", release_of(torch))
    raw = _raw(document, file)
    # A file of recorded schedules has cells of several releases.
    versions = [release_of(each.get("torch", torch)) for each in raw]
    others = [version for version in dict.fromkeys(versions) if version != own.name]
    releases = [own, *(Release(f"file-{version}", version, "this file too") for version in others)]
    cells = [
        _cell(each, at, f"{file}: cell {number}", _again(file, document, each), drawn)
        for at in releases
        for number, (each, version) in enumerate(zip(raw, versions, strict=True), start=1)
        if version == at.name
    ]
    # A file about one race, or about those that were asked for, is a page about them; of a matrix the other releases
    # may have more races.
    wanted = {cell.race for cell in cells}
    asked = document.get("asked")
    narrow = len(wanted) == 1 or (isinstance(asked, dict) and bool(asked.get("races")))
    for report in (each for device in DEVICES for each in reversed(results.recorded(results.folder(device)))):
        if Path(report.source).resolve() == Path(file).resolve():
            continue
        releases.append(
            Release(
                f"recorded-{report.device}-{report.version}-{report.minor}",
                f"{report.version}{results.on(report.device)}",
                f"recorded on Python {report.minor}",
                f"{_measured_again(report)}{_device(report.devices)} --json FILE",
            )
        )
        cells += [
            _recorded(report, each, releases[-1], drawn)
            for each in sorted(report.cells)
            if each[0] in wanted or not narrow
        ]
    cards = [_card(path) for path in sorted((results.folder() / "gpu").glob("*.json"))]
    answer, unseen = _compared(document, raw, file, torch, against)
    return Page(
        file=Path(file).name,
        command=str(document.get("command", "a recorded result")),
        torch=torch,
        python=required(document, "python", str, file),
        platform=required(document, "platform", str, file),
        seeds=document.get("seeds", []),
        releases=[release for release in releases if any(cell.release == release.key for cell in cells)],
        tables=_tables(cells, releases),
        cells=[cell for cell in cells if cell.id],
        lanes=drawn,
        answer=answer,
        unseen=unseen,
        search=document.get("search"),
        memory=[_memory(path) for path in _measured("memory")],
        throughput=[_throughput(path) for path in _measured("throughput")],
        cards=cards,
        about=_about(),
    )


@functools.cache
def _about() -> Mapping[str, str]:
    """A line about every race and every fix."""
    lines = {race: races.documentation(race).partition("\n")[0] for race in races.names()}
    return {
        name: line.replace("``", "")
        for name, line in {**lines, **{fix: fixes.summary(fix) for fix in fixes.names()}}.items()
    }


# ---- the file -----------------------------------------------------------------------------------------------------


def _raw(document: Mapping[str, Any], file: str) -> list[dict[str, Any]]:
    """The cells as they stand in the file, each with its verdict. There is at least one."""
    command = document.get("command")
    if command == "replay":
        runs = required(document, "runs", list, file)
        cells = [{**run, **_head(document, file), "runs": len(runs)} for run in runs[:1]]
    elif command in ("explore", "audit"):
        for name in ("schedules", "threads", "budget", "failing"):
            required(required(document, "search", dict, file), name, int, f"{file}: search")
        head = {**_head(document, file), "by": "search"}
        if document.get("found"):
            how = required(required(document, "found", dict, file), "text", str, f"{file}: found")
            head["reason"] = f"{head['reason']}; {how}"
        # Without a failure there is no run to show, but there is a verdict.
        nothing = {"outcome": "ok" if head["verdict"] == Verdict.HOLDS else "inconclusive", "schedule": "-"}
        cells = [{**cell, **head} for cell in required(document, "cells", list, file)] or [{**nothing, **head}]
        cells += [_beside(each, head, file) for each in document.get("foreign") or []]
    else:
        cells = list(required(document, "cells", list, file))
    if not cells:
        raise ReportError(f"{file}: no cell is in it, so there is nothing to report; give what matrix or run wrote")
    traces = document.get("traces", {})
    for number, cell in enumerate(cells, start=1):
        where = f"{file}: cell {number}"
        required(cell, "race", str, where)
        if isinstance(cell.get("trace"), str):
            cells[number - 1] = {**cell, "trace": list(strings(traces, cell["trace"], f"{file}: traces"))}
    return cells


def _head(document: Mapping[str, Any], file: str) -> dict[str, Any]:
    """What a document says of its one cell. An audit has a callable of the user's in place of a race."""
    names = {"race": "target"} if document.get("command") == "audit" else {"race": "race", "fix": "fix"}
    names |= {"verdict": "verdict", "reason": "reason"}
    return {"fix": NONE, **{key: required(document, name, str, file) for key, name in names.items()}}


def _beside(each: Mapping[str, Any], head: Mapping[str, Any], file: str) -> dict[str, Any]:
    """What an audit says of one thread that is not the user's, as a column."""
    where = f"{file}: foreign"
    breaks, unclear = required(each, "breaks", bool, where), each.get("inconclusive")
    shown = each.get("shown") or {"outcome": "inconclusive" if unclear else "ok", "schedule": "-"}
    verdict = Verdict.FAILS if breaks else Verdict.INCONCLUSIVE if unclear else Verdict.HOLDS
    told = [
        required(part, key, str, where)
        for part, key in ((each, "inconclusive"), (shown, "explanation"), (each, "text"))
        if part.get(key)
    ]
    return {
        **shown,
        "race": head["race"],
        "fix": f"beside {required(each, 'thread', str, where)}",
        "by": "search",
        "verdict": verdict.value,
        "reason": "; ".join(told),
    }


def _cell(
    raw: Mapping[str, Any], release: Release, where: str, commands: tuple[str, ...], drawn: dict[str, Lanes]
) -> Cell:
    race, fix = required(raw, "race", str, where), required(raw, "fix", str, where)
    outcome = outcome_named(required(raw, "outcome", str, where), where)
    if "verdict" in raw:
        try:
            verdict = Verdict(raw["verdict"])
        except ValueError:
            raise ReportError(f"{where}: {raw['verdict']!r} is no verdict; those are {', '.join(Verdict)}") from None
        reason = str(raw.get("reason", ""))
    else:
        failed = outcome not in (Kind.OK, Kind.INCONCLUSIVE)
        verdict = Verdict.FAILS if failed else Verdict.INCONCLUSIVE
        reason = str(raw.get("explanation") or _NOT_JUDGED)
    if raw.get("runs", 1) > 1:
        reason = f"{raw['runs']} replays: {reason}"
    switches = strings(raw, "switches", where) if "switches" in raw else ()
    trace = strings(raw, "trace", where) if "trace" in raw else ()
    details = required(raw, "details", dict, where) if "details" in raw else None
    findings = [
        (*(required(each, name, str, f"{where}: findings") for name in ("oracle", "sight", "message")),)
        for each in (required(raw, "findings", list, where) if "findings" in raw else [])
    ]
    missing = []
    if not trace and outcome is Kind.CRASH:
        missing.append(
            "The process died and left no trace, so there is no picture; the schedule is the one asked for."
        )
    elif not trace and raw.get("by") == "search":
        missing.append("A search keeps the run of a failure only, so there is no picture.")
    elif not trace:
        missing.append(f"Only of failures a recorded result keeps the trace, so there is no picture. {_SHOWS_IT}")
    if details is None and verdict is Verdict.FAILS:
        missing.append(f"{_NO_STACKS} {_SHOWS_IT}")
    return Cell(
        race=race,
        fix=fix,
        release=release.key,
        verdict=verdict,
        outcome=outcome,
        reason=reason,
        id=f"{release.key}-{_plain(race)}-{_plain(fix)}",
        odd=raw.get("as_expected") is False,
        expected=raw.get("expected") or "",
        upstream=raw.get("upstream") or "",
        signature=raw.get("signature", ""),
        schedule=required(raw, "schedule", str, where),
        switches=switches,
        lanes=_drawn(trace, switches, drawn, where),
        steps=len(trace),
        stacks=tuple(_stacks(details or {}, where)),
        seen=tuple(each for each in findings if each[1] != Sight.PASS),
        passed=_passed([oracle for oracle, sight, _ in findings if sight == Sight.PASS]),
        missing=tuple(missing),
        commands=commands,
    )


def _plain(name: str) -> str:
    """A name as part of an id; a fix may be any file, and a race a callable of the user's."""
    return name if name.replace("-", "").isalnum() else hashlib.sha256(name.encode()).hexdigest()[:8]


def _drawn(trace: Sequence[str], switches: Sequence[str], drawn: dict[str, Lanes], where: str) -> str:
    """The name of a picture, which many cells share."""
    if not trace:
        return ""
    name = "lanes-" + hashlib.sha256("\n".join([*trace, *switches]).encode()).hexdigest()[:12]
    if name not in drawn:
        try:
            drawn[name] = pictures.lanes(trace, switches)
        except ValueError as error:
            raise ReportError(f"{where}: {error}") from None
    return name


def _passed(names: Sequence[str]) -> str:
    return ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))


def _stacks(details: Mapping[str, Any], where: str) -> Iterable[tuple[str, str]]:
    """What was raised, by whom; of a hang and of a crash where all threads stood."""
    errors = required(details, "errors", dict, f"{where}: details") if "errors" in details else {}
    for thread, error in errors.items():
        yield f"raised in {thread}", required(error, "traceback", str, f"{where}: details")
    if "traceback" in details and not errors:
        yield "raised", required(details, "traceback", str, f"{where}: details")
    if "lone call" in details:
        yield "raised by a later, lone call", required(details["lone call"], "traceback", str, f"{where}: details")
    if details.get("stacks"):
        yield "where every thread stood", str(details["stacks"])
    if "changed" in details:
        changed = required(details, "changed", dict, f"{where}: details")
        yield "state left changed", "\n".join(f"{name}: {what}" for name, what in changed.items())


def _again(file: str, document: Mapping[str, Any], cell: Mapping[str, Any]) -> tuple[str, ...]:
    """How to see the run of a cell again."""
    race, fix, command = cell["race"], cell.get("fix", NONE), document.get("command")
    seed = (document.get("seeds") or [0])[0]
    found = []
    # Few cells, where those of a matrix are hundreds.
    few = document.get("cells") or [] if command in ("run", "explore", "audit") else []
    kept = {(each.get("race"), each.get("fix")) for each in few}
    if cell.get("trace") and fix in [its for _, its in kept]:
        which = f" --cell {shlex.quote(f'{race}/{fix}')}" if len(kept) > 1 else ""
        found.append(f"python -m repro replay {shlex.quote(file)} -n 3{which}")
    ran_on = strings(document, "devices", file) if "devices" in document else (CPU,)
    if _group(race) == races.CUDA and CUDA not in ran_on:
        ran_on = (CUDA,)
    device = _device(ran_on)
    if command == "audit":
        beside = "" if fix == NONE else " --foreign"
        threads, strategy = required(document, "threads", int, file), required(document, "strategy", str, file)
        how = f"--threads {threads} --strategy {strategy} --seed {seed}"
        found.append(f"python -m repro audit {shlex.quote(race)}{beside} {how}{device}")
    if _group(race) == OTHER:
        return tuple(found)
    if fix == PROCESSES:
        return (*found, f"python -m repro matrix --race {race}{device}")
    under = "" if fix == NONE else f" --fix {shlex.quote(fix)}"
    if cell.get("by") == "search":
        how = f" --strategy {required(document, 'strategy', str, file)}" if command == "explore" else ""
        return (*found, f"python -m repro explore {race}{under}{how} --seed {seed}{device}")
    return (*found, f"python -m repro run {race}{under}{device}")


# ---- what is recorded ---------------------------------------------------------------------------------------------


def _recorded(report: Report, at: Place, release: Release, drawn: dict[str, Lanes]) -> Cell:
    """A cell of a recorded release; what opens from it is its trace, which a failure has."""
    race, fix = at
    seen = report.cells[at]
    only = f" --race {race}" + ("" if fix in (NONE, PROCESSES) else f" --fix {fix}") + _device(report.devices)
    return Cell(
        race=race,
        fix=fix,
        release=release.key,
        verdict=Verdict(seen.verdict),
        outcome=seen.outcome,
        id=f"{release.key}-{race}-{_plain(fix)}" if seen.trace or seen.failed else "",
        signature=seen.signature,
        schedule=seen.schedule,
        lanes=_drawn(seen.trace, (), drawn, report.source),
        steps=len(seen.trace),
        missing=(
            *(() if seen.trace else ("No trace was kept, so there is no picture.",)),
            f"{_NO_STACKS} Under Python {report.minor} the command above shows it.",
        ),
        commands=(f"{_measured_again(report)} --quick{only} --json FILE",),
    )


def _measured_again(report: Report) -> str:
    """The command for another run of what is recorded, under the Python that it is recorded on."""
    return f"python -m repro gate --torch-spec torch=={report.version}"


def _device(devices: Sequence[str]) -> str:
    """The options of a command that runs on ``devices``."""
    return "" if set(devices) == {CPU} else "".join(f" --device {device}" for device in devices)


def _card(path: Path) -> Card:
    """What was measured on a GPU."""
    found = json.loads(path.read_text(encoding="utf-8"))
    where = found["where"]
    torch, card = release_of(found["torch"]), where["cards"][0].partition(",")[0]
    if (several := len(where["devices"])) > 1:
        card = f"{several} x {card}"
    calls = [
        {
            "name": name,
            "bound": call["all scores in bytes"],
            "forward": call["forward"]["peak"],
            "step": call["step"]["peak"],
            "ms": call["forward"]["ms"],
            "kernels": call["forward"]["kernels"],
        }
        for name, call in found.get("calls", {}).items()
    ]
    throughput = [
        {
            "fix": fix,
            "without": row["tokens a second without"],
            "with": row["tokens a second with"],
            "ratio": row["ratio"],
            "low": row["lower 95 % bound of the median"],
            "pairs": len(row["pairs"]),
        }
        for fix, row in found.get("throughput", {}).get("fixes", {}).items()
    ]
    return Card(card, torch, calls, throughput)


def _measured(what: str) -> list[Path]:
    return sorted(results.folder().glob(f"{what}-torch-*.json"))


CURVES = {
    "dense": ("dense fallback (uncompiled)", "dense"),
    "bound": ("all scores in float32: the bound", "bound"),
    "sparse": ("block-sparse (compiled)", "sparse"),
}


def _memory(path: Path) -> Memory:
    document, file = read(str(path)), str(path)
    rows = {row["length"]: {key: row[key] for key in CURVES} for row in required(document, "rows", list, file)}
    workload = ", ".join(f"{key} {value}" for key, value in required(document, "workload", dict, file).items())
    return Memory(document["torch"], document["platform"], workload, rows, pictures.curves(rows, CURVES))


def _throughput(path: Path) -> Throughput:
    document, file = read(str(path)), str(path)
    rows = required(document, "rows", list, file)
    picture = pictures.bars(
        [(f"{row['fix']}, {row['workload']}", row["low"], row["ratio"], row["high"]) for row in rows]
    )
    return Throughput(document["torch"], document["platform"], document["pairs"], document["threads"], rows, picture)


# ---- the answer ---------------------------------------------------------------------------------------------------


def _compared(
    document: Mapping[str, Any], raw: Sequence[Mapping[str, Any]], file: str, torch: str, against: Report | None
) -> tuple[Gate | None, int]:
    """The file's cells against the yardstick, by the rules of the gate; and how many of its cells did not run here.

    Without ``against`` only races of the catalogue are compared: of others nothing can be recorded.
    """
    mine = [
        {"signature": each["outcome"], "verdict": "INCONCLUSIVE", "schedule": "-", **each}
        for each in raw
        if release_of(each.get("torch", torch)) == release_of(torch)
        and (against is not None or _group(each["race"]) != OTHER)
    ]
    if not mine:
        return None, 0
    report = results.of_document({**document, "cells": mine, "traces": {}}, file)
    records = results.recorded(results.folder(report.device))
    yardstick = gate.other(against) if against else gate.release(report, report.cells, records)
    if against is None and not yardstick.outcomes and yardstick.report is None:
        return None, 0
    others = set(yardstick.report.cells if yardstick.report else yardstick.outcomes) - set(report.cells)
    return gate.compare(yardstick, report, report.cells), len(others)


def _tables(cells: Sequence[Cell], releases: Sequence[Release]) -> list[Table]:
    by_place = {(cell.race, cell.release, cell.fix): cell for cell in cells}
    tables = []
    for group, title in _TITLES.items():
        names = sorted({cell.race for cell in cells if _group(cell.race) == group})
        if not names:
            continue
        seen = {cell.fix for cell in cells if cell.race in names}
        order = [NONE, *fixes.names(group)] if group != OTHER else [NONE]
        columns = [fix for fix in order if fix in seen]
        columns += sorted(seen - {*columns, PROCESSES}) + ([PROCESSES] if PROCESSES in seen else [])
        rows = []
        for race in names:
            for release in releases:
                row = {
                    fix: by_place[race, release.key, fix] for fix in columns if (race, release.key, fix) in by_place
                }
                if row:
                    rows.append(Row(race, release, row))
        tables.append(Table(group, title, tuple(columns), tuple(rows)))
    return tables


@functools.cache
def _groups() -> Mapping[str, str]:
    """The group of every race of the catalogue."""
    return {name: group for group in races.GROUPS for name in races.names(group)}


def _group(race: str) -> str:
    return _groups().get(race, OTHER)
