"""From what was seen to a verdict: never green by emptiness."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from repro.expectations import PROCESSES, Expected
from repro.experiment import Experiment, Observation
from repro.fixes import NONE
from repro.interleave import Step, Switch
from repro.interleave.replay import SwitchFate
from repro.outcome import Kind, Outcome
from repro.verdict import Cell, Standing, Verdict, columns, judge, matrix, standing, stayed_away

SWITCH = Switch("a", "fx.trace", 1, "b")
STEPS = [Step("a", "start", 1, ("a", "b"), "a")]
FAILURES = [kind for kind in Kind if kind not in (Kind.OK, Kind.INCONCLUSIVE)]
LINK = "https://example.org/1"


def seen(kind: Kind = Kind.OK, fate: str = "taken", steps: list[Step] = STEPS) -> Observation:
    return Observation(Outcome(kind, f"it was {kind}"), steps=steps, switches=[SwitchFate(SWITCH, fate)])


def verdict(observation: Observation, *, fix: str = "lock", baseline: Observation | None = None) -> tuple[str, str]:
    cell = judge("race", fix, observation, baseline or seen(Kind.ERROR), None)
    return cell.verdict.value, cell.reason


# ---- one cell ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", ["taken", "refused", "absent"])
def test_a_fix_holds_whatever_became_of_a_switch_that_is_reached_without_it(fate):
    assert verdict(seen(fate=fate)) == ("HOLDS", f"a:fx.trace#1>b {fate}")


def test_a_schedule_without_a_switch_can_hold():
    assert verdict(Observation(Outcome(Kind.OK, "all well"), steps=STEPS)) == ("HOLDS", "all well")


@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("fate", ["taken", "absent"])
@pytest.mark.parametrize("fix", [NONE, "lock", PROCESSES])
def test_every_failure_fails_however_it_was_reached(kind, fate, fix):
    assert verdict(seen(kind, fate), fix=fix) == ("FAILS", f"it was {kind}")
    assert verdict(seen(kind, fate, steps=[]), fix=fix)[0] == "FAILS"


@pytest.mark.parametrize("fix", [NONE, "lock", PROCESSES])
def test_an_inconclusive_run_stays_so(fix):
    assert verdict(seen(Kind.INCONCLUSIVE), fix=fix) == ("INCONCLUSIVE", "it was inconclusive")


def test_without_a_fix_a_schedule_that_is_not_reached_is_inconclusive():
    run = seen(fate="absent")
    assert verdict(run, fix=NONE, baseline=run) == (
        "INCONCLUSIVE",
        "the schedule was not reached: a:fx.trace#1>b absent",
    )


def test_a_schedule_that_is_not_reached_without_the_fix_either_proves_nothing_about_it():
    assert verdict(seen(fate="absent"), baseline=seen(fate="absent")) == (
        "INCONCLUSIVE",
        "without a fix the schedule is not reached either: a:fx.trace#1>b absent",
    )


@pytest.mark.parametrize("fate", ["taken", "absent"])
def test_a_run_without_a_fix_that_could_not_be_judged_proves_nothing_about_any(fate):
    assert verdict(seen(fate=fate), baseline=seen(Kind.INCONCLUSIVE)) == (
        "INCONCLUSIVE",
        "the run without a fix proves nothing: it was inconclusive",
    )


@pytest.mark.parametrize("fix", [NONE, "lock", PROCESSES])
def test_no_step_is_no_schedule(fix):
    assert verdict(seen(steps=[]), fix=fix) == ("INCONCLUSIVE", "no schedule ran")


# ---- against the release -----------------------------------------------------------------------------------------


def made(fix: str = "lock", kind: Kind = Kind.OK, known: Kind | None = Kind.OK) -> Cell:
    release = Expected(known, LINK) if known else None
    return judge("race", fix, seen(kind), seen(Kind.ERROR), release)


def test_a_cell_is_as_expected_when_the_outcome_is():
    assert made(kind=Kind.DENSE, known=Kind.DENSE).as_expected
    assert not made(kind=Kind.DENSE, known=Kind.ERROR).as_expected
    assert not made(kind=Kind.OK, known=Kind.ERROR).as_expected


def test_where_nothing_is_written_down_holding_is_expected():
    assert made(kind=Kind.OK, known=None).as_expected
    assert not made(kind=Kind.ERROR, known=None).as_expected


# ---- all cells ---------------------------------------------------------------------------------------------------

SHOWN = made(NONE, Kind.ERROR, Kind.ERROR)


def test_no_cell_is_inconclusive():
    assert standing([]) is Standing.INCONCLUSIVE


def test_a_race_that_shows_and_a_fix_that_holds_are_as_expected():
    assert standing([SHOWN, made()]) is Standing.AS_EXPECTED


def test_a_guard_that_holds_without_a_fix_is_as_expected():
    assert standing([made(NONE), made()]) is Standing.AS_EXPECTED


@pytest.mark.parametrize(
    "odd", [made(kind=Kind.ERROR), made(known=Kind.DENSE), made(NONE, Kind.WRONG, Kind.ERROR), made(NONE, Kind.CRASH)]
)
def test_one_odd_cell_is_not_as_expected(odd):
    assert standing([SHOWN, odd, made()]) is Standing.NOT


@pytest.mark.parametrize("known", [Kind.OK, Kind.INCONCLUSIVE, None])
def test_one_inconclusive_cell_makes_all_inconclusive(known):
    lost = made(kind=Kind.INCONCLUSIVE, known=known)
    assert standing([SHOWN, made(), lost]) is Standing.INCONCLUSIVE
    assert standing([SHOWN, made(kind=Kind.ERROR), lost]) is Standing.INCONCLUSIVE


def test_a_race_that_had_to_show_and_stayed_away_makes_all_inconclusive():
    away = made(NONE, Kind.OK, Kind.ERROR)
    assert stayed_away(away)
    assert standing([away, made()]) is Standing.INCONCLUSIVE
    assert not any(map(stayed_away, [SHOWN, made(), made(NONE), made("lock", Kind.OK, Kind.ERROR)]))


# ---- the table ---------------------------------------------------------------------------------------------------


def test_no_fix_is_the_first_column_and_only_once():
    assert columns("first-call", ["wrapper", NONE, "lock"], controls=False) == [NONE, "wrapper", "lock"]
    assert columns("first-call", [], controls=True) == [NONE, PROCESSES]


class Written:
    """In place of a laboratory: observations that are written down."""

    torch = "2.13.0"

    def __init__(self, **observations: dict[str, Observation]) -> None:
        self.observations = observations

    def perform_all(self, experiments: list[Experiment]) -> Iterator[Observation]:
        return (self.observations[experiment.race.replace("-", "_")][experiment.fix] for experiment in experiments)


def test_each_race_is_judged_by_its_own_run_without_a_fix():
    laboratory = Written(
        first_call={NONE: seen(fate="absent"), "lock": seen(fate="absent")},
        tracing_bystander={NONE: seen(Kind.ERROR), "lock": seen(fate="absent")},
    )
    cells = list(matrix(laboratory, ["first-call", "tracing-bystander"], ["lock"], controls=False))

    assert [(cell.race, cell.fix, cell.verdict) for cell in cells] == [
        ("first-call", NONE, Verdict.INCONCLUSIVE),
        ("first-call", "lock", Verdict.INCONCLUSIVE),
        ("tracing-bystander", NONE, Verdict.FAILS),
        ("tracing-bystander", "lock", Verdict.HOLDS),
    ]
    assert cells[2].expected == Expected(Kind.ERROR, "https://github.com/pytorch/pytorch/issues/126024")
