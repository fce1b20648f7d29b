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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from repro import surface
from repro.laboratory import Laboratory
from repro.surface.accesses import Place, places
from repro.surface.inventory import Global
from repro.surface.points import NoPoint, Points, Spot, spots
from repro.surface.source import Source

OVERLAP = "one:in#1>two, two:in#1>one"
BYSTAND = "one:in#1>two"
BYSTANDER = "bystander"
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
    """What became of one suspect: ``verdict`` is ``stale``, ``lost``, ``seen``, ``shielded``, ``own`` or
    ``not reached``; ``outcome`` is what the oracles of a race say after the run.
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
        return repr(self._state.look(name))[:200]

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

    def go(self) -> None:
        from repro.experiment import Experiment
        from repro.interleave import Fate, Schedule, Scheduler, Seams
        from repro.interleave.replay import Replay, fates
        from repro.perform import Scene, seams
        from repro.races import Race, own
        from repro.surface import actions as made

        schedule = Schedule.parse(self._schedule)

        def threads(code: Any) -> Any:
            bodies = {}
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


def probe(
    laboratory: Laboratory, inventory: surface.Inventory, source: Source, say: Callable[[str], None]
) -> Iterator[Probe]:
    """Every suspect of the inventory, one after another."""
    found = suspects(inventory)
    borrowed, none = all_spots(source, found)
    lone: dict[str, dict[str, Alone]] = {}
    outcomes: dict[str, str] = {}
    lost: dict[str, str] = {}
    for action in ACTIONS:
        ended = laboratory.run("repro.surface.probe:alone", action, borrowed, timeout=600)
        if ended.value is None:
            say(f"alone {action}: {ended.outcome.kind}: {ended.outcome.reason[:300]}")
            continue
        lost |= ended.value["lost"]
        outcomes[action] = ended.value["outcome"]
        lone[action] = {name: Alone(**seen) for name, seen in ended.value["suspects"].items()}
        reached = [name for name, seen in lone[action].items() if seen.inside]
        say(f"alone {action}: {ended.value['outcome']} {ended.value['explanation'][:160]}; borrows {len(reached)}")
    for one in found:
        result = _probe(laboratory, one, borrowed.get(one.name, {}), lone, outcomes)
        if result.verdict == "not reached" and one.name in {**none, **lost}:
            result = replace(result, verdict="no place", reason={**none, **lost}[one.name])
        say(f"{result.name}: {result.verdict} {result.actions} {result.outcome}: {result.reason[:200]}")
        yield result


def _probe(
    laboratory: Laboratory,
    one: Global,
    borrowed: dict[str, list[Spot]],
    lone: dict[str, dict[str, Alone]],
    outcomes: dict[str, str],
) -> Probe:
    reach = [action for action, seen in lone.items() if one.name in seen and seen[one.name].inside]
    if not reach:
        return Probe(one.name, "not reached", "no action borrows it", borrowers=tuple(borrowed))
    best = Probe(one.name, "own", "nothing of it is seen by another thread", borrowers=tuple(borrowed))
    order = ["own", "shielded", "lost", "stale"]

    def keep(result: Probe) -> None:
        nonlocal best
        if order.index(result.verdict) > order.index(best.verdict):
            best = result

    pairs = [(a, b) for a in reach for b in reach]
    # first those of different kinds: they less likely take the same lock
    pairs.sort(key=lambda pair: (pair[0] == pair[1], reach.index(pair[0]) + reach.index(pair[1])))
    for a, b in pairs[:4]:
        ran = _together(laboratory, [a, b], one.name, borrowed, OVERLAP)
        if ran is None:
            continue
        refused = [switch for switch in ran["switches"] if "waits for" in switch]
        if refused:
            keep(Probe(one.name, "shielded", refused[0], (a, b), OVERLAP, tuple(borrowed), ran["before"]))
            continue
        result = _judged(one, borrowed, (a, b), ran, lone)
        if result is not None:
            keep(result)
        if best.verdict == "stale" and best.outcome not in ("ok", ""):
            break
    if best.verdict in ("own", "shielded"):
        best = _seen(laboratory, one, borrowed, reach) or best
    return best


def _seen(laboratory: Laboratory, one: Global, borrowed: dict[str, list[Spot]], reach: list[str]) -> Probe | None:
    """What a thread beside a borrower sees, where no two borrowers can be inside at once."""
    for action in reach[:2]:
        ran = _together(laboratory, [action, BYSTANDER], one.name, borrowed, BYSTAND)
        if ran is not None and ran["beside"] and ran["beside"] != ran["before"]:
            return Probe(
                one.name, "seen", f"a thread beside it sees {ran['beside'][:80]}", (action, BYSTANDER), BYSTAND,
                tuple(borrowed), ran["before"], ran["beside"], ran["after"], ran["outcome"], ran["explanation"],
            )  # fmt: skip
    return None


def _judged(
    one: Global,
    borrowed: dict[str, list[Spot]],
    pair: tuple[str, str],
    ran: dict[str, Any],
    lone: dict[str, dict[str, Alone]],
) -> Probe | None:
    a, b = (lone[action][one.name] for action in pair)
    values = ran["values"]
    made = Probe(
        one.name, "", "", pair, OVERLAP, tuple(borrowed), ran["before"], "", ran["after"], ran["outcome"],
        ran["explanation"],
    )  # fmt: skip
    if ran["after"] != ran["before"] and a.after == a.before and b.after == b.before:
        inside = values.get("two.in", [""])[0]
        return replace(
            made, verdict="stale", reason=f"left {ran['after'][:80]}, found {ran['before'][:80]}", inside=inside
        )
    for thread, seen in (("one", a), ("two", b)):
        at_out = values.get(f"{thread}.out", [])
        if at_out and seen.leaving and at_out[0] != seen.leaving[0] and seen.leaving[0] == seen.inside[0]:
            return replace(
                made,
                verdict="lost",
                reason=f"{thread} had {seen.leaving[0][:80]} inside, and then {at_out[0][:80]}",
                inside=at_out[0],
            )
    return None


def _together(
    laboratory: Laboratory, actions: list[str], name: str, borrowed: dict[str, list[Spot]], schedule: str
) -> dict[str, Any] | None:
    ended = laboratory.run("repro.surface.probe:together", actions, name, borrowed, schedule, timeout=300)
    if isinstance(ended.value, dict):
        return ended.value
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m repro.surface.probe", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", metavar="FILE", required=True)
    parser.add_argument("--only", metavar="NAME", action="append", help="this suspect only (repeatable)")
    options = parser.parse_args(arguments)
    release = version("torch").partition("+")[0]
    found = surface.inventory(release if release in surface.releases() else None)
    source = Source(surface.installed())
    if options.only:
        found = replace(found, globals={name: found.globals[name] for name in options.only})
    with Laboratory(lanes=1) as laboratory:
        probes = list(probe(laboratory, found, source, lambda line: print(line, file=sys.stderr, flush=True)))
    Path(options.json).write_text(dumps(found.torch, probes), encoding="utf-8")
    return 0


def dumps(torch: str, probes: list[Probe]) -> str:
    """As JSON, a line a suspect."""
    lines = [json.dumps(asdict(one)) for one in sorted(probes, key=lambda one: one.name)]
    body = ",\n".join(lines)
    return f'{{"torch":{json.dumps(torch)},"probes":[\n{body}\n]}}\n'


if __name__ == "__main__":
    sys.exit(main())
