"""Markdown: the gate's answer for a pull request, the table of releases, and the pages of races and of decisions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from repro import expectations, fixes, races, recording, results
from repro.decision import Broken, Cost, Covered, Release, Situation
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
        f"## {mark} {answer.title}: {answer.standing.value}",
        f"Against {_text(answer.against)}. {counted(answer)}.",
    ]
    if answer.notes:
        parts.append("\n".join(f"* {_text(note)}" for note in answer.notes))
    if answer.told:
        rows = [
            [str(change.word), place(change), _text(change.text), f"<{change.upstream}>" if change.upstream else ""]
            for change in answer.told
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


def releases(records: Iterable[Report], on_cuda: Iterable[Report]) -> str:
    """What each race comes to without a fix, by release and device; of several Pythons the newest one counts."""
    columns = {str(record.version): record for record in sorted(records, key=lambda record: record.version)}
    columns |= {f"{record.version}{results.on(record.device)}": record for record in on_cuda}
    names = sorted({race for record in columns.values() for race, fix in record.cells if fix == NONE})
    rows = []
    for race in names:
        cells = [record.cells.get((race, NONE)) for record in columns.values()]
        shown = ["" if cell is None else cell.outcome.bare for cell in cells]
        rows.append([f"`{race}`", *shown])
    return _table(["race", *columns], rows) + "\n"


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


# So many names stand in a table; of more than that the number.
_NAMES = 9
_DECISION = """# Which fix for which situation

`python -m repro gate --decision` wrote this page on {date} from what is recorded of torch {releases}; do not edit it.
A fix covers a situation when it holds, by the schedule that fails without it, against every race that the release
shows there. `+` joins fixes: all of them together. `python -m repro list` says what each of them is, and
`repro/fixes/` has the files to paste."""


_COSTS = (
    "Tokens a second of three threads on the CPU are a share of those without a fix, with 95 % bounds and the graphs "
    "that were compiled. None against none came to {}: what is within that is no difference."
)


_TRAPS = ("trap", "fails", "looks like", "shown by")


def decision(found: Sequence[Release], on_cuda: Sequence[tuple[str, Broken]], date: str) -> str:
    """Which fix on which release: by situation, by fix, and what looks like one and is none, ``on_cuda`` last."""
    parts = [_DECISION.format(date=date, releases=_listed([release.torch for release in found]) or "nothing")]
    for release in found:
        parts.append(f"## torch {release.torch}")
        parts.append(_table(["situation", "races", "covered by"], map(_covering, release.situations)))
        everything = [set(situation.needed) for situation in release.situations]
        for situation in release.situations:
            # A situation that is part of another has its rows there.
            if situation.fixes and not any(set(situation.needed) < other for other in everything):
                parts += [f"### {situation.text[0].upper()}{situation.text[1:]}", _fixes(situation, release)]
        if control := release.costs.get((NONE, "warm")):
            parts.append(_COSTS.format(_cost(control)))
        if release.traps:
            parts += [
                "### What does not hold",
                _table(_TRAPS, map(_trap, release.traps)),
            ]
    parts += ["## Training on CUDA", _TRAINING, _table(["race", "torch", "without a fix", "holds"], _trained())]
    traps = [[torch, *_trap(broken)] for torch, broken in on_cuda]
    parts += ["## What does not hold on CUDA", _table(["torch", *_TRAPS], traps)]
    return "\n\n".join(parts) + "\n"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _covering(situation: Situation) -> list[str]:
    covering = [covered.fix for covered in situation.fixes if covered.whole]
    # Nothing is to be joined to what is enough without it.
    whole = [
        fix for fix in covering if not any(set(fixes.parts(other)) < set(fixes.parts(fix)) for other in covering)
    ]
    best = next(iter(situation.fixes), None)
    if whole:
        said = ", ".join(f"`{fix}`" for fix in whole)
    elif best is not None:
        said = f"nothing; `{best.fix}` but for {_named(best.fails)}"
    else:
        said = "nothing is recorded"
    return [situation.text, str(len(situation.needed)), said]


def _fixes(situation: Situation, release: Release) -> str:
    head = ["fix", "holds against", "not against"]
    costed = any((covered.fix, "warm") in release.costs for covered in situation.fixes)
    rows = []
    for covered in situation.fixes:
        costs = [release.costs.get((covered.fix, workload)) for workload in ("warm", "varying")]
        rows.append([*_held(covered, situation), *(map(_cost, costs) if costed else ())])
    return _table([*head, "tokens a second, warm", "with new lengths"] if costed else head, rows)


def _held(covered: Covered, situation: Situation) -> list[str]:
    return [f"`{covered.fix}`", f"{len(covered.holds)} of {len(situation.needed)}", _named(covered.fails)]


def _cost(cost: Cost | str | None) -> str:
    if cost is None:
        return ""
    if isinstance(cost, str):
        return f"a thread failed: `{cost}`"
    compiled = f"; compiled {cost.recompiles}" if cost.recompiles else ""
    return f"{cost.ratio:.2f} ({cost.low:.2f} to {cost.high:.2f}){compiled}"


def _trap(broken: Broken) -> list[str]:
    shown = f"`{broken.race}` ({broken.outcome}): `{broken.schedule}`" if broken.race else ""
    what = _text(fixes.summary(broken.trap)).replace("``", "`")
    return [f"`{broken.trap}`: {what}", f"{len(broken.fails)} of {broken.tried}", f"`{broken.proper}`", shown]


_TRAINING = (
    "What is known of the races that need a CUDA device (`fixtures/expectations/`), and how many fixes were tried."
)


def _trained() -> Iterable[list[str]]:
    for race in races.names(races.CUDA):
        known = {fix: dict(expectations.recorded(race, fix)) for fix in [NONE, *fixes.names(races.CUDA)]}
        for torch, outcome in known[NONE].items():
            holds = [fix for fix in known if fix != NONE and known[fix].get(torch) is Kind.OK]
            tried = [fix for fix in known if fix != NONE and torch in known[fix]]
            said = ", ".join(f"`{fix}`" for fix in holds) or "nothing"
            yield [f"`{race}`", torch, outcome.bare, f"{said}, of {len(tried)}"]


def _named(names: Sequence[str]) -> str:
    if len(names) > _NAMES:
        return f"{len(names)} races"
    return ", ".join(f"`{name}`" for name in names)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
