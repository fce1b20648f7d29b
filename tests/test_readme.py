"""Every command and every output that the README shows."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from command_line import ROOT, command
from rich.console import Console

from repro import fixes, preflight, races, results
from repro.expectations import expected, fixtures
from repro.experiment import Observation
from repro.fixes import NONE
from repro.laboratory import Laboratory
from repro.outcome import Kind, Outcome
from repro.report import terminal
from repro.verdict import Cell, Verdict, columns

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
CONSOLE = [text for kind, text in BLOCKS if kind == "console"]
SETUP = [text.strip() for kind, text in BLOCKS if kind == "sh" and "tox" in text]
SHELL = [text.strip() for kind, text in BLOCKS if kind == "sh" and "tox" not in text]
# The release that the README speaks of.
RELEASE = "2.13.0"


def bare(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def on_the_release(laboratory: Laboratory) -> None:
    if laboratory.torch.partition("+")[0] != RELEASE:
        pytest.skip(f"the README shows torch {RELEASE}, this is {laboratory.torch}")


def test_ci_runs_the_two_commands_as_they_stand() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()

    assert len(SETUP) == 2
    assert [line for line in script if line in SETUP] == SETUP


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.splitlines()[0].removeprefix("$ python -m "))
def test_an_output_is_what_the_command_prints(block: str, laboratory: Laboratory) -> None:
    on_the_release(laboratory)
    line, _, shown = block.partition("\n")
    prefix, arguments = "$ python -m repro ", line.removeprefix("$ python -m repro ")
    assert line.startswith(prefix)

    done = command(*shlex.split(arguments))

    assert done.returncode in (0, 1)
    local = laboratory.torch
    assert bare(done.stdout) == bare(shown.replace(f"{RELEASE}+cpu", local))


@pytest.mark.parametrize("line", SHELL)
def test_a_command_without_output_is_taken(line: str, tmp_path: Path) -> None:
    (tmp_path / "my_fix.py").write_text((fixes.FOLDER / "lock.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "my_app").mkdir()
    example = (ROOT / "docs" / "examples" / "threaded_inference.py").read_text(encoding="utf-8")
    (tmp_path / "my_app" / "attention.py").write_text(f"{example}\n\nattend = attention\n", encoding="utf-8")
    # Cheaper in what has no bearing on whether the command is right.
    cheap = line.replace("--budget 200", "--budget 3").replace("torch==2.14.1", shlex.quote(sys.executable))
    shutil.copy(fixtures() / "results" / f"torch-{RELEASE}-py3.11.json", tmp_path / "matrix.json")
    arguments = shlex.split(cheap)
    assert arguments[:3] == ["python", "-m", "repro"]
    if arguments[3] in ("matrix", "gate"):
        arguments += ["--race", "first-call", "--fix", "lock"]
    if arguments[3] == "export":
        arguments += ["--script-only"]

    done = command(*arguments[3:], cwd=tmp_path)

    if "--device cuda" in line and not preflight.cuda_devices():
        assert done.returncode == 2
        assert "no device cuda" in done.stderr
        return
    assert done.returncode in (0, 1, 3 if arguments[3] == "explore" else 0)
    assert "".join(done.stdout)


def test_the_matrix_is_the_one_that_the_expectations_give() -> None:
    shown = next(text for kind, text in BLOCKS if kind == "text")
    tried = re.findall(r"--fix ([\w+-]+)", next(line for line in SHELL if line.startswith("python -m repro matrix")))
    assert tried
    cells = []
    for race in races.names(races.THREADS):
        for fix in columns(race, tried, controls=False):
            known = expected(race, fix, RELEASE)
            assert known is not None
            verdict = Verdict.HOLDS if known.outcome is Kind.OK else Verdict.FAILS
            cells.append(Cell(race, fix, verdict, "", Observation(Outcome(known.outcome, "")), known))
    text = io.StringIO()
    console = Console(file=text, width=200, highlight=False)

    terminal.matrix(console, cells, f"{RELEASE}+cpu")
    terminal.summary(console, cells)

    assert bare(text.getvalue()) == bare(shown)


def test_what_it_says_of_files_is_true() -> None:
    for name in re.findall(r"`((?:repro|fixtures)/[\w./]*)`", README):
        assert (ROOT / name).exists(), name
    assert f"torch=={RELEASE}" in (ROOT / "tox.ini").read_text(encoding="utf-8")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_what_it_says_of_a_card_is_what_that_card_showed() -> None:
    measured = json.loads((fixtures() / "results" / "gpu" / "h200-torch-2.11.0.json").read_text(encoding="utf-8"))
    by_fix = measured["throughput"]["fixes"]
    gate, lock, none = by_fix["side-by-side+isolate"], by_fix["lock"], by_fix[NONE]
    low = "lower 95 % bound of the median"
    peak = measured["calls"]["story"]["forward"]["peak"] / 1e6
    text = " ".join(README.split())

    assert (
        f"{gate['ratio']:.2f} times as many tokens a second, {gate[low]:.2f} by the lower 95 % bound over "
        f"{len(gate['pairs'])} pairs of turns, "
        f"where none against none came to {none['ratio']:.2f} and {none[low]:.2f}"
    ) in text
    assert f"One lock around all came to {lock['ratio']:.2f} and {lock[low]:.2f}" in text
    assert f"a call that is block-sparse peaks at {peak:.0f} MB" in text
    assert gate[low] >= measured["throughput"]["targets"]["side-by-side+isolate"]
    findings = " ".join((ROOT / "docs" / "findings.md").read_text(encoding="utf-8").split())
    steps, graphs = measured["first-steps"]["outcomes"], measured["graphs"]["outcomes"]
    assert f"{steps.count('hang')} of {len(steps)} starts of the recorded run ended so" in findings
    assert f"in {graphs.count('crash')} of {len(graphs)} starts of the recorded run" in findings
    for call in ("all of the context", "short, uncompiled, all of the context"):
        scaling = measured["calls"][call]["forward"]["scaling"]
        assert f"{scaling['blocks']:.1f} times the blocks take {scaling['time']:.1f} times as long" in findings


def outcome(race: str, fix: str, release: str) -> Kind:
    """What is written down of a column of the matrix, or recorded of what is none."""
    if fix not in fixes.beside():
        return expected(race, fix, release).outcome
    (record,) = [record for record in results.recorded(results.apart()) if str(record.version) == release]
    return record.cells[race, fix].outcome


SYMPTOMS = re.search(r"<!-- symptoms -->\n(.*)<!-- /symptoms -->", README, flags=re.DOTALL)[1].splitlines()[2:]


@pytest.mark.parametrize("row", SYMPTOMS)
def test_a_symptom_leads_to_its_race_and_to_fixes_that_hold(row: str) -> None:
    symptom, named, holding = row.strip("| ").split(" | ")
    shown = re.findall("`(.*?)`", named)
    assert shown

    # What the row quotes first is what was said by the recorded run of one of its races.
    if symptom.startswith("`"):
        files = [fixtures() / "schedules" / f"{race}.json" for race in shown]
        said = " ".join(str(json.loads(file.read_text(encoding="utf-8"))["cells"][-1]) for file in files)
        texts = [part.split("`")[1] for part in symptom.split(", or ")]
        assert all(text in said.replace("\\'", "'") for text in texts)
    for race in shown:
        release = "2.11.0" if races.group(race) == races.CUDA else RELEASE
        assert expected(race, NONE, release).outcome is not Kind.OK
        assert re.findall("`(.*?)`", holding)
        for fix in re.findall("`(.*?)`", holding):
            assert outcome(race, fix, release) is Kind.OK, (race, fix)
