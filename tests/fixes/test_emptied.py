"""Every fix has a check that goes red when the fix is emptied."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.expectations import expected
from repro.experiment import Experiment
from repro.fixes import COMBINED, NONE, THREADS, beside, load, names, path
from repro.interleave import Schedule
from repro.interleave.replay import Replay
from repro.laboratory import Laboratory
from repro.oracles import recompiles
from repro.outcome import Kind, Sight
from repro.verdict import judge
from repro.workloads import Workload

# Of each fix, the line that does it, and what it is emptied to.
EMPTIED = {
    "lock": ("with LOCK:", "if True:"),
    "warmup": ("output = attention(*example)", "continue"),
    "compiled-mask": ("torch.compile(create_block_mask, dynamic=True)", "create_block_mask"),
    "dynamic": ("torch.compile(flex_attention, dynamic=True)", "torch.compile(flex_attention)"),
    "suppress": ("config.error_on_nested_fx_trace = False", "config.error_on_nested_fx_trace = True"),
    "wrapper": ("torch.compile(attend)", "torch.compile(flex_attention)"),
    "fullgraph": ("torch.compile(flex_attention, fullgraph=True)", "torch.compile(flex_attention)"),
    "own-code": ("function.__code__.replace()", "function.__code__"),
    "context": ("contextvars.copy_context()", "contextvars.Context()"),
    "isolate": ("    mend()\n", "    pass\n"),
    "side-by-side": ("self.turn.wait_for(lambda: self._may_enter(mode))", "pass"),
}
LENGTHS = ((384, 768), (500, 900), (400, 1000))


def emptied(fix: str, folder: Path) -> str:
    kept, replaced = EMPTIED[fix]
    source = path(fix).read_text(encoding="utf-8")
    assert source.count(kept) == 1
    file = folder / path(fix).name
    file.write_text(source.replace(kept, replaced), encoding="utf-8")
    return str(file)


def kind(laboratory: Laboratory, race: str, fix: str) -> Kind:
    return laboratory.perform(Experiment(race=race, fix=fix)).outcome.kind


def known(laboratory: Laboratory, race: str, fix: str) -> Kind:
    """What a cell comes to. Those of the matrix tests/races runs, and holds against this."""
    found = expected(race, fix, laboratory.torch) if fix in (NONE, *names(THREADS)) else None
    return found.outcome if found else kind(laboratory, race, fix)


def test_every_fix_is_emptied_here() -> None:
    # A combination is made of these.
    assert sorted(EMPTIED) == sorted([*(name for name in names(THREADS) if name not in COMBINED), *beside()])


@pytest.mark.parametrize(
    ("fix", "race"),
    [
        ("lock", "tracing-flag-leak"),
        ("warmup", "tracing-flag-leak"),
        ("suppress", "tracing-flag-leak"),
        ("fullgraph", "dense-after-error"),
        ("own-code", "dense-after-error"),
        ("context", "lost-config"),
        ("compiled-mask", "mask-memory"),
        pytest.param("compiled-mask", "mask-metadata-error", marks=pytest.mark.nightly),
        ("isolate", "tracing-bystander-foreign"),
        ("isolate", "mask-metadata-foreign"),
        ("side-by-side", "tracing-flag-leak"),
        ("side-by-side", "mask-metadata-left"),
    ],
)
def test_the_same_schedule_ends_as_without_a_fix(fix: str, race: str, tmp_path: Path, laboratory: Laboratory) -> None:
    bare, fixed = known(laboratory, race, NONE), known(laboratory, race, fix)
    if bare is Kind.OK:
        pytest.skip(f"torch {laboratory.torch} does not have this race, so no fix can be told from none by it")

    assert fixed != bare
    assert kind(laboratory, race, emptied(fix, tmp_path)) is bare


def test_a_cell_that_held_fails_once_the_lock_is_emptied(tmp_path: Path, laboratory: Laboratory) -> None:
    bare = laboratory.perform(Experiment(race="tracing-bystander"))
    if not bare.failed:
        pytest.skip(f"torch {laboratory.torch} does not have this race, so no fix can be told from none by it")

    def verdict(fix: str) -> str:
        observation = laboratory.perform(Experiment(race="tracing-bystander", fix=fix))
        return str(judge("tracing-bystander", fix, observation, bare, None).verdict)

    assert verdict("lock") == "HOLDS"
    assert verdict(emptied("lock", tmp_path)) == "FAILS"


def compiles(laboratory: Laboratory, fix: str) -> Sight:
    """Whether three threads, one after another, compile no more than dynamic shapes promise."""
    workloads = tuple(Workload(queries=queries, keys=keys) for queries, keys in LENGTHS)
    one_by_one = Replay(Schedule())
    run = laboratory.perform(Experiment(race="first-call", fix=fix, strategy=one_by_one, workloads=workloads))
    return recompiles.judge(run.compiled, load("dynamic").promised_compiles(len(workloads)), at_least=1).sight


def test_plain_compiling_breaks_the_promise_of_dynamic_shapes(tmp_path: Path, laboratory: Laboratory) -> None:
    assert compiles(laboratory, "dynamic") is Sight.PASS
    assert compiles(laboratory, emptied("dynamic", tmp_path)) is Sight.FAIL


def compiled_name(file: str) -> str:
    """What a fix compiles, by its public name; runs in the sandbox."""
    from torch.nn.attention.flex_attention import flex_attention

    return str(load(file).compile_attention(flex_attention).__name__)


def test_the_wrapper_is_what_gets_compiled(tmp_path: Path, laboratory: Laboratory) -> None:
    def name(fix: str) -> str:
        ended = laboratory.run("tests.fixes.test_emptied:compiled_name", fix, timeout=60)
        return str(ended.value)

    assert name("wrapper") == "attend"
    assert name(emptied("wrapper", tmp_path)) == "flex_attention"
