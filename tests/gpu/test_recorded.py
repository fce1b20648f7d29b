"""What ``tests/benchmarks/gpu.py`` recorded of a card meets what it is held to; nothing runs here."""

from __future__ import annotations

import json

import pytest
from test_cuda import SHARE

from repro.expectations import expected, fixtures
from repro.outcome import Kind
from repro.report.document import SCHEMA

FOLDER = fixtures() / "results" / "gpu"
MEASURED = json.loads((FOLDER / "h200-torch-2.11.0.json").read_text(encoding="utf-8"))
RELEASE = "2.11.0"


@pytest.mark.parametrize(("name", "cards"), [("h200", 1), ("h200-x2", 2)])
def test_it_says_where_it_ran(name, cards):
    measured = json.loads((FOLDER / f"{name}-torch-2.11.0.json").read_text(encoding="utf-8"))

    assert (measured["schema"], measured["command"], measured["seeds"]) == (SCHEMA, "benchmark-gpu", [0])
    assert measured["torch"].startswith(f"{RELEASE}+cu")
    assert len(measured["where"]["cards"]) == len(measured["where"]["devices"]) == cards


@pytest.mark.parametrize("run", MEASURED["story"]["runs"], ids=lambda run: f"{run['race']}-{run['fix']}")
def test_the_story_ends_as_its_races_do(run):
    if run["fix"] == "suppress":
        assert run["outcome"] == "dense"
        assert "Tried to allocate 284.25 GiB" in run["reason"]
        return
    assert run["outcome"] == expected(run["race"], run["fix"], RELEASE).outcome
    if run["outcome"] == Kind.OK:
        assert run["below the share"]
        assert run["failed"] == []


def test_three_first_steps_at_once_hold_under_each_fix_around_the_step():
    by_fix = MEASURED["story"]["three first steps at once"]

    assert set(by_fix) == {"lock", "warmup", "side-by-side", "side-by-side+isolate"}
    for found in by_fix.values():
        assert found["said"] == ["ok"] * 3
        assert len(found["findings"]) == 1 + 5 * 3 + 1
        assert {finding["sight"] for finding in found["findings"]} == {"pass"}
        assert max(found["largest shares of all scores, of forward and backward"]) < SHARE
        assert found["keys that nobody sees"] > 0
        assert [name.rstrip("_0123456789") for name in found["triton"] if "_tem_" in name] == [
            "triton_tem_fused_flex_attention",
            "triton_tem_fused_flex_attention_backward",
        ]


@pytest.mark.parametrize("what", ["forward", "step"])
def test_time_grows_with_what_is_visited_where_a_call_is_compiled(what):
    calls = MEASURED["calls"]

    assert calls["all of the context"][what]["scaling"]["sight"] == "pass"
    assert calls["short, uncompiled, all of the context"][what]["scaling"]["sight"] == "fail"


def test_processes_that_share_a_warm_cache_compile_nothing():
    warm = MEASURED["processes"]["warm"]

    assert [(step["graphs from cache"], step["graphs compiled"]) for step in warm] == [(2, 0)] * 3


def test_every_stage_ran():
    stages = ("matrix", "story", "first-steps", "graphs", "processes", "warming", "calls", "throughput")

    assert [stage for stage in stages if "failed" in MEASURED[stage]] == []
    assert MEASURED["matrix"]["standing"] == "as expected"
