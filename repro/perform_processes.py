"""Performs one experiment on a race of processes that share a cache directory. Runs inside a sandbox."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro import cache_directory, races, warm
from repro.experiment import Experiment, Observation
from repro.fixes import NONE
from repro.interleave import Fate, LostSeam, Run, Seams
from repro.interleave import processes as by_processes
from repro.interleave.processes import Drive, ProcessDied
from repro.interleave.replay import Replay
from repro.oracles import cache_hits, state
from repro.outcome import Finding, Kind, Outcome, error_outcome
from repro.perform import Scene, describe, prepared, seams

# What went worst is what a run comes to.
_WORST_FIRST = (Kind.WRONG, Kind.DENSE, Kind.CRASH, Kind.ERROR, Kind.POISONED, Kind.INCONCLUSIVE)


def perform(experiment: Experiment, root: str) -> Observation:
    """Run it with a cache directory below ``root``, which the caller removes."""
    race = races.load(experiment.race)
    cache = Path(root) / "cache"
    os.environ[cache_directory.VARIABLE] = str(cache)
    assert race.cache is not None
    seeds = cache.parent.parent / "seeds"
    _fill(cache, race, experiment, seeds)
    scene = Scene(experiment, race)
    strategy = experiment.strategy or Replay(race.recorded())
    names = list(scene.threads)
    standing = seams("cache_seam")

    def body(name: str, drive: Drive) -> tuple[Outcome, list[Finding]]:
        cache_directory.announce(cache, name)
        os.environ["LOCAL_RANK"] = str(names.index(name))
        own = scene.threads[name].own
        if own:
            scene.code.fix.in_each_process()
            # What the fix sets is not what the run leaves behind.
            scene.before = state.snapshot()
            mine = cache_directory.shared()
            if mine != cache and not mine.exists():
                # A directory of its own, from an earlier start: as full as the shared one was.
                _fill(mine, race, experiment, seeds)
        counted = cache_hits.counts()
        with Seams(standing):
            raised = drive(scene.bodies[name])
        if not own:
            return _acted(raised), []
        seen = cache_hits.finding(name, counted, cache_hits.counts())
        if raised is not None:
            # Nothing is left to judge, and another compile would only take its time.
            return error_outcome(raised), [seen]
        outcome, findings, _ = scene.judge({})
        return outcome, [*findings, seen]

    try:
        with Seams(standing) as tried:
            pass
    except LostSeam as lost:
        return Observation(Outcome(Kind.INCONCLUSIVE, str(lost)))
    run = by_processes.run(names, strategy, body, mortal=True)
    findings = [finding for _, found in run.values.values() for finding in found]
    # The innermost come first. What runs in an environment compiles against the Python that it was made from.
    places = {
        root: "RUN",
        tempfile.gettempdir(): "TEMPORARY",
        str(Path(root).parent): "CACHE",
        str(Path(races.__file__).parent.parent.parent): "PROJECT",
        sys.prefix: "PREFIX",
        sys.base_prefix: "PYTHON",
    }
    outcome = _without_paths(_outcome(run, scene, experiment), places)
    return replace(describe(run, strategy, tried.standing, outcome), findings=findings)


def _without_paths(outcome: Outcome, names: Mapping[str, str]) -> Outcome:
    """What a compiler says names files of this machine; elsewhere, only their place in the run means something."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(item) for key, item in value.items()}
        if isinstance(value, str):
            for path, name in names.items():
                value = value.replace(path, name)
        return value

    return Outcome(outcome.kind, renamed(outcome.reason), renamed(outcome.details))


def _fill(cache: Path, race: races.Race, experiment: Experiment, seeds: Path) -> None:
    def compile() -> None:
        # Before its threads are made: one that is in a compile for good would keep this from ever beginning.
        code = prepared(replace(experiment, fix=NONE), race)
        for index in range(len(code.workloads)):
            code.compiled("warm-up", index)()

    # A kernel is compiled against the headers of one environment, and is none for another; and what a process has
    # compiled before counts in the names of what it compiles.
    warmed = Path(warm.__file__).read_text(encoding="utf-8")
    made_for = f"{experiment.workloads or race.workload} {sys.prefix} {warmed}"
    seed = seeds / hashlib.sha256(made_for.encode()).hexdigest()[:16]
    cache_directory.fill(cache, str(race.cache), seed, compile)


def _acted(raised: BaseException | None) -> Outcome:
    """A foreign process is there to do one thing; where it could not, nothing can be said."""
    if raised is None:
        return Outcome(Kind.OK, "done")
    return Outcome(Kind.INCONCLUSIVE, f"it could not do its part: {error_outcome(raised).reason}")


def _outcome(run: Run, scene: Scene, experiment: Experiment) -> Outcome:
    if run.fate is Fate.DEADLOCK:
        return Outcome(Kind.HANG, f"deadlock: {run.explanation}", {"stacks": run.stacks})
    if run.fate is not Fate.DONE and run.stacks:
        # What processes share is files, and locks on these are modelled: nobody else can wake it.
        reason = f"{run.explanation}: all its threads sleep, and nobody is there to wake them"
        return Outcome(Kind.HANG, reason, {"stacks": run.stacks})
    if run.fate is not Fate.DONE:
        return Outcome(Kind.INCONCLUSIVE, run.explanation)
    outcomes = {name: outcome for name, (outcome, _) in run.values.items()}
    for name, error in run.errors.items():
        thread = scene.threads[name]
        if not isinstance(error, ProcessDied):
            outcomes[name] = Outcome(Kind.INCONCLUSIVE, str(error))
        elif not thread.own:
            outcomes[name] = Outcome(Kind.INCONCLUSIVE, f"it could not do its part: {error}")
        else:
            outcomes[name] = Outcome(Kind.CRASH, str(error), {"signal": -error.code})
    as_recorded = experiment.fix == NONE and experiment.strategy is None
    for name, thread in scene.threads.items():
        if thread.doomed and as_recorded and outcomes[name].kind is Kind.OK:
            outcomes[name] = Outcome(
                Kind.INCONCLUSIVE, "it was to fail, and did not: there is nothing to recover from"
            )
        elif thread.doomed and outcomes[name].kind not in (Kind.WRONG, Kind.DENSE, Kind.INCONCLUSIVE):
            del outcomes[name]
    for kind in _WORST_FIRST:
        for name, outcome in outcomes.items():
            if outcome.kind is kind:
                return Outcome(kind, f"process {name}: {outcome.reason}", outcome.details)
    return Outcome(Kind.OK, "each process is right and block-sparse; a lone call in each works")
