"""What the engine promises, on the installed torch: finds without luck or hints, one smallest schedule, exact replay.

A leak that this release no longer has cannot be found: there the tests that find it are skipped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from repro.expectations import expected
from repro.experiment import Experiment, Observation
from repro.exploring import search
from repro.fixes import NONE
from repro.interleave import Schedule
from repro.interleave.bounded import Bounded
from repro.interleave.drawing import points, schedules
from repro.interleave.explore import explore
from repro.interleave.random_walk import RandomWalk
from repro.interleave.replay import Replay
from repro.interleave.scheduler import Strategy
from repro.interleave.shrink import Case, shrink
from repro.laboratory import Laboratory
from repro.outcome import Kind
from repro.preflight import torch_version
from repro.recording import nondeterminism
from repro.verdict import Verdict

RACE = "tracing-flag-leak"
BUDGET = 60
# Neither a database nor an explicit example: nothing is found by having been told.
UNTOLD = settings(
    database=None,
    phases=[Phase.generate, Phase.shrink],
    max_examples=BUDGET,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
Run = Callable[[Schedule], Observation]


@pytest.fixture(scope="module")
def leak(laboratory: Laboratory) -> Kind:
    """What this release is known to come to."""
    known = expected(RACE, NONE, laboratory.torch)
    assert known is not None
    if known.outcome is Kind.OK:
        pytest.skip(f"torch {laboratory.torch} does not have the leak")
    return known.outcome


@pytest.fixture(scope="module")
def fresh(laboratory: Laboratory) -> Run:
    return lambda schedule: laboratory.perform(Experiment(race=RACE, strategy=Replay(schedule)))


@pytest.fixture(scope="module")
def remembered(fresh: Run) -> Run:
    """The thin cut runs no schedule twice; that a second run is the same as the first has a test of its own."""
    return functools.cache(fresh)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.getfixturevalue(request.param)
    return found


class Found(AssertionError):
    pass


def hypothesis_finds(run: Run, seed: int) -> list[Observation]:
    """Every failing run of a property that the leak falsifies: the first find first, the smallest last."""
    finds: list[Observation] = []
    tried: list[Schedule] = []
    before_find: list[int] = []

    @seeded(seed)
    @UNTOLD
    @given(schedules(points(run(Schedule()).steps)))
    def holds(schedule: Schedule) -> None:
        tried.append(schedule)
        observation = run(schedule)
        assert observation.conclusive, observation.outcome.reason
        if observation.failed:
            before_find.append(len(tried))
            finds.append(observation)
            raise Found

    try:
        holds()
    except Found:
        assert before_find[0] <= BUDGET
    return finds


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("run", "seeds", "enough"),
    [
        # One whose find comes early.
        pytest.param("remembered", (1,), 1, id="one seed"),
        pytest.param("fresh", range(20), 19, id="twenty seeds", marks=pytest.mark.nightly),
    ],
    indirect=["run"],
)
def test_hypothesis_finds_the_leak_and_every_find_shrinks_to_the_same(
    run: Run, seeds: Sequence[int], enough: int, leak: Kind, record_property: Callable[[str, object], None]
) -> None:
    beside = expected("first-call", NONE, torch_version())
    if beside is not None and beside.outcome is not Kind.OK:
        pytest.skip("these threads have the race first-call too on this release, so there is more than one to find")
    found = [finds for seed in seeds if (finds := hypothesis_finds(run, seed))]
    record_property("hypothesis finds the leak", f"{len(found)} of {len(seeds)} seeds")

    assert len(found) >= enough
    assert {find.outcome.kind for finds in found for find in finds} == {leak}
    (smallest,) = {Schedule.parse(finds[-1].schedule) for finds in found}
    assert len(smallest) == 2
    for first in {Schedule.parse(finds[0].schedule) for finds in found}:
        shrunk = shrink(lambda case: run(case.schedule), Case(first))
        assert shrunk.smallest
        assert shrunk.case.schedule == smallest


def test_bounded_finds_the_leak_without_luck(remembered: Run, leak: Kind) -> None:
    def run(strategy: Strategy) -> Observation:
        assert isinstance(strategy, Replay)
        return remembered(strategy.schedule)

    found = explore(run, Bounded(switches=2), BUDGET, stop_after=1)

    assert found.failing == 1
    assert not found.inconclusive
    (failure,) = found.failures
    assert failure.trial.outcome.kind is leak
    assert failure.schedule is not None
    assert len(failure.schedule) == 2
    # Fewest switches come first, so the first find is the smallest already.
    assert shrink(lambda case: remembered(case.schedule), Case(failure.schedule)).case.schedule == failure.schedule


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_bounded_ends_and_all_its_finds_shrink_to_the_same(laboratory: Laboratory, fresh: Run, leak: Kind) -> None:
    found = search(laboratory, RACE, strategy="bounded", budget=500)

    assert found.verdict is Verdict.FAILS
    assert found.exploration.exhausted
    assert not found.exploration.nondeterministic
    smallest = {
        shrink(lambda case: fresh(case.schedule), Case(failure.schedule)).case.schedule
        for failure in found.exploration.failures
        if failure.schedule is not None
    }
    assert len(smallest) == 1
    assert found.smallest is not None
    assert smallest == {found.smallest.case.schedule}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("times", [10, pytest.param(50, marks=pytest.mark.nightly)])
def test_each_replay_has_the_same_outcome_and_the_same_trace(times: int, laboratory: Laboratory, leak: Kind) -> None:
    runs = list(laboratory.perform_all([Experiment(race=RACE)] * times))

    assert [run.outcome.kind for run in runs] == [leak] * times
    assert {switch.status for run in runs for switch in run.switches} == {"taken"}
    assert nondeterminism(runs) is None


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("budget", [20, pytest.param(300, marks=pytest.mark.nightly)])
def test_where_there_is_no_race_none_is_found(budget: int, laboratory: Laboratory) -> None:
    def run(strategy: Strategy) -> Observation:
        return laboratory.perform(Experiment(race="first-call", fix="lock", strategy=strategy))

    found = explore(run, RandomWalk(seed=0), budget)

    assert found.schedules == budget
    assert not found.failures
    assert not found.inconclusive
