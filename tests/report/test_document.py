"""The JSON of every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro import results
from repro.expectations import Expected
from repro.experiment import Observation
from repro.fixes import NONE
from repro.interleave import Step, Switch
from repro.interleave.replay import SwitchFate
from repro.outcome import Finding, Kind, Outcome, Sight
from repro.report import document
from repro.report.document import Unwritable
from repro.results import Asked
from repro.verdict import judge

SEEN = Observation(
    Outcome(Kind.DENSE, "dense: it held all", {"peak": 3, "rows": {1}, "kind": Kind.DENSE, "odd": Path("x")}),
    schedule="a:start#1>b",
    steps=[Step("a", "start", 1, ("a", "b"), "b")],
    switches=[SwitchFate(Switch("a", "start", 1, "b"), "taken")],
    seams=["fx.trace"],
    findings=[Finding("memory", Sight.FAIL, "it held all", {"bound": 2})],
    compiled=1,
)


def test_the_document_of_cells_is_plain_data_in_one_envelope():
    cell = judge("a-race", "suppress", SEEN, SEEN, Expected(Kind.DENSE, "https://example.org/1"))
    made = document.of_cells("run", "2.13.0", [cell], devices=["cpu"])

    assert json.loads(json.dumps(made)) == made
    assert list(made) == ["schema", "command", "torch", "python", "platform", "seeds", "devices", "cells"]
    assert (made["schema"], made["command"], made["torch"], made["seeds"]) == (1, "run", "2.13.0", [])
    assert made["cells"] == [
        {
            "race": "a-race",
            "fix": "suppress",
            "verdict": "FAILS",
            "by": "replay",
            "reason": "dense: it held all",
            "expected": "dense",
            "as_expected": True,
            "upstream": "https://example.org/1",
            "outcome": "dense",
            "signature": "dense",
            "explanation": "dense: it held all",
            "details": {"peak": 3, "rows": [1], "kind": "dense", "odd": repr(Path("x"))},
            "schedule": "a:start#1>b",
            "switches": ["a:start#1>b taken"],
            "seams": ["fx.trace"],
            "trace": ["a:start#1>b"],
            "findings": [{"oracle": "memory", "sight": "fail", "message": "it held all", "data": {"bound": 2}}],
            "compiled_frames": 1,
        }
    ]


def test_the_document_of_cells_says_what_was_asked_for():
    cell = judge("a-race", NONE, SEEN, SEEN, None)
    for asked in (Asked(("a-race",), ("lock",)), Asked()):
        made = document.of_cells("gate", "2.13.0", [cell], asked=asked, devices=["cpu"])
        assert json.loads(json.dumps(made)) == made
        assert results.of_document(made).asked == asked
    assert made["asked"] == {"races": None, "fixes": None, "times": None, "searched": None}


def test_a_cell_of_which_nothing_is_known_says_so():
    cell = document.of_cell(judge("a-race", "mine.py", SEEN, SEEN, None))
    assert (cell["expected"], cell["upstream"], cell["as_expected"]) == (None, None, False)


def test_a_file_is_made_as_other_files_are(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    document.write({"a": "é"}, str(tmp_path / "x.json"))
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {"a": "é"}
    assert (tmp_path / "x.json").stat().st_mode == plain.stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "x.json"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    target = tmp_path / "x.json"
    target.write_text("old")
    with pytest.raises(TypeError):
        document.write({"a": object()}, str(target))
    assert target.read_text() == "old"
    assert [*tmp_path.iterdir()] == [target]


def test_the_check_before_a_run_changes_nothing(tmp_path):
    target = tmp_path / "x.json"
    document.check_target(str(target))
    document.check_target("-")
    assert [*tmp_path.iterdir()] == []
    target.write_text("old")
    document.check_target(str(target))
    assert target.read_text() == "old"
    with pytest.raises(Unwritable, match=r"cannot write .*: Not a directory; give --json another file, or -"):
        document.check_target(str(target / "x.json"))
