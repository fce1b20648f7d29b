"""What a run of a script came to, and the native stacks of one that died."""

from __future__ import annotations

import shutil

import pytest

from repro.export.trial import native_stacks, run

DIES = "import ctypes\n\n\ndef crash():\n    ctypes.string_at(0)\n\n\ncrash()\n"


def test_a_bug_is_what_the_script_calls_one():
    trial = run("print('BUG: it broke')\nraise SystemExit(1)")

    assert trial.shown
    assert trial.said == "BUG: it broke"


def test_a_mistake_in_a_script_is_not_a_bug_of_torch():
    trial = run("x = undefined")

    assert not trial.shown
    assert not trial.clean
    assert trial.said == "exit code 1: NameError: name 'undefined' is not defined"


def test_a_script_does_not_see_this_package_or_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "mine.py").touch()

    assert "No module named 'mine'" in run("import mine").output


def test_a_crash_is_a_bug_and_tells_where_in_python():
    trial = run(DIES)

    assert trial.shown
    assert trial.said == "died by signal 11"
    assert "in crash" in trial.output


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_a_crash_has_native_stacks():
    stacks = native_stacks(DIES, file="dies.py", attempts=1)

    assert "Thread 1" in stacks
    assert "\n#0 " in stacks


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_a_script_that_does_not_die_has_no_native_stacks():
    assert native_stacks("pass", file="lives.py", attempts=1) == (
        "no native stacks: it did not die in 1 runs under gdb"
    )


def test_without_gdb_it_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "")

    assert native_stacks(DIES, file="dies.py", attempts=1) == "no native stacks: gdb is not installed"
