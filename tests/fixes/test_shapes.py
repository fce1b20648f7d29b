"""The fixes that hold, over the space of shapes: right, block-sparse, below the dense bound, no more compiles."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from repro.experiment import Experiment, Observation
from repro.fixes import load
from repro.laboratory import Laboratory
from repro.oracles import memory, recompiles
from repro.outcome import Kind, Sight
from repro.workloads import BLOCK, MASKS, Workload

# Of each fix, a race that it holds against on every release.
RACES = {"lock": "tracing-flag-leak", "warmup": "tracing-flag-leak", "dynamic": "first-call"}
# Above one block: there torch's dynamic shapes begin, and so does what a mask can leave out.
MULTIPLES = st.integers(2, 5).map(lambda blocks: blocks * BLOCK)
OTHERS = st.integers(BLOCK + 1, 5 * BLOCK - 1).filter(lambda length: length % BLOCK)


@st.composite
def lengths(draw: st.DrawFn, multiple: bool) -> tuple[int, int]:
    """Query and key length, more keys than queries; both multiples of the block size, or neither."""
    length = MULTIPLES if multiple else OTHERS
    queries = draw(length)
    return queries, queries + draw(st.integers(1, 4)) * BLOCK + (0 if multiple else draw(st.integers(0, 1)))


@st.composite
def workloads(draw: st.DrawFn, mask: str) -> tuple[Workload, ...]:
    """Three that differ in their lengths only, of both kinds, and leave something to check."""
    rest = {
        "batch": draw(st.integers(1, 2)),
        "heads": draw(st.sampled_from([1, 2, 4])),
        "head_dim": draw(st.sampled_from([16, 32, 64])),
        "dtype": draw(st.sampled_from(["float32", "bfloat16"])),
        "mask": mask,
    }
    kinds = (True, False, draw(st.booleans()))
    pairs = draw(st.tuples(*map(lengths, kinds)).filter(lambda pairs: len(set(pairs)) == len(pairs)))
    return tuple(Workload(queries=queries, keys=keys, **rest) for queries, keys in pairs)


def check(fix: str, run: Observation, given: tuple[Workload, ...]) -> None:
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
    promised = load(fix).promised_compiles(len(given))
    assert recompiles.judge(run.compiled, promised).sight is Sight.PASS, (run.compiled, promised)


@pytest.mark.parametrize("fix", RACES)
def test_a_fix_holds_for_every_shape(
    fix: str, laboratory: Laboratory, record_property: object, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: set[Workload] = set()

    @given(st.tuples(*map(workloads, MASKS)))
    @settings(max_examples=max(settings.default.max_examples // 4, 2) if settings.default else 2)
    def holds(groups: tuple[tuple[Workload, ...], ...]) -> None:
        for group in groups:
            check(fix, laboratory.perform(Experiment(race=RACES[fix], fix=fix, workloads=group)), group)
            seen.update(group)

    holds()
    multiples = sum(workload.keys % BLOCK == 0 for workload in seen)
    with capsys.disabled():
        print(
            f"\n{fix}: {len(seen)} compiled shapes, {multiples} of them multiples of {BLOCK}, masks {', '.join(MASKS)}"
        )
    assert len(seen) >= 12
    assert {workload.mask for workload in seen} == set(MASKS)
    assert 0 < multiples < len(seen)
