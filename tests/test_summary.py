"""The end of a test run: races shown, fixes that hold, what is inconclusive, and where the page is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from command_line import ROOT, environment

TESTS = """
import pytest
from repro.experiment import Observation
from repro.expectations import Expected
from repro.fixes import NONE
from repro.interleave.schedule import Step
from repro.outcome import Kind, Outcome
from repro.verdict import judge

def seen(kind):
    return Observation(Outcome(kind, f"was {kind}"), steps=[Step("a", "start", 1, (), "a")])

CAME_TO = {
    "first-call": {NONE: Kind.ERROR, "lock": Kind.OK, "wrapper": Kind.ERROR},
    "stance-leak": {NONE: Kind.DENSE, "lock": Kind.OK, "wrapper": Kind.INCONCLUSIVE},
    "cold-start": {NONE: Kind.OK, "file-lock": Kind.OK},
}

@pytest.mark.parametrize("race", CAME_TO)
def test_judged(race, judged):
    row = CAME_TO[race]
    cells = [judge(race, fix, seen(kind), seen(row[NONE]), Expected(kind, None)) for fix, kind in row.items()]
    judged("2.13.0+cpu", cells)
    # What a test that fails has judged counts too.
    assert race != "stance-leak"

def test_something_else():
    pass
"""


def run(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    (folder / "test_inner.py").write_text(TESTS, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "conftest",
            "-c",
            str(ROOT / "pyproject.toml"),
            "--rootdir",
            str(folder),
            "test_inner.py",
            *arguments,
        ],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def test_the_cells_of_all_workers_are_summed_up_and_the_page_is_written(tmp_path):
    code, lines = run(tmp_path, "-n", "2", "--report", "out/races.html")

    assert code == 1
    start = next(number for number, line in enumerate(lines) if line.strip("= ") == "races")
    assert lines[start + 1 : start + 7] == [
        "torch 2.13.0+cpu: 2 of 3 races show without a fix",
        "lock holds against 2 of 2 of these",
        "wrapper holds against 0 of 2 of these",
        "inconclusive: 1 of 8 cells",
        "  stance-leak / wrapper: was inconclusive",
        "report: out/races.html",
    ]
    assert (tmp_path / "out" / "races.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert len(json.loads((tmp_path / "out" / "races.json").read_text(encoding="utf-8"))["cells"]) == 8


def test_where_nothing_was_judged_nothing_is_said(tmp_path):
    code, lines = run(tmp_path, "-k", "something_else")

    assert code == 0
    assert "races" not in [line.strip("= ") for line in lines]
    assert not (tmp_path / ".pytest_cache" / "races.html").exists()
