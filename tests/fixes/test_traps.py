"""What looks like a fix fails by the recorded schedule, and the fix that it looks like holds by the same one."""

from __future__ import annotations

import pytest

from repro import decision, fixes, gate, races, results
from repro.decision import Broken
from repro.laboratory import Laboratory
from repro.outcome import Kind
from repro.report import document
from repro.verdict import Verdict, matrix

RELEASE = "2.13.0"
APART = results.recorded(results.apart())
BROKEN: dict[str, Broken] = {
    broken.trap: broken
    for release in decision.releases(results.recorded(), APART, {})
    if release.torch == RELEASE
    for broken in release.traps
}
BY_DAY = ["lock-call", "lock-per-module", "warmup-in-a-thread"]


def test_everything_apart_is_recorded() -> None:
    (record,) = [record for record in APART if str(record.version) == RELEASE]

    assert {fix for _, fix in record.cells} == set(fixes.apart())
    assert sorted(BROKEN) == fixes.traps()
    assert results.reduced(record) == (results.apart() / record.name).read_text(encoding="utf-8")


def test_the_trap_that_takes_a_device_is_recorded_there() -> None:
    (record,) = results.recorded(results.apart(results.folder(results.CUDA)))

    assert set(record.cells) == {(race, fix) for race in races.names_on(["cuda"]) for fix in fixes.ON_CUDA}
    (columns,) = results.recorded(results.folder(results.CUDA))
    shown, held = "waiting-recompiles", "warmup"
    assert record.cells[shown, "warmup-other-device"].outcome is columns.cells[shown, "none"].outcome
    assert columns.cells[shown, held].outcome is Kind.OK


@pytest.mark.parametrize("trap", fixes.traps())
def test_a_trap_is_known_to_fail_where_what_it_looks_like_holds(trap: str) -> None:
    assert BROKEN[trap].race is not None


@pytest.mark.parametrize(
    "trap", [trap if trap in BY_DAY else pytest.param(trap, marks=pytest.mark.nightly) for trap in fixes.traps()]
)
def test_a_trap_fails_and_what_it_looks_like_holds_by_the_same_schedule(trap: str, laboratory: Laboratory) -> None:
    broken = BROKEN[trap]
    assert broken.race is not None
    bare, trapped, proper = matrix(laboratory, [broken.race], [trap, broken.proper], controls=False)
    if bare.observation.outcome.kind is Kind.OK:
        pytest.skip(f"torch {laboratory.torch} does not have {broken.race}, so no trap can be told from a fix by it")

    assert trapped.verdict is Verdict.FAILS, trapped.reason
    assert proper.verdict is Verdict.HOLDS, proper.reason


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fix", fixes.apart())
def test_every_cell_apart_is_as_recorded(fix: str, laboratory: Laboratory) -> None:
    tried = [race for race in races.names(races.THREADS) if any((race, fix) in record.cells for record in APART)]
    report = results.of_document(
        document.of_cells(
            "gate", laboratory.torch, list(matrix(laboratory, tried, [fix], controls=False)), devices=["cpu"]
        )
    )
    if results.best(APART, report.version, report.minor) is None:
        pytest.skip(f"nothing is recorded apart of torch {laboratory.torch}")
    places = [(race, fix) for race in tried]
    answer = gate.compare(gate.release(report, places, results.recorded(), apart=APART), report, places)

    assert not answer.red, [change.text for change in answer.red]
