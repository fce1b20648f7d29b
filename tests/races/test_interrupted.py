"""A call that ends in the middle, by an error or by Control-C: what it leaves behind for those that come after it.

Judged as after any race: the process's state, and a lone call, which must be block-sparse.
"""

from __future__ import annotations

from typing import Any

import pytest

from repro.expectations import expected
from repro.fixes import NONE
from repro.laboratory import Laboratory
from repro.outcome import Kind
from repro.preflight import torch_version
from repro.torch_names import entries

# The seams that stand for every race, by what reaches them.
SEAMS = [
    *(("compiled", seam) for seam in ("dynamo.compile", "backend.call", "fx.trace", "fx.traced")),
    *(("uncompiled", seam) for seam in ("hop.env.entered", "hop.env.exiting")),
]
MORE = [
    ("compiled", "flex.trace"),
    ("compiled", "flex.traced"),
    ("compiled", "fx.node"),
    ("compiled", "fx.noded"),
    ("uncompiled", "dynamo.compile"),
    ("uncompiled", "backend.call"),
    ("mask", "mask.sort"),
    ("symbolic_trace", "fx.trace"),
    ("symbolic_trace", "fx.patched"),
    ("make_fx", "make_fx.entered"),
    ("make_fx", "make_fx.exiting"),
    ("export", "export.inputs"),
    ("export", "export.entered"),
    ("export", "export.exiting"),
    ("stance", "stance.set"),
]
PLACES = [
    *(pytest.param(*place, "interrupt", id="-".join(place)) for place in SEAMS),
    *(pytest.param(*place, "error", id=f"{'-'.join(place)}-error", marks=pytest.mark.nightly) for place in SEAMS),
    *(pytest.param(*place, "interrupt", id="-".join(place), marks=pytest.mark.nightly) for place in MORE),
]


def run(laboratory: Laboratory, job: str, *arguments: str) -> Any:
    ended = laboratory.run(f"tests.races.interrupted_jobs:{job}", *arguments, timeout=300)
    assert ended.outcome.kind is Kind.OK, ended.outcome.reason
    return ended.value


def test_each_seam_that_stands_for_every_race_is_one_of_them() -> None:
    standing = [seam for seam in entries("seam", torch_version()) if not seam.get("extra")]
    assert {seam for _, seam in SEAMS} == {
        seam["name"] for seam in standing if seam["where"] not in ("lock", "engine")
    }


@pytest.mark.parametrize(("action", "seam", "error"), PLACES)
def test_a_call_that_is_interrupted_at_a_seam_leaves_nothing(
    action: str, seam: str, error: str, laboratory: Laboratory
) -> None:
    reached, got, outcome, reason = run(laboratory, "at_a_seam", action, seam, error)

    assert reached
    assert "interrupted by the test" in got or "BackendCompilerFailed" in got
    assert outcome == "ok", reason


@pytest.mark.parametrize("error", [pytest.param("error", marks=pytest.mark.nightly), "interrupt"])
def test_a_mask_function_that_raises_while_the_mask_is_built_leaves_nothing(
    error: str, laboratory: Laboratory
) -> None:
    _, got, outcome, reason = run(laboratory, "in_a_function", "mask_mod", error)

    assert got.endswith("interrupted by the test")
    assert outcome == "ok", reason


@pytest.mark.parametrize("which", ["mask_mod, compiled", "score_mod"])
def test_a_function_that_raises_while_it_is_compiled_is_a_call_with_a_mistake(
    which: str, laboratory: Laboratory
) -> None:
    """The race dense-after-error, by another mistake: what raises is read, not run, and the operator is given up."""
    known = expected("dense-after-error", NONE, laboratory.torch)
    _, got, outcome, reason = run(laboratory, "in_a_function", which, "error")

    assert known is not None
    assert got
    assert outcome == known.outcome, reason
