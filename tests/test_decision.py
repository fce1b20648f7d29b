"""The page of decisions is what the records say."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from command_line import ROOT, command

from repro import decision, fixes, results
from repro.decision import Cost
from repro.report import markdown

PAGE = (ROOT / "docs" / "decision.md").read_text(encoding="utf-8")
RECORDS = results.recorded()
APART = results.recorded(results.apart())
THERE = results.folder(results.CUDA)
ON_CUDA = results.recorded(THERE), results.recorded(results.apart(THERE))
(DATE,) = re.findall(r"wrote this page on (\d{4}-\d\d-\d\d) ", PAGE)


def page(records=RECORDS, apart=APART, costs=None) -> str:
    costs = decision.load_costs() if costs is None else costs
    return markdown.decision(decision.releases(records, apart, costs), decision.traps_on_cuda(*ON_CUDA), DATE)


def test_the_page_is_not_stale():
    assert page() == PAGE, "write it anew: python -m repro gate --decision > docs/decision.md"


def test_the_command_prints_the_page():
    done = command("gate", "--decision")

    assert done.returncode == 0, done.stderr
    assert re.sub(r"on \d{4}-\d\d-\d\d ", f"on {DATE} ", done.stdout, count=1) == PAGE


def test_the_page_names_every_release_every_fix_and_every_trap():
    for record in RECORDS:
        assert f"## torch {record.version}\n" in PAGE
    for name in [*fixes.names(), *fixes.apart(), *fixes.ON_CUDA]:
        assert f"`{name}`" in PAGE


def test_another_result_makes_another_page():
    # Of several Pythons the newest one counts.
    record = [record for record in RECORDS if str(record.version) == "2.13.0"][-1]
    place = ("tracing-flag-leak", "lock")
    failed = replace(record.cells[place], outcome=record.cells["tracing-flag-leak", "none"].outcome)
    worse = replace(record, cells={**record.cells, place: failed})

    assert page([worse if other is record else other for other in RECORDS]) != PAGE
    assert page(apart=[]) != PAGE
    assert page(costs={"2.13.0": {("lock", "warm"): Cost(0.5, 0.4, 0.6, 0, 1)}}) != PAGE


def test_a_fix_covers_only_what_it_holds_against_to_the_last_race():
    for release in decision.releases(RECORDS, APART, {}):
        for situation in release.situations:
            assert situation.needed
            for covered in situation.fixes:
                assert sorted([*covered.holds, *covered.fails]) == sorted(situation.needed)


def test_costs_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "throughput-torch-2.13.0.json").write_text('{"torch": "2.13.0", "rows": [{}]}')

    with pytest.raises(results.ReportError, match=r"throughput-torch-2\.13\.0\.json: not what"):
        decision.load_costs(tmp_path)


def test_a_fix_under_which_a_thread_failed_has_that_for_its_cost(tmp_path):
    row = {"ratio": 1.0, "low": 0.9, "high": 1.1, "recompiles": 0, "peak_bytes": 1}
    said = "KeyError: 'custom' (File \"torch/fx/traceback.py\", annotate: del)"
    # Where none has a row it failed in the measure of another fix.
    failed = [{"fix": fix, "workload": "warm", "said": said} for fix in ("none", "wrapper")]
    measured = {"torch": "2.13.0", "rows": [{"fix": "none", "workload": "warm", **row}], "failed": failed}
    (tmp_path / "throughput-torch-2.13.0.json").write_text(json.dumps(measured))

    costs = decision.load_costs(tmp_path)

    assert costs["2.13.0"] == {("none", "warm"): Cost(**row), ("wrapper", "warm"): "KeyError: 'custom'"}
    assert "| a thread failed: `KeyError: 'custom'` |" in page(costs=costs)
