"""From suspected to shown: two threads are driven through each suspect of the inventory, on the installed torch.

For a global that is borrowed (see ``inventory.py``) three things can go wrong between threads:

* *seen*: a thread that borrows nothing sees what another one has put there for itself;
* *lost*: a thread is inside, and another puts back, or puts there, something else;
* *stale*: a thread saved what another had put there, and puts that back after the other has gone: for good.

First every action, something that a user does, runs alone, and it is noted which suspects it borrows. Then two
actions that borrow the same one are interleaved at exactly those places::

    one:in#1>two, two:in#1>one

*one* has changed it, *two* comes and changes it too, *one* goes on to its end, then *two*. Nothing is looked at but
the value itself, in each thread, against the lone run; and then what the oracles of any race say.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from repro import surface
from repro.laboratory import Laboratory
from repro.recording import release_of
from repro.report import document
from repro.surface.accesses import Place, places
from repro.surface.inventory import Global
from repro.surface.points import NoPoint, Points, Spot, spots
from repro.surface.source import Source

OVERLAP = "one:in#1>two, two:in#1>one"
BYSTAND = "one:in#1>two"
BYSTANDER = "bystander"
# Verdicts of two borrowers, the worst last; ends of a run that say nothing; pairs of actions that are tried.
WORSE = ("own", "shielded", "inconclusive", "broken", "lost", "stale")
STUCK = ("deadlock", "uncontrolled")
PAIRS = 4
# What users do (see actions.py); those that take no lock first.
ACTIONS = (
    "mask",
    "uncompiled",
    "symbolic_trace",
    "make_fx",
    "annotate",
    "stance",
    "flops",
    "export",
    "export_strict",
    "compiled",
    "training",
    "error_on_graph_break",
    "explain",
)


@dataclass(frozen=True)
class Alone:
    """What one action did to one suspect, running alone: the values at its places, before and after."""

    inside: list[str] = field(default_factory=list)
    leaving: list[str] = field(default_factory=list)
    before: str = ""
    after: str = ""
    by: str = ""


@dataclass(frozen=True)
class Probe:
    """What became of one suspect: ``verdict`` is ``stale``, ``lost``, ``broken``, ``seen``, ``shielded``, ``own``,
    ``inconclusive``, ``not reached`` or ``no place``; ``outcome`` is what the oracles of a race say after the run.
    """

    name: str
    verdict: str
    reason: str
    actions: tuple[str, str] = ("", "")
    schedule: str = ""
    borrowers: tuple[str, ...] = ()
    before: str = ""
    inside: str = ""
    after: str = ""
    outcome: str = ""
    explanation: str = ""


def suspects(inventory: surface.Inventory) -> list[Global]:
    """What is to be probed: every suspect that nobody has judged, in order of rank."""
    return [one for one in inventory.ranked() if one.suspect and not surface.judgement(one.name, inventory.torch)]


def all_spots(source: Source, found: list[Global]) -> tuple[dict[str, dict[str, list[Spot]]], dict[str, str]]:
    """Where each suspect is borrowed, by borrower; and of those without such a place why."""
    borrowed: dict[str, dict[str, list[Spot]]] = {}
    none: dict[str, str] = {}
    walked: dict[str, list[Place]] = {}
    for one in found:
        for borrower in one.borrowers:
            name = borrower.partition(":")[0]
            if name not in walked:
                module = source.module(name)
                walked[name] = [] if module is None else list(places(source, module, {}))
            try:
                borrowed.setdefault(one.name, {})[borrower] = spots(walked[name], one, borrower)
            except NoPoint as error:
                none[one.name] = str(error)
    return borrowed, none


# ---- in a sandbox


class Witness:
    """Notes the value of each suspect when a thread stands at one of its places, and lets the thread hand over."""

    def __init__(self, names: list[str], on_point: bool) -> None:
        from repro.oracles import state

        self._state = state
        self._names = names
        self._on_point = on_point
        self.values: dict[tuple[str, str, bool], list[str]] = {}

    def value(self, name: str) -> str:
        return self._state.text(self._state.look(name))[:200]

    def __call__(self, name: str, out: bool) -> None:
        from repro.interleave.scheduler import current, point

        here = current()
        thread = here[1] if here is not None else ""
        if thread:
            seen = self.values.setdefault((name, thread, out), [])
            if len(seen) < 3:
                seen.append(self.value(name))
            if self._on_point:
                point("out" if out else "in")


def alone(action: str, borrowed: dict[str, dict[str, list[Spot]]]) -> dict[str, Any]:
    """Run one action alone; what it did to each suspect, by name. Runs in a sandbox."""
    run = _Run([action], borrowed, on_point=False, schedule="-")
    run.go()
    found = {}
    for name in borrowed:
        inside, leaving = (
            run.witness.values.get((name, "one", False), []),
            run.witness.values.get((name, "one", True), []),
        )
        found[name] = asdict(Alone(inside, leaving, run.before[name], run.after[name]))
    return {"suspects": found, "lost": run.lost, "outcome": run.outcome, "explanation": run.explanation}


def together(actions: list[str], name: str, borrowed: dict[str, list[Spot]], schedule: str) -> dict[str, Any]:
    """Run two actions by the schedule; what was seen of the one suspect. Runs in a sandbox."""
    run = _Run(actions, {name: borrowed}, on_point=True, schedule=schedule)
    run.go()
    return {
        "values": {
            f"{thread}.{'out' if out else 'in'}": seen for (_, thread, out), seen in run.witness.values.items()
        },
        "before": run.before[name],
        "after": run.after[name],
        "beside": run.beside,
        "switches": run.switches,
        "errors": run.errors,
        "outcome": run.outcome,
        "explanation": run.explanation,
        "lost": run.lost,
    }


class _Run:
    """One or two actions in threads, watched."""

    def __init__(
        self, actions: list[str], borrowed: dict[str, dict[str, list[Spot]]], *, on_point: bool, schedule: str
    ) -> None:
        self._actions, self._schedule = actions, schedule
        self._names = list(borrowed)
        self._spots = {name: [spot for found in by.values() for spot in found] for name, by in borrowed.items()}
        self.witness = Witness(self._names, on_point)
        self.before: dict[str, str] = {}
        self.after: dict[str, str] = {}
        self.beside = ""
        self.lost: dict[str, str] = {}
        self.switches: list[str] = []
        self.outcome = self.explanation = ""
        self.errors: dict[str, str] = {}

    def go(self) -> None:
        from repro.experiment import Experiment
        from repro.interleave import Fate, Schedule, Scheduler, Seams
        from repro.interleave.replay import Replay, fates
        from repro.outcome import error_outcome
        from repro.perform import Scene, seams
        from repro.races import Race, own
        from repro.surface import actions as made

        schedule = Schedule.parse(self._schedule)

        def threads(code: Any) -> Any:
            bodies: dict[str, Any] = {}
            for index, (thread, action) in enumerate(zip(("one", "two"), self._actions, strict=False)):
                body = self._look if action == BYSTANDER else made.ACTIONS[action](code, thread, index)
                bodies[thread] = own(body)
            return bodies

        race = Race(
            threads=threads,
            schedule=self._schedule,
            outcomes={},
            workload={},
        )
        from repro.workloads import Workload

        # two shapes: both threads compile for themselves
        workloads = (Workload(), Workload(head_dim=64))[: len(self._actions)]
        scene = Scene(Experiment(race="", workloads=workloads), race)
        locks = [seam for seam in seams() if seam.where == "lock"]
        points = Points(self._spots, self.witness)
        with points:
            self.lost = points.lost
            self.before = {name: self.witness.value(name) for name in self._names}
            with Seams(locks, code=scene.code_under_test()):
                run = Scheduler(Replay(schedule)).run(scene.bodies)
            self.after = {name: self.witness.value(name) for name in self._names}
            self.switches = [str(fate) for fate in fates(schedule, run)]
            self.errors = {thread: error_outcome(error).reason[:200] for thread, error in run.errors.items()}
            if run.fate is not Fate.DONE:
                self.outcome, self.explanation = str(run.fate), run.explanation
                return
        if run.errors or (len(self._actions) > 1 and self.after != self.before):
            # a lone call after it takes its time: only where there is something to judge
            outcome, _, _ = scene.judge(run.errors)
            self.outcome, self.explanation = str(outcome.kind), outcome.reason[:400]
        else:
            self.outcome = "ok"

    def _look(self) -> None:
        self.beside = self.witness.value(self._names[0])


# ---- outside


class Prober:
    """Probes suspects in a laboratory: each action alone, once, and then pairs of them."""

    def __init__(self, laboratory: Laboratory, found: list[Global], say: Callable[[str], None] = lambda line: None):
        self._laboratory, self._found, self._say = laboratory, found, say
        self._borrowed, self._none = all_spots(Source(surface.installed()), found)
        self._alone: dict[str, dict[str, Alone]] = {}

    def all(self) -> Iterator[Probe]:
        for action in ACTIONS:
            reached = [name for name, seen in self._lone(action).items() if seen.inside]
            self._say(f"{action} alone borrows {len(reached)}")
        for one in self._found:
            result = self._probe(one)
            self._say(f"{result.name}: {result.verdict} {result.actions} {result.outcome}: {result.reason[:200]}")
            yield result

    def run(self, one: Global, actions: tuple[str, str], schedule: str) -> Probe:
        """One suspect by one schedule."""
        made = Probe(one.name, "own", "", actions, schedule, tuple(self._borrowed[one.name]))
        arguments = (list(actions), one.name, self._borrowed[one.name], schedule)
        ended = self._laboratory.run("repro.surface.probe:together", *arguments, timeout=300)
        if not isinstance(ended.value, dict):
            return replace(made, verdict="inconclusive", reason=ended.outcome.reason, outcome=str(ended.outcome.kind))
        ran = ended.value
        made = replace(
            made,
            before=ran["before"],
            after=ran["after"],
            outcome=ran["outcome"],
            explanation=ran["explanation"],
        )
        if actions[1] == BYSTANDER:
            if ran["beside"] and ran["beside"] != ran["before"]:
                return replace(
                    made, verdict="seen", reason=f"a thread beside it sees {ran['beside'][:80]}", inside=ran["beside"]
                )
            return replace(made, reason="a thread beside it sees nothing of it")
        return self._judged(made, ran)

    def _judged(self, made: Probe, ran: dict[str, Any]) -> Probe:
        refused = [switch for switch in ran["switches"] if "waits for" in switch]
        if refused:
            return replace(made, verdict="shielded", reason=refused[0])
        if not all(switch.endswith(" taken") for switch in ran["switches"]) or ran["outcome"] in STUCK:
            return replace(made, verdict="inconclusive", reason="; ".join(ran["switches"]))
        one, two = (self._lone(action)[made.name] for action in made.actions)
        values = ran["values"]
        if ran["after"] != ran["before"] and one.after == one.before and two.after == two.before:
            inside = values["two.in"][0]
            left = f"left {ran['after'][:80]}, found {ran['before'][:80]}"
            return replace(made, verdict="stale", reason=left, inside=inside)
        for thread, seen in (("one", one), ("two", two)):
            leaving = values.get(f"{thread}.out")
            if leaving and seen.leaving and seen.leaving[0] == seen.inside[0] != leaving[0]:
                was = f"{thread} had {seen.leaving[0][:80]} inside, and then {leaving[0][:80]}"
                return replace(made, verdict="lost", reason=was, inside=leaving[0])
        if ran["errors"]:
            return replace(made, verdict="broken", reason="; ".join(f"{t}: {e}" for t, e in ran["errors"].items()))
        return replace(made, reason="both were inside, and each found what it had put there")

    def _lone(self, action: str) -> dict[str, Alone]:
        if action not in self._alone:
            ended = self._laboratory.run("repro.surface.probe:alone", action, self._borrowed, timeout=600)
            if ended.value is None:
                self._say(f"{action} alone: {ended.outcome.kind}: {ended.outcome.reason[:300]}")
                self._alone[action] = {}
            else:
                self._none |= ended.value["lost"]
                self._alone[action] = {name: Alone(**seen) for name, seen in ended.value["suspects"].items()}
        return self._alone[action]

    def _probe(self, one: Global) -> Probe:
        reach = [action for action in ACTIONS if self._lone(action).get(one.name, Alone()).inside]
        borrowers = tuple(one.borrowers)
        if not reach:
            if one.name in self._none:
                return Probe(one.name, "no place", self._none[one.name], borrowers=borrowers)
            return Probe(one.name, "not reached", "no action borrows it", borrowers=borrowers)
        pairs = [(a, b) for a in reach for b in reach]
        # first where the first one puts something there that was not, then different kinds: they less likely take
        # the same lock
        idle = {action for action in reach if (seen := self._lone(action)[one.name]).inside[0] == seen.before}
        pairs.sort(key=lambda pair: (pair[0] in idle, pair[0] == pair[1], sum(map(reach.index, pair))))
        best = Probe(one.name, "own", "")
        for pair in pairs[:PAIRS]:
            result = self.run(one, pair, OVERLAP)
            if not best.reason or WORSE.index(result.verdict) > WORSE.index(best.verdict):
                best = result
            if best.verdict == "stale" and best.outcome != "ok":
                return best
        if best.verdict in ("stale", "lost", "broken"):
            return best
        for action in reach[:2]:
            result = self.run(one, (action, BYSTANDER), BYSTAND)
            if result.verdict == "seen":
                return result
        return best


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m repro.surface.probe", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", metavar="FILE", required=True)
    parser.add_argument("--only", metavar="NAME", action="append", help="this suspect only (repeatable); others stay")
    options = parser.parse_args(arguments)
    release = release_of(version("torch"))
    found = surface.inventory(release if release in surface.releases() else None)
    if options.only:
        found = replace(found, globals={name: found.globals[name] for name in options.only})
    with Laboratory(lanes=1) as laboratory:
        prober = Prober(laboratory, suspects(found), lambda line: print(line, file=sys.stderr, flush=True))
        probes = _recorded(Path(options.json)) if options.only else {}
        for one in prober.all():
            probes[one.name] = one
            # each costs minutes: what is there stays, whatever comes
            Path(options.json).write_text(dumps(found.torch, probes.values()), encoding="utf-8")
    return 0


def _recorded(file: Path) -> dict[str, Probe]:
    probes = json.loads(file.read_text(encoding="utf-8"))["probes"] if file.is_file() else []
    return {one["name"]: Probe(**one) for one in probes}


def dumps(torch: str, probes: Iterable[Probe]) -> str:
    """As JSON, the envelope on one line and then each suspect."""
    lines = [json.dumps(asdict(one)) for one in sorted(probes, key=lambda one: one.name)]
    body = ",\n".join(lines)
    head = json.dumps(document.envelope("probe", torch, {}, seeds=[]), separators=(",", ":"))
    return f'{head[:-1]},"probes":[\n{body}\n]}}\n'


if __name__ == "__main__":
    sys.exit(main())
