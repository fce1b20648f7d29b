"""Another torch: an interpreter that is there, or an environment that is made, kept and made anew."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from command_line import COMMAND, ROOT, refused
from command_line import environment as variables
from packaging.version import Version

from repro import environment
from repro.preflight import NotReady, torch_version

RACE = "tracing-bystander"


def test_what_it_needs_is_what_the_project_says():
    names = {line.partition(">")[0] for line in environment.dependencies()}
    assert {"packaging", "psutil", "platformdirs", "rich", "tomlkit"} <= names
    assert "torch" not in names
    assert ("tomli" in names) == (sys.version_info < (3, 11))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("/missing/python", "/missing/python does not exist; give --torch-spec the path of a Python with torch"),
        (str(ROOT / "README.md"), "README.md is not an interpreter; give --torch-spec the path"),
        ("torch=='2.14.1", '--torch-spec "torch==\'2.14.1" cannot be read: No closing quotation'),
        ("2.14.1", "--torch-spec '2.14.1' does not say of what: give torch==2.14.1"),
        (">=2.14", "--torch-spec '>=2.14' does not say of what: give 'torch>=2.14'"),
        (" ", "--torch-spec is empty; give it torch==VERSION or the path of a Python with torch"),
    ],
)
def test_a_spec_that_is_nothing_is_told_in_one_line(spec, message):
    assert message in refused("gate", "--torch-spec", spec)


def program(path: Path, script: str) -> str:
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("not a program", "python does not start: Exec format error"),
        ("#!/bin/sh\nexit 1\n", "python is no Python that starts"),
        ("#!/bin/sh\necho old\n", "python is too old; this suite needs Python 3.10 or newer"),
        ("#!/bin/sh\necho good torch psutil\n", "python has no torch; give --torch-spec an interpreter with torch"),
        ("#!/bin/sh\necho good psutil rich\n", "python lacks psutil; run: "),
    ],
)
def test_an_interpreter_that_cannot_be_used_is_told_in_one_line(tmp_path, script, message):
    assert message in refused("gate", "--torch-spec", program(tmp_path / "python", script))


def test_a_python_without_torch_is_found_out_by_asking_it(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    for spec in (tmp_path / "bare", tmp_path / "bare" / "bin" / "python"):
        assert "has no torch" in refused("gate", "--torch-spec", str(spec))


# ---- environments ------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("REPRO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "environments"


def wheel(folder: Path, name: str) -> Path:
    """An empty distribution, for pip to install from a file."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }.items():
            archive.writestr(f"{name}-1.0.dist-info/{file}", text)
    return path


def test_an_environment_is_made_once_and_again_when_it_is_broken(tmp_path, cache, monkeypatch, capfd):
    spec = f"--no-index {wheel(tmp_path, 'torch')}"
    monkeypatch.setattr(environment, "dependencies", list)

    python = environment.interpreter(spec)

    assert cache in python.parents
    show = [str(python), "-c", "import importlib.metadata as m; print(m.version('torch'))"]
    assert subprocess.run(show, capture_output=True, text=True).stdout == "1.0\n"
    assert "making an environment with --no-index" in capfd.readouterr().err
    # The same again for the same requirement.
    mark = python.parent.parent / "mark"
    mark.touch()
    assert environment.interpreter(spec) == python
    assert mark.exists()
    assert capfd.readouterr().err == ""
    # Broken, or never finished: made anew.
    for broken in (python, python.parent.parent / "finished"):
        broken.unlink()
        mark.touch()
        assert environment.interpreter(spec) == python
        assert not mark.exists()


def test_what_pip_cannot_install_is_told_and_is_tried_anew(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(environment, "dependencies", list)
    spec = f"--no-index --find-links {tmp_path} no-such-build-of-torch"
    with pytest.raises(NotReady, match=r"pip cannot install .*: No matching distribution found for no-such-build"):
        environment.interpreter(spec)
    wheel(tmp_path, "no_such_build_of_torch")
    with pytest.raises(NotReady, match="has no torch; give --torch-spec"):
        environment.interpreter(spec)


def test_installed_beside_another_torch_only_the_package_is_handed_over(tmp_path, cache, monkeypatch):
    site = tmp_path / "site"
    shutil.copytree(ROOT / "repro", site / "repro", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "torch.py").write_text("raise AssertionError('the wrong torch')\n")
    program = "from repro.environment import _import_root; print(_import_root())"
    seen = subprocess.run(
        [sys.executable, "-c", program],
        env=variables(PYTHONPATH=str(site)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    root = Path(seen.stdout.strip())
    assert [entry.name for entry in root.iterdir()] == ["repro"]
    assert (root / "repro" / "gate.py").is_file()


# ---- with torch --------------------------------------------------------------------------------------------------


def test_the_gate_under_another_interpreter_passes_all_through(tmp_path):
    target = tmp_path / "gate.json"
    other = "2.14.1" if Version(Version(torch_version()).base_version) < Version("2.14") else "2.13.0"
    rest = ["--quick", "--race", RACE, "--fix", "lock", "--against", other, "--json", str(target)]
    done = subprocess.run(
        [*COMMAND, "gate", "--torch-spec", sys.executable, *rest],
        env=variables(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert f"{RACE} / no fix: " in done.stdout
    assert target.is_file()
