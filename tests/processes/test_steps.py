"""A deletion of the cache, and the death of a writer, at every step of a compile."""

from __future__ import annotations

import pytest

from repro.experiment import Experiment
from repro.interleave import Schedule
from repro.interleave.replay import Replay
from repro.laboratory import Laboratory

# Of a process that finds compiled kernels, but no graph: where a deletion of all is an error. The Python code of the
# graph and the library of its kernel are not looked for a second time; every other write or lookup is tried again,
# or its failure is caught.
ERRORS = {"cache.rename#1", "cache.load#1", "cache.library#1"}


def by_step(laboratory: Laboratory, race: str, victim: str, other: str) -> dict[str, str]:
    """What comes of handing over to ``other`` at each step that ``victim`` takes by itself."""
    alone = laboratory.perform(Experiment(race=race, strategy=Replay(Schedule())))
    steps = [f"{step.seam}#{step.visit}" for step in alone.steps if step.thread == victim and step.seam != "end"]
    experiments = [
        Experiment(race=race, strategy=Replay(Schedule.parse(f"{victim}:{step}>{other}"))) for step in steps
    ]
    found = {}
    for step, run in zip(steps, laboratory.perform_all(experiments), strict=True):
        assert [switch.status for switch in run.switches] == ["taken"]
        found[step] = str(run.outcome.kind)
    return found


@pytest.mark.timeout(1800)
def test_a_deletion_is_an_error_where_a_file_is_taken_for_there_and_never_wrong(laboratory: Laboratory) -> None:
    found = by_step(laboratory, "cache-wiped-writing", "compiler", "janitor")

    assert set(found) > ERRORS
    assert {step for step, outcome in found.items() if outcome != "ok"} == ERRORS
    assert {found[step] for step in ERRORS} == {"error"}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "race", ["writer-killed", pytest.param("writer-killed-compiling", marks=pytest.mark.nightly)]
)
def test_after_a_writer_died_at_any_step_the_next_process_is_right(race: str, laboratory: Laboratory) -> None:
    found = by_step(laboratory, race, "writer", "killer")

    assert len(found) > 8
    assert set(found.values()) == {"ok"}
