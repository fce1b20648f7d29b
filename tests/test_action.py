"""``action.yml``: its shape, and its shell steps run in bash as a GitHub runner runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import ROOT
from packaging.requirements import Requirement
from packaging.version import Version

from repro import environment
from repro.preflight import torch_version

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = {step.get("name", step.get("uses")): step for step in ACTION["runs"]["steps"]}
RACE = "tracing-bystander"
SHOWS = Version(Version(torch_version()).base_version) < Version("2.14")


def test_it_has_the_form_of_a_composite_action():
    assert ACTION["runs"]["using"] == "composite"
    for step in STEPS.values():
        assert ("run" in step) != ("uses" in step)
        # A runner refuses a composite step that runs without a shell.
        assert "run" not in step or step["shell"] == "bash"
    for entry in [*ACTION["inputs"].values(), *ACTION["outputs"].values()]:
        assert entry["description"]
    assert set(ACTION["inputs"]) == {"torch-spec", "python", "quick", "arguments"}
    assert all(isinstance(entry.get("default", ""), str) for entry in ACTION["inputs"].values())


def test_every_input_and_output_that_it_names_is_there():
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    script = STEPS["Gate"]["run"]
    for output in re.findall(r"steps\.gate\.outputs\.([\w-]+)", text):
        assert f'echo "{output}=' in script
    # What a user gives reaches the script as environment, never as text of it.
    assert "${{" not in script


def test_it_sets_up_what_the_package_needs():
    listed = re.findall(r"""['"]([\w-]+>=[^'"\n]*(?:'[\d.]+')?)['"]""", STEPS["Set up"]["run"])
    everywhere = [Requirement(line) for line in listed]
    here = [each for each in everywhere if each.marker is None or each.marker.evaluate()]
    assert sorted(map(str, here)) == sorted(environment.dependencies())
    assert "tomli" in {each.name for each in everywhere}


class Runner:
    """A runner's directories and variables; its Python is this one."""

    def __init__(self, folder: Path) -> None:
        self.temp, self.output, self.summary = folder / "temp", folder / "output", folder / "summary.md"
        (self.temp / "gate" / "bin").mkdir(parents=True)
        python = self.temp / "gate" / "bin" / "python"
        # A link would leave its virtual environment behind.
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
        self.output.touch()

    def run(self, step: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        script = self.temp / "step.sh"
        script.write_text(STEPS[step]["run"], encoding="utf-8")
        variables = {
            **os.environ,
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "RUNNER_TEMP": str(self.temp),
            **inputs,
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        return subprocess.run(command, env=variables, cwd=self.temp, capture_output=True, text=True)

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())


def inputs(arguments: str, spec: str = sys.executable) -> dict[str, str]:
    return {"TORCH_SPEC": spec, "QUICK": "true", "ARGUMENTS": f"--race {RACE} --fix lock {arguments}"}


def test_a_release_as_expected_is_green_and_leaves_its_documents(tmp_path):
    runner = Runner(tmp_path)
    done = runner.run("Gate", **inputs(""))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "::error" not in done.stdout
    assert runner.outputs == {
        "verdict": "as expected",
        "json": str(runner.temp / "gate.json"),
        "junit": str(runner.temp / "gate.xml"),
    }
    assert all(Path(runner.outputs[name]).stat().st_size for name in ("json", "junit"))
    assert runner.summary.read_text(encoding="utf-8").splitlines()[0].endswith("as expected")


def test_a_release_not_as_expected_is_red_with_an_annotation(tmp_path):
    runner = Runner(tmp_path)
    done = runner.run("Gate", **inputs(f"--against {'2.14.1' if SHOWS else '2.13.0'}"))

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(rf"^::error title=(worse|better)%3A {RACE} / no fix::", done.stdout, flags=re.MULTILINE)
    assert runner.outputs["verdict"] == "not as expected"


@pytest.mark.parametrize("spec", ["/missing/python", "--no-index torch==0.0.1"])
def test_bad_input_is_told_and_leaves_no_document(tmp_path, spec):
    runner = Runner(tmp_path)
    done = runner.run("Gate", **inputs("", spec), REPRO_CACHE_DIR=str(tmp_path / "cache"))

    assert done.returncode == 2
    assert "::error title=gate::bad input" in done.stdout
    assert runner.outputs == {"verdict": "bad input"}


def test_the_set_up_is_valid_bash():
    script = STEPS["Set up"]["run"]
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).returncode == 0
