"""What people see: symbols that read without colour, words that say what to do."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Capture, Console
from rich.table import Table
from rich.text import Text

from repro import races
from repro.audit import FOREIGN, Audited
from repro.expectations import PROCESSES
from repro.experiment import Experiment, Observation
from repro.exploring import Searched
from repro.fixes import NONE
from repro.gate import Change, Gate, Span, Word
from repro.interleave.replay import Replay
from repro.outcome import Kind
from repro.recording import Recording, unproven
from repro.report import document
from repro.surface import KINDS, Difference, Inventory, counts, judgement, releases
from repro.verdict import Cell, Standing, Verdict, standing, stayed_away

_STYLE = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.INCONCLUSIVE: "yellow"}
_STANDING = {Standing.AS_EXPECTED: "green", Standing.NOT: "red", Standing.INCONCLUSIVE: "yellow"}
_TITLES = {races.THREADS: "torch {}", races.PROCESSES: "torch {}, processes"}


def matrix(console: Console, cells: Sequence[Cell], torch: str) -> None:
    """Races by fixes, a table for each group. A cell that is not as the release is known to behave has a ``!``."""
    of_processes = races.names(races.PROCESSES)
    for group, title in _TITLES.items():
        members = [cell for cell in cells if (cell.race in of_processes) == (group == races.PROCESSES)]
        if members:
            _table(console, members, title.format(torch))


def _table(console: Console, cells: Sequence[Cell], title: str) -> None:
    columns = list(dict.fromkeys(cell.fix for cell in cells))
    table = Table(title=title, title_justify="left")
    table.add_column("race", no_wrap=True)
    for column in columns:
        # A combination stands one part below the other.
        table.add_column("no fix" if column == NONE else column.replace("+", "+\n"), no_wrap=True)
    by_place = {(cell.race, cell.fix): cell for cell in cells}
    for race in dict.fromkeys(cell.race for cell in cells):
        # A fix of the user's own may have been tried on some of them only.
        places = [by_place.get((race, column)) for column in columns]
        table.add_row(race, *("-" if place is None else _cell(place) for place in places))
    console.print(table)


def _cell(cell: Cell) -> Text:
    text = word(cell.verdict, cell.fix, cell.observation.outcome.kind)
    return Text(text if cell.as_expected else f"{text} !", style=_STYLE[cell.verdict])


def word(verdict: Verdict, fix: str, kind: Kind) -> str:
    """A cell in a word."""
    if verdict is Verdict.HOLDS:
        # Without a fix there is nothing to hold: the race stayed away.
        return "clean" if fix in (NONE, PROCESSES) else "holds"
    return "?" if verdict is Verdict.INCONCLUSIVE else str(kind)


def _under(race: str, fix: str) -> str:
    if races.is_audit(race):
        return race
    return f"{race} " + {NONE: "without a fix", PROCESSES: "in processes"}.get(fix, f"with fix {fix}")


def cell(console: Console, cell: Cell) -> None:
    """One verdict with its reason, and for a failure the interleaving that shows it."""
    kind = cell.observation.outcome.kind
    shown = f" ({kind})" if cell.verdict is Verdict.FAILS else ""
    console.print(
        Text.assemble(f"{_under(cell.race, cell.fix)}: ", (f"{cell.verdict}{shown}", _STYLE[cell.verdict])),
        soft_wrap=True,
    )
    console.print(f"  {cell.reason}", markup=False, highlight=False, soft_wrap=True)
    if cell.verdict is Verdict.FAILS:
        console.print(f"  schedule: {cell.observation.schedule}", markup=False, highlight=False, soft_wrap=True)
        interleaving(console, cell.observation)


def interleaving(console: Console, observation: Observation) -> None:
    """A column per thread, time running down; ``>`` marks where the turn went to another thread."""
    threads = list(dict.fromkeys(step.thread for step in observation.steps))
    if len(threads) == 1:
        # Nobody to interleave with.
        return
    raised = observation.outcome.details.get("errors", {})
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="bold")
    for thread in threads:
        table.add_column(thread, no_wrap=True)
    for step in observation.steps:
        moved = step.chosen != step.thread and bool(step.ready)
        place = f"{step.seam}#{step.visit}" if step.visit > 1 else step.seam
        if step.seam == "end" and step.thread in raised:
            place = f"raised {raised[step.thread]['type']}"
        text = f"{place} >" if moved else place
        table.add_row(*(text if thread == step.thread else "" for thread in threads))
    console.print(table)


MEANINGS = {
    Kind.ERROR: "a thread of the user's raised",
    Kind.POISONED: "every later call in the process fails, or its state stays changed",
    Kind.DENSE: "silently dense: all scores computed, or memory ran out on them",
    Kind.WASTEFUL: "right and block-sparse, but more was compiled, or held in memory, than the work needs",
    Kind.WRONG: "wrong numbers",
    Kind.CRASH: "the process died",
    Kind.HANG: "a deadlock, or no answer in time",
}


def summary(console: Console, cells: Sequence[Cell]) -> None:
    """What the words in the matrix mean, which cells are not as known, and what it all says."""
    present = {cell.observation.outcome.kind for cell in cells}
    for kind, meaning in MEANINGS.items():
        if kind in present:
            console.print(f"  {kind}: {meaning}")
    for odd in cells:
        if not odd.as_expected:
            cell(console, odd)
            known = odd.expected.outcome if odd.expected else "ok"
            console.print(f"  expected of this release: {known}")
    verdict = standing(cells)
    shown = sum(cell.verdict is Verdict.FAILS for cell in cells)
    held = sum(cell.verdict is Verdict.HOLDS for cell in cells)
    console.print(
        Text.assemble(
            f"{_cells(cells)}: {shown} show a race, {held} hold; ",
            (verdict.value, _STANDING[verdict]),
            " for this release",
        )
    )
    for cell_ in cells:
        if stayed_away(cell_):
            console.print(
                f"  {cell_.race} must appear without a fix on this release and did not: this run proves nothing"
            )


def gate(console: Console, answer: Gate) -> None:
    """What changed, what that means for each fix, and the answer in one line at the end."""

    def line(*parts: str | tuple[str, str]) -> None:
        console.print(Text.assemble(*parts), soft_wrap=True)

    line(f"{answer.title} against {answer.against}")
    for note in answer.notes:
        line(f"  note: {note}")
    for change in answer.told:
        line("  ", (str(change.word), _WORDS[change.word]), f" {place(change)}: {change.text}")
    for name in answer.gained:
        line(f"  gained seam {name}")
    if answer.meaning:
        line("what it means:")
    for sentence in answer.meaning:
        line(f"  {sentence}")
    if answer.surface:
        head, *lines = surface_lines(answer.surface)
        line(head)
        for text in lines:
            line(f"  {text}")
    line(f"{counted(answer)}; ", (answer.standing.value, _STANDING[answer.standing]))


# Suspects that the gate names; there are dozens where torch has moved a whole module.
FEW = 8


def surface_lines(difference: Difference) -> list[str]:
    """What changed on the surface, in few lines: beside verdicts, and to look at where one of them is red."""
    counts = ", ".join(f"{count} {kind}" for kind, count in difference.counts.items()) or "nothing changed"
    lines = [f"surface of torch {difference.old} -> {difference.new}: {counts}"]
    lines += [f"{change.kind}: {change.name}: {change.what}" for change in difference.turns[:FEW]]
    if len(difference.turns) > FEW:
        lines.append(f"and {len(difference.turns) - FEW} more suspects that came, went or moved")
    if difference.changes:
        new = difference.new if difference.new in releases() else "PYTHON"
        lines.append(f"the rest: python -m repro surface --diff {difference.old} {new}")
    return lines


def bisected(console: Console, race: str, found: Mapping[str, Sequence[Span]], asked: Collection[str]) -> None:
    """What a race came to over the recorded releases, a line for each column, and which ``asked`` for has none."""
    for fix, line in found.items():
        steps = [f"{span.seen.outcome} on {span}" for span in line]
        for number, span in enumerate(line):
            if number and line[number - 1].seen.outcome is span.seen.outcome:
                steps[number] += f" in another way: {span.seen.signature}"
        console.print(f"{_under(race, fix)}: {', '.join(steps)}", markup=False, soft_wrap=True)
    for fix in asked:
        if found and fix not in found:
            console.print(f"{_under(race, fix)}: nothing is recorded", markup=False, soft_wrap=True)
    if not any(len(line) > 1 for line in found.values()):
        console.print("nothing changed over the recorded releases" if found else f"nothing is recorded of {race}")


_WORDS = {word: "yellow" if word in (Word.LOST, Word.INCONCLUSIVE) else "red" for word in Word} | {
    Word.BETTER: "green",
    Word.SAME: "green",
}


def counted(answer: Gate) -> str:
    """How many there are of each word."""
    words = [change.word for change in answer.changes]
    each = ", ".join(f"{words.count(word)} {word}" for word in Word if word in words) or "none ran"
    return f"{_cells(words)}: {each}"


def _cells(them: Sized) -> str:
    return f"{len(them)} {'cell' if len(them) == 1 else 'cells'}"


def place(change: Change) -> str:
    """The cell as a person says it."""
    return f"{change.race} / {'no fix' if change.fix == NONE else change.fix}"


def replays(console: Console, recording: Recording, runs: Sequence[Observation], torch: str) -> None:
    """How often the recorded outcome came again, and where a run left the recorded path."""
    same = sum(run.outcome.kind == recording.outcome for run in runs)
    under = _under(recording.race, recording.fix)
    console.print(f"{under}, torch {torch}: {recording.outcome} {same} of {len(runs)}")
    console.print(f"  schedule: {recording.schedule}", markup=False, soft_wrap=True)
    if not recording.lists(torch):
        console.print(f"  notice: recorded on torch {recording.torch}, not on this release", markup=False)
    elif divergence := next(filter(None, map(recording.divergence, runs)), None):
        console.print(f"  left the recorded path at {divergence}", markup=False, soft_wrap=True)
    if why := unproven(runs, recording, torch):
        console.print(f"  inconclusive: {why}", markup=False, soft_wrap=True)
    for run in runs:
        if run.outcome.kind != recording.outcome:
            console.print(f"  {run.outcome.kind}: {run.outcome.reason}", markup=False, soft_wrap=True)
            break
    interleaving(console, runs[0])


def surface(console: Console, inventory: Inventory) -> None:
    """The suspects, the most dangerous first, and how many there are of everything else."""
    judged = {one.name: judgement(one.name, inventory.torch) for one in inventory.globals.values() if one.suspect}
    suspects = [one for one in inventory.ranked() if one.suspect and not judged[one.name]]
    table = Table(title=f"torch {inventory.torch}: changed for a while, for the whole process", title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("global", overflow="fold")
    table.add_column("by", overflow="fold")
    table.add_column("decide on it", justify="right")
    for number, one in enumerate(suspects, start=1):
        table.add_row(str(number), one.name, "\n".join(one.borrowers), str(len(one.deciders)))
    console.print(table)
    for reason in sorted({reason for reason in judged.values() if reason}):
        console.print(f"  {sum(reason == other for other in judged.values())} judged {reason}", soft_wrap=True)
    total = ", ".join(f"{count} {name}" for name, count in counts(inventory).items())
    console.print(f"{len(inventory.globals)} in all: {total}; {len(suspects)} suspects", soft_wrap=True)


def difference(console: Console, difference: Difference) -> None:
    """What changed between two releases: the suspects in full, of the rest how many."""
    console.print(f"surface of torch {difference.old} -> {difference.new}")
    for change in difference.suspects:
        console.print(f"  {change.kind}: {change.name}: {change.what}", markup=False, soft_wrap=True)
    others = Counter(change.kind for change in difference.changes if not change.suspect)
    rest = ", ".join(f"{count} {kind}" for kind, count in others.items()) or "nothing"
    console.print(f"{len(difference.suspects)} changes of suspects; of the rest {rest}", soft_wrap=True)
    for kind, meaning in KINDS.items():
        if kind in difference.counts:
            console.print(f"  {kind}: {meaning}", soft_wrap=True)


def searched(console: Console, found: Searched) -> None:
    """A verdict by search: what was run, what that promises, and the smallest failing schedule."""
    console.print(
        Text.assemble(
            f"{_under(found.race, found.fix)}: ", (str(found.verdict), _STYLE[found.verdict]), f" ({found.reason})"
        ),
        soft_wrap=True,
    )
    if found.baseline is not None:
        console.print(f"  without the fix: {found.baseline}", markup=False, soft_wrap=True)
    console.print(f"  {found.strategy}, seed {found.seed}: {found.exploration}", markup=False, soft_wrap=True)
    if found.smallest is not None:
        trial = found.smallest.trial
        console.print(f"  {trial.outcome.kind}: {trial.outcome.reason}", markup=False, soft_wrap=True)
        console.print(f"  smallest schedule: {found.smallest.case.schedule}", markup=False, soft_wrap=True)
        interleaving(console, trial)


def audited(console: Console, found: Audited) -> None:
    """The verdict about a callable, what was run, the schedule that breaks it, and who else does."""

    def line(*parts: str | tuple[str, str]) -> None:
        console.print(Text.assemble(*parts), soft_wrap=True)

    shown = f" ({found.shown.outcome.kind})" if found.shown is not None else ""
    line(f"{found.target}, {found.threads} threads: ", (f"{found.verdict}{shown}", _STYLE[found.verdict]))
    line(f"  {found.reason}")
    line(f"  {found.strategy}, seed {found.seed}: {found.exploration}")
    line("  each call went backward" if found.trains else "  under no_grad: audited for inference")
    if found.shown is not None:
        if place := found.raised_at:
            line(f"  raised at {place}")
        line(f"  {found.how}")
        if holding := found.holding:
            line(f"  fixes that hold against it on this release, as in repro/fixes/: {', '.join(holding)}")
        line(f"  schedule: {found.shown.schedule}")
        interleaving(console, found.shown)
    if found.beside is None:
        return
    line("against threads that are not yours, on this release:")
    for one in found.beside:
        said = f"  {one.name} ({FOREIGN[one.name].summary}): "
        if one.shown is None:
            line(said, f"inconclusive: {one.inconclusive}" if one.inconclusive else "does not break it")
            continue
        word = ("breaks it", "red") if one.breaks else ("is broken by it", "yellow")
        line(said, word, f" ({one.shown.outcome.kind})")
        line(f"    {one.shown.outcome.reason}")
        if one.how:
            line(f"    {one.how}")
        line(f"    schedule: {one.shown.schedule}")


def audited_text(found: Audited) -> str:
    """:func:`audited` as text, for an assertion."""
    with _captured() as (console, text):
        audited(console, found)
    return text.get()


@contextmanager
def _captured() -> Iterator[tuple[Console, Capture]]:
    """A console whose text is for an assertion."""
    console = Console(width=200, color_system=None, highlight=False)
    with console.capture() as text:
        yield console, text


def falsified(experiment: Experiment, observation: Observation, torch: str, folder: Path) -> str:
    """For the assertion of a property: what happened, and how to see it again.

    Writes the run into ``folder``, where the last one of its race, fix and outcome stays: of a search for the
    smallest example that is the smallest.
    """
    if not observation.steps and isinstance(experiment.strategy, Replay):
        # A crash leaves nothing behind but the schedule that was asked for.
        observation = replace(observation, schedule=str(experiment.strategy.schedule))
    kind = observation.outcome.kind
    file = folder / f"{experiment.race}-{Path(experiment.fix).stem}-{kind}.json"
    document.write(document.of_run(torch, experiment, observation), str(file))
    with _captured() as (console, text):
        console.print(f"{kind}: {observation.outcome.reason}", markup=False, soft_wrap=True)
        console.print(f"  schedule: {observation.schedule}", markup=False, soft_wrap=True)
        for workload in experiment.workloads or ():
            console.print(f"  {workload}", markup=False, soft_wrap=True)
        interleaving(console, observation)
        console.print(f"  python -m repro replay {shlex.quote(str(file))}", markup=False, soft_wrap=True)
    return text.get()
