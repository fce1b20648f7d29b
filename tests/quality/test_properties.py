"""Properties over schedules and shapes together, and what is printed where one does not hold."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.version import Version

from repro import fixes, races, results
from repro.expectations import expected
from repro.experiment import Experiment
from repro.interleave import Schedule
from repro.interleave.drawing import points, schedules
from repro.interleave.replay import Replay
from repro.interleave.schedule import steps_to_json
from repro.laboratory import Laboratory
from repro.outcome import Kind
from repro.preflight import torch_version
from repro.recording import load, recorded_schedule
from repro.report.terminal import falsified
from repro.workloads import BLOCK, Workload

pytest_plugins = ["pytester"]

RACE = "tracing-flag-leak"
SMALLEST = Schedule.parse("uncompiled:start#1>compiled, compiled:fx.trace#1>uncompiled")
# These write their masks themselves, and all of them causal.
CAUSAL = ("lost-config", "recompile-limit", "reset-crash")
# Its promise is of threads that do not meet in a compile.
STORM, WAITED = "recompile-storm", "wait:compile_lock"
# In blocks: how many queries there are at least. A mask as a whole is told from a block mask by what it holds.
LEAST = {"mask-memory": 16}


@st.composite
def workloads(draw: st.DrawFn, race: str) -> Workload:
    """With something to skip, and keys that are multiples of a block and keys that are not."""
    least = LEAST.get(race, 2)
    queries = draw(st.integers(least, least + 1)) * BLOCK
    keys = queries + draw(st.integers(0, 2 * BLOCK))
    mask = "causal" if race in CAUSAL else draw(st.sampled_from(["causal", "sliding_window"]))
    return Workload(queries=queries, keys=keys, mask=mask)


def holding() -> Iterator[tuple[str, str]]:
    """Every fix and combination with every race that it is known to hold against, on the installed release.

    What is recorded apart counts too, but for traps: one that holds here or there is a trap none the less.
    """
    version = Version(Version(torch_version()).public)
    beside = results.best(results.recorded(results.apart()), version, results.PYTHON)
    combined = [fix for fix in fixes.apart() if fix not in fixes.traps()]
    for race in races.names_on(["cpu"]):
        for fix in fixes.names(races.group(race)):
            known = expected(race, fix, torch_version())
            if known is not None and known.outcome is Kind.OK:
                yield race, fix
        for fix in combined if beside is not None else ():
            seen = beside.cells.get((race, fix))
            if seen is not None and seen.outcome is Kind.OK:
                yield race, fix


PAIRS = [*holding()]
BY_DAY = [(RACE, "lock"), (RACE, "side-by-side")]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("race", "fix"),
    [pair if pair in BY_DAY else pytest.param(*pair, marks=pytest.mark.nightly) for pair in PAIRS],
)
def test_a_fix_holds_on_every_schedule_and_shape(race: str, fix: str, laboratory: Laboratory, tmp_path: Path) -> None:
    default = laboratory.perform(Experiment(race=race, fix=fix, strategy=Replay(Schedule())))
    # Schedules are drawn first, so what is shrunk first is switches, and then shapes.
    drawn = st.tuples(schedules(points(default.steps)), workloads(race))

    shortest = LEAST.get(race, 2) * BLOCK

    @given(drawn)
    @example((recorded_schedule(race, laboratory.torch) or Schedule(), Workload(queries=shortest, keys=shortest)))
    def holds(pair: tuple[Schedule, Workload]) -> None:
        schedule, workload = pair
        experiment = Experiment(race=race, fix=fix, strategy=Replay(schedule), workloads=(workload,))
        run = laboratory.perform(experiment)
        if race == STORM and run.outcome.kind is Kind.WASTEFUL and any(step.seam == WAITED for step in run.steps):
            # Who waits for a compile compiles again: that is waiting-recompiles, and known of dynamic shapes.
            return
        assert run.outcome.kind is Kind.OK, falsified(experiment, run, laboratory.torch, tmp_path)

    holds()


def test_what_holds_by_day_is_among_what_holds() -> None:
    assert set(BY_DAY) <= set(PAIRS)


PROPERTY = """
from pathlib import Path

from hypothesis import Phase, given, settings, strategies as st

from repro.experiment import Experiment
from repro.interleave import Schedule
from repro.interleave.replay import Replay
from repro.outcome import Kind
from repro.report.terminal import falsified
from repro.workloads import Workload

@settings(database=None, deadline=None, phases=[Phase.generate])
@given(st.builds(Workload, queries=st.just(384), keys=st.just(400)))
def test_there_is_no_race(laboratory, workload):
    schedule = Schedule.parse({line!r})
    experiment = Experiment(race={race!r}, strategy=Replay(schedule), workloads=(workload,))
    run = laboratory.perform(experiment)
    assert run.outcome.kind is {kind!s}, falsified(experiment, run, laboratory.torch, Path({folder!r}))
"""


class Lent:
    """Gives the inner test our laboratory, which is warm."""

    def __init__(self, laboratory: Laboratory) -> None:
        self._laboratory = laboratory

    @pytest.fixture
    def laboratory(self) -> Laboratory:
        return self._laboratory


def test_a_property_that_does_not_hold_prints_how_to_see_it_again(
    laboratory: Laboratory, pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Warnings are errors here too, and a plugin that happens to be installed may warn as it starts.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # Whatever this release comes to, it is not a hang.
    pytester.makepyfile(
        PROPERTY.format(line=str(SMALLEST), race=RACE, kind="Kind.HANG", folder=str(tmp_path)),
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", plugins=[Lent(laboratory)])

    result.assert_outcomes(failed=1)
    printed = [line.removeprefix("E").strip() for line in result.outlines]
    assert f"schedule: {SMALLEST}" in printed
    columns = printed.index(next(line for line in printed if line.split() == ["uncompiled", "compiled"]))
    assert [line.split() for line in printed[columns + 1 : columns + 3]] == [["start", ">"], ["start"]]
    command = shlex.split(next(line for line in printed if line.startswith("python -m repro replay ")))
    recording = load(command[-1])
    assert recording.schedule == SMALLEST
    assert recording.workloads == (Workload(queries=384, keys=400),)
    again = laboratory.perform(recording.experiment())
    assert again.outcome.kind is recording.outcome
    assert tuple(steps_to_json(again.steps)) == recording.trace
