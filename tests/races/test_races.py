"""Each race, without a fix and under each, by its recorded schedule, on the installed torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from test_schedules import way

from repro import fixes, gate, races, results
from repro.expectations import expected
from repro.experiment import Experiment
from repro.fixes import NONE
from repro.gate import Known
from repro.laboratory import Laboratory
from repro.outcome import Kind
from repro.results import Place, Report
from repro.verdict import Cell, Standing, matrix, places

RELEASES = sorted({str(record.version) for record in results.recorded()})
# Those that need a CUDA device have their tests in tests/gpu.
RACES = races.names_on(["cpu"])
CELLS = places(RACES, fixes.names(), controls=True)


@pytest.mark.parametrize("race", RACES)
def test_every_cell_is_as_this_release_is_known_to_behave(
    race: str,
    laboratory: Laboratory,
    known: Callable[[Report, Sequence[Place]], Known],
    judged: Callable[[str, Sequence[Cell]], Report],
) -> None:
    cells = list(matrix(laboratory, [race], fixes.names(), controls=True))
    report = judged(laboratory.torch, cells)
    wanted = places([race], fixes.names(), controls=True)

    answer = gate.compare(known(report, wanted), report, wanted)

    red = "\n".join(f"{change.id}: {change.text}" for change in answer.red)
    assert answer.standing is Standing.AS_EXPECTED, f"against {answer.against}:\n{red}"
    if recording := way(race):
        assert recording.divergence(cells[0].observation) is None


@pytest.mark.parametrize(("race", "column"), CELLS)
@pytest.mark.parametrize("torch", RELEASES)
def test_every_cell_has_an_expectation(race: str, column: str, torch: str) -> None:
    assert expected(race, column, torch) is not None


def grades(names: list[str]) -> dict[str, dict[str, str]]:
    """How each race grades each outcome; runs in the sandbox, since a race imports torch."""
    return {name: {str(kind): str(races.load(name).grade(kind)[0]) for kind in Kind} for name in names}


def test_what_a_release_shows_without_a_fix_is_graded_so_by_the_race(laboratory: Laboratory) -> None:
    graded = laboratory.run("tests.races.test_races:grades", RACES, timeout=60).value

    for race in RACES:
        for torch in RELEASES:
            known = expected(race, NONE, torch)
            assert known is not None
            right = "acceptable" if known.outcome is Kind.OK else "required"
            assert graded[race][str(known.outcome)] == right, (race, torch)


def test_what_fails_around_the_threads_is_no_race(laboratory: Laboratory) -> None:
    run = laboratory.perform(Experiment(race="first-call", context="nonsense"))

    assert run.outcome.kind is Kind.INCONCLUSIVE
    assert run.outcome.reason.startswith("the run could not be made: ValueError: context must be")


@pytest.mark.parametrize("times", [10, pytest.param(100, marks=pytest.mark.nightly)])
def test_the_leak_is_shown_every_time(times: int, laboratory: Laboratory) -> None:
    known = expected("tracing-flag-leak", NONE, laboratory.torch)
    runs = list(laboratory.perform_all([Experiment(race="tracing-flag-leak")] * times))

    assert known is not None
    assert [run.outcome.kind for run in runs] == [known.outcome] * times
    assert len({tuple(map(str, run.steps)) for run in runs}) == 1
    if known.outcome is Kind.POISONED:
        # Shown by the lone call, not by the name of a flag.
        assert all("lone call fails" in run.outcome.reason for run in runs)


def test_the_processes_of_a_control_overlap(laboratory: Laboratory) -> None:
    run = laboratory.perform(Experiment(race="tracing-flag-leak", processes=True))

    assert run.outcome.kind is Kind.OK, run.outcome.reason
    threads = [step.thread for step in run.steps]
    # Each of the three starts before any of them ends.
    starts = {thread: threads.index(thread) for thread in set(threads)}
    first_end = next(number for number, step in enumerate(run.steps) if step.seam == "end")
    assert len(starts) == 3
    assert max(starts.values()) < first_end
    assert {switch.status for switch in run.switches} == {"taken"}


def test_a_first_call_beside_symbolic_trace_takes_memory_for_all_scores_before_it_fails(
    laboratory: Laboratory,
) -> None:
    known = expected("dense-then-nameerror", NONE, laboratory.torch)
    run = laboratory.perform(Experiment(race="dense-then-nameerror"))

    assert known is not None
    assert run.outcome.kind is known.outcome
    if known.outcome is Kind.DENSE:
        assert run.outcome.details["errors"]["compiled"]["type"] == "NameError"


def test_switches_are_refused_by_the_lock_and_the_lock_is_named(laboratory: Laboratory) -> None:
    run = laboratory.perform(Experiment(race="tracing-flag-leak", fix="lock"))

    assert run.outcome.kind is Kind.OK
    assert [switch.status for switch in run.switches] == ["taken", "refused"]
    assert "waits for LOCK, held by compiled" in run.switches[1].reason
