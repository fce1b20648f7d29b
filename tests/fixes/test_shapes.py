"""The fixes that hold, over the space of shapes: right, block-sparse, below the dense bound, no more compiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from repro.expectations import expected
from repro.experiment import Experiment, Observation
from repro.fixes import load
from repro.laboratory import Laboratory
from repro.oracles import memory, recompiles
from repro.outcome import Kind, Sight
from repro.workloads import BLOCK, MASKS, Workload

# Of each fix, a race that it holds against, and how many threads come there while a compile is under way.
RACES = {
    "lock": ("tracing-flag-leak", 0),
    "warmup": ("tracing-flag-leak", 0),
    "dynamic": ("first-call", 1),
    "side-by-side": ("tracing-flag-leak", 0),
    "isolate": ("tracing-flag-leak", 0),
    "side-by-side+isolate": ("tracing-flag-leak", 0),
    "lock+dynamic": ("tracing-flag-leak", 0),
    "lock+warmup+dynamic": ("tracing-flag-leak", 0),
    "fullgraph": ("dense-after-error", 0),
}
BY_DAY = ("lock", "dynamic")
# In blocks; never as many of the one as of the other, nor as there are heads: see Fix.promised_compiles.
QUERY_BLOCKS = st.integers(3, 5)
KEY_BLOCKS = st.integers(6, 8)


@st.composite
def lengths(draw: st.DrawFn, multiple: bool) -> tuple[int, int]:
    """Query and key length: both multiples of the block size, or neither."""
    queries, keys = draw(QUERY_BLOCKS) * BLOCK, draw(KEY_BLOCKS) * BLOCK
    if multiple:
        return queries, keys
    missing = st.integers(1, BLOCK - 1)
    return queries - draw(missing), keys - draw(missing)


@st.composite
def workloads(draw: st.DrawFn, mask: str) -> tuple[Workload, ...]:
    """Three that differ in their lengths only, of both kinds, and leave something to check."""
    rest = {
        "batch": draw(st.integers(1, 2)),
        "heads": draw(st.integers(1, 2)),
        "head_dim": draw(st.sampled_from([16, 32, 64])),
        "dtype": draw(st.sampled_from(["float32", "bfloat16"])),
        "mask": mask,
    }
    kinds = (True, False, draw(st.booleans()))
    pairs = draw(st.tuples(*map(lengths, kinds)).filter(lambda pairs: len(set(pairs)) == len(pairs)))
    return tuple(Workload(queries=queries, keys=keys, **rest) for queries, keys in pairs)


def check(fix: str, run: Observation, given: tuple[Workload, ...], waiting: int) -> None:
    note(f"{given}: {run.outcome.kind}: {run.outcome.reason}")
    assert run.outcome.kind is Kind.OK, f"{run.outcome.reason}\n{run.output}"
    passed = {
        name: [f for f in run.findings if f.oracle == name and f.sight is Sight.PASS]
        for name in ("sparsity", "memory", "numerics", "state")
    }
    # Every workload was called once alone, and some in the race.
    assert len(passed["sparsity"]) > len(given)
    assert len(passed["numerics"]) > len(given)
    assert len(passed["memory"]) >= sum(map(memory.can_tell, given))
    assert len(passed["state"]) == 1
    promised = load(fix).promised_compiles(len(given), waiting=waiting)
    assert recompiles.judge(run.compiled, promised).sight is Sight.PASS, (run.compiled, promised)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "fix", [fix if fix in BY_DAY else pytest.param(fix, marks=pytest.mark.nightly) for fix in RACES]
)
def test_a_fix_holds_for_every_shape(
    fix: str, laboratory: Laboratory, record_property: Callable[[str, object], None]
) -> None:
    race, waiting = RACES[fix]
    known = expected(race, fix, laboratory.torch)
    if known is not None and known.outcome is not Kind.OK:
        pytest.skip(f"on torch {laboratory.torch} {fix} is known not to hold against {race} ({known.outcome})")
    seen: set[Workload] = set()

    # Each example is four races, of all masks.
    @settings(max_examples=max(1, settings.default.max_examples // 2))
    @given(st.tuples(*map(workloads, MASKS)))
    def holds(groups: tuple[tuple[Workload, ...], ...]) -> None:
        for group in groups:
            check(fix, laboratory.perform(Experiment(race=race, fix=fix, workloads=group)), group, waiting)
            seen.update(group)

    holds()
    multiples = sum(workload.keys % BLOCK == 0 for workload in seen)
    record_property(
        f"shapes under {fix}", f"{len(seen)}, {multiples} of them multiples of {BLOCK}, {len(MASKS)} masks"
    )
    assert len(seen) >= 12
    assert {workload.mask for workload in seen} == set(MASKS)
    assert 0 < multiples < len(seen)
