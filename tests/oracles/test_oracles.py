"""The oracles of a call, both ways on the same inputs; and each where it cannot look."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from oracle_jobs import NET

from repro.laboratory import Laboratory
from repro.outcome import Finding, Kind, Sight
from repro.workloads import MASKS, Workload

LENGTHS = {"queries": 500, "keys": 700}
ORACLES = ("sparsity", "memory", "numerics", "kernels")


def run(laboratory: Laboratory, job: str, *args: Any) -> Any:
    ended = laboratory.run(f"oracle_jobs:{job}", *args, timeout=NET)
    assert ended.outcome.kind is Kind.OK, (ended.outcome, ended.output)
    return ended.value


@pytest.fixture(scope="session")
def both(laboratory: Laboratory) -> Any:
    @cache
    def findings(mask: str) -> dict[str, dict[str, Finding]]:
        found: dict[str, dict[str, Finding]] = run(laboratory, "both", Workload(mask=mask, **LENGTHS))
        return found

    return findings


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("code", "sight"), [("compiled", Sight.PASS), ("uncompiled", Sight.FAIL)])
def test_tells_compiled_from_uncompiled(both: Any, mask: str, oracle: str, code: str, sight: Sight) -> None:
    finding = both(mask)[code][oracle]
    assert finding.oracle == oracle
    assert finding.sight is sight, finding


@pytest.mark.parametrize("mask", MASKS)
def test_all_of_an_uncompiled_calls_checked_rows_are_touched(both: Any, mask: str) -> None:
    data = both(mask)["uncompiled"]["sparsity"].data
    assert data["touched rows"] == data["checked rows"] >= 256


def test_one_block_has_nothing_to_check(laboratory: Laboratory) -> None:
    sparsity, numerics, clean = run(laboratory, "with_nothing_to_check", Workload(queries=100, keys=128))
    assert sparsity.sight is numerics.sight is Sight.BLIND
    assert clean.sight is Sight.PASS, clean


def test_a_call_that_raised_has_nothing_to_look_at(laboratory: Laboratory) -> None:
    assert [finding.sight for finding in run(laboratory, "without_an_output", Workload())] == [Sight.BLIND] * 2


def test_a_checked_row_may_not_change_by_one_bit(laboratory: Laboratory) -> None:
    same, other = run(laboratory, "changed_by_one_bit", Workload())
    assert (same.sight, other.sight) == (Sight.PASS, Sight.FAIL)
    assert other.data["changed rows"] == 1


def test_uncompiled_numbers_are_right_without_nan(laboratory: Laboratory) -> None:
    workload = Workload(mask="sliding_window", queries=300, keys=300)
    assert run(laboratory, "uncompiled_with", workload, workload).sight is Sight.PASS


def test_one_key_too_many_is_wrong(laboratory: Laboratory) -> None:
    workload = Workload(mask="sliding_window", queries=300, keys=300)
    finding = run(laboratory, "uncompiled_with", workload, Workload(**{**workload.to_json(), "window": 129}))
    assert finding.sight is Sight.FAIL
    # the first 128 rows have no key that the longer window would add
    assert finding.data["wrong rows"] == 300 - 128


def test_a_wrong_shape_is_wrong(laboratory: Laboratory) -> None:
    assert run(laboratory, "wrong_shape", Workload()).sight is Sight.FAIL


def test_a_profile_of_nothing_is_blind(laboratory: Laboratory) -> None:
    assert run(laboratory, "profile_of_nothing", Workload()).sight is Sight.BLIND
