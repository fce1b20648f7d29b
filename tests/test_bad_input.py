"""What cannot work is told in one line, with exit code 2, before anything long starts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import ROOT, environment, refused

from repro import fixes, preflight, results
from repro.expectations import fixtures
from repro.experiment import Experiment
from repro.outcome import Kind
from repro.report import document

RACE = "tracing-flag-leak"


# ---- names -------------------------------------------------------------------------------------------------------


def test_an_unknown_race_gets_the_nearest_names():
    assert refused("run", "tracing-flag-leek").startswith(
        "no race is called 'tracing-flag-leek'; did you mean tracing-flag-leak"
    )
    assert "tracing-bystander" in refused("matrix", "--race", "bystander")
    assert "tracing-flag-leak" in refused("explore", "flag-leak")


def test_a_race_unlike_any_is_sent_to_the_list():
    assert refused("run", "???") == "no race is called '???'; python -m repro list shows all"


def test_a_race_is_refused_on_devices_that_do_not_have_it():
    assert refused("run", "first-backward") == "first-backward is a race on CUDA alone: give --device cuda"
    assert refused("run", "cold-start", "--device", "cuda") == (
        "cold-start is a race of processes, on the CPU alone: leave --device out"
    )
    assert refused("matrix", "--race", "first-backward").endswith("give --device cuda")
    assert refused("gate", "--race", "first-backward").endswith("give --device cuda")


def test_a_trap_is_refused_on_devices_where_it_is_none():
    for line in (f"run {RACE}", f"explore {RACE}", f"matrix --race {RACE}", f"gate --race {RACE}"):
        assert refused(*line.split(), "--fix", "warmup-other-device") == (
            "warmup-other-device can be told on CUDA alone: give --device cuda"
        )


def test_an_unknown_fix_gets_the_nearest_names():
    assert refused("run", RACE, "--fix", "locks") == "no fix is called 'locks'; did you mean lock or file-lock?"
    assert "did you mean warmup" in refused("matrix", "--fix", "warm-up")
    assert refused("run", RACE, "--fix", "lock-per-modul").endswith(" or the trap lock-per-module?")
    assert refused("run", RACE, "--fix", "???").endswith(f"there are: none, {', '.join(fixes.names())}")


def test_fixes_that_do_not_go_together_are_named():
    message = "dynamic and own-code each say how attention is compiled: take one of them"
    assert refused("run", RACE, "--fix", "dynamic+lock+own-code") == message
    assert refused("matrix", "--fix", "dynamic+own-code") == message
    assert (
        refused("explore", RACE, "--fix", "lock+locks") == "no fix is called 'locks'; did you mean lock or file-lock?"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such fix file: "),
        ("def guard(:\n", "is not valid Python: invalid syntax"),
        ("\0", "is not valid Python: "),
        (
            "def gaurd(function):\n    return function\n",
            "it defines none of before_threads, compile_attention, compile_mask, guard",
        ),
    ],
)
def test_a_fix_file_that_is_none(tmp_path, content, message):
    fix = tmp_path / "mine.py"
    if content is not None:
        fix.write_text(content)
    line = refused("run", RACE, "--fix", str(fix))
    assert message in line
    assert str(fix) in line


UNIMPORTABLE = "import no_such_library\n\ndef guard(function):\n    return function\n"


def test_a_fix_file_that_cannot_be_imported_is_named_with_the_error(tmp_path):
    fix = tmp_path / "mine.py"
    fix.write_text(UNIMPORTABLE)
    assert refused("run", RACE, "--fix", f"lock+{fix}") == (
        f"{fix} cannot be imported: ModuleNotFoundError: No module named 'no_such_library'; mend it"
    )


def test_a_fix_file_that_ends_the_process_when_it_is_imported_shows_no_race(tmp_path, laboratory):
    fix = tmp_path / "mine.py"
    fix.write_text(UNIMPORTABLE.replace("no_such_library", "os; os._exit(0)"))
    with pytest.raises(fixes.UnknownFix, match=rf"{fix} cannot be imported: .*exit code 0; mend it"):
        laboratory.check(RACE, str(fix))


@pytest.mark.nightly
def test_a_fix_file_is_imported_before_a_search_a_matrix_and_a_replay(tmp_path):
    fix = tmp_path / "mine.py"
    fix.write_text(UNIMPORTABLE)
    path = tmp_path / "x.json"
    path.write_text(json.dumps(cell(fix=str(fix))), encoding="utf-8")
    under = ["--fix", str(fix)]
    for arguments in (["explore", RACE, *under], ["matrix", "--race", RACE, *under], ["replay", str(path)]):
        assert refused(*arguments).startswith(f"{fix} cannot be imported: ModuleNotFoundError")


@pytest.mark.parametrize("number", ["0", "-1", "1.5", "many"])
def test_a_number_of_replays_that_is_none(number):
    assert f"argument -n: '{number}' is not a whole number from 1 up" in refused("replay", f"-n={number}", "x.json")


# ---- the machine -------------------------------------------------------------------------------------------------


def test_no_compiler():
    assert "none of g++, c++, clang++ is on the PATH" in refused(
        "run", RACE, env={**environment(PATH="/nowhere"), "CXX": ""}
    )
    assert "CXX=/nowhere/g++ is not on the PATH" in refused("run", RACE, env=environment(CXX="/nowhere/g++"))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/bin/sh\nexit 1\n", "does not work: exit code 1"),
        ("#!/bin/sh\necho no licence >&2\necho at all >&2\nexit 1\n", "does not work: no licence"),
        ("not a program", "does not work: Exec format error"),
    ],
)
def test_a_compiler_that_does_not_work(tmp_path, script, message):
    compiler = tmp_path / "g++"
    compiler.write_text(script)
    compiler.chmod(0o755)
    line = refused("run", RACE, env={**environment(PATH=str(tmp_path)), "CXX": ""})
    assert line.startswith(f"the C++ compiler {compiler} {message}")


def test_a_cache_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for place, why in ((str(tmp_path / "file" / "cache"), "Not a directory"), ("/proc/cache", "No such file")):
        line = refused("run", RACE, env=environment(REPRO_CACHE_DIR=place))
        assert line.startswith(f"cannot write the cache directory {place}/")
        assert why in line
        assert line.endswith("set REPRO_CACHE_DIR to a writable one")


def test_a_disk_without_room_for_the_kernels_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=preflight.ROOM - 1))
    with pytest.raises(preflight.NotReady, match="is full: 255 MiB are free, and a run may take 256; make room, or"):
        preflight.cache_directory("2.13.0")


def test_what_fails_while_the_disk_is_full_says_nothing(laboratory, monkeypatch):
    # On every release that is known.
    experiment = Experiment(race="patcher-bystander")
    assert laboratory.perform(experiment).failed
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=preflight.LITTLE - 1))
    full = laboratory.perform(experiment)
    assert full.outcome.kind is Kind.INCONCLUSIVE
    assert f"the disk of {laboratory.cache} is full, so what failed says nothing: " in full.outcome.reason


# ---- torch -------------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path) -> Path:
    """All that is installed here but torch."""
    folder = tmp_path / "site"
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("torch", "__")):
            (folder / entry.name).symlink_to(entry)
    return folder


def refused_with(site: Path, *arguments: str) -> str:
    """The one line with only ``site`` installed."""
    environ = environment(PYTHONPATH=f"{site}:{ROOT}")
    # -S: without the packages of this interpreter.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "repro", *arguments], env=environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("library", "arguments"),
    [
        ("jinja2", ["report", "2.13.0", "-o", "page.html"]),
        ("packaging", ["gate", "--from", "2.13.0"]),
        ("platformdirs", ["list"]),
        ("psutil", ["list"]),
        ("rich", ["surface"]),
    ],
)
def test_a_library_that_is_not_installed_is_named(library, arguments, site):
    (site / library).unlink()

    said = refused_with(site, *arguments)

    assert said.startswith(f"repro: No module named '{library}")
    assert said.endswith("install this package and what it needs: pip install .\n")


def install_torch(site: Path, version: str | None) -> None:
    information = site / f"torch-{version or '2.13.0'}.dist-info"
    information.mkdir()
    line = f"Version: {version}\n" if version else ""
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\n{line}", encoding="utf-8")
    (site / "torch").mkdir()
    (site / "torch" / "__init__.py").write_text("raise AssertionError('imported')\n", encoding="utf-8")


def test_no_torch(site):
    assert refused_with(site, "matrix") == (
        "repro: torch is not installed; install one with: pip install 'torch>=2.9'\n"
    )


@pytest.mark.parametrize("version", ["2.8.0", "2.8.0+cpu", "1.13.1"])
def test_a_torch_that_is_too_old(site, version):
    install_torch(site, version)
    assert refused_with(site, "matrix") == f"repro: torch {version} is too old; this suite needs torch >= 2.9\n"


@pytest.mark.parametrize("version", ["2.9.0", "2.13.0+cpu", "2.15.0.dev20260101"])
def test_a_torch_without_flex_attention(site, version):
    install_torch(site, version)
    assert "this build of torch has no torch.nn.attention.flex_attention" in refused_with(site, "run", RACE)


@pytest.mark.parametrize("version", [None, "nightly"])
def test_a_torch_without_a_version(site, version):
    install_torch(site, version)
    assert f"torch has no version but {version!r}" in refused_with(site, "matrix")


def test_a_torch_that_cannot_be_imported(site):
    install_torch(site, "2.13.0")
    attention = site / "torch" / "nn" / "attention"
    attention.mkdir(parents=True)
    (attention / "flex_attention.py").touch()
    line = refused_with(site, "run", RACE)
    assert line.startswith("repro: the fork server could not start, exit code 1; its output: ...")
    assert line.endswith("AssertionError: imported\n")


# ---- files -------------------------------------------------------------------------------------------------------


RECORDED = {
    "schema": 1,
    "torch": "2.13.0",
    "cells": [
        {
            "race": RACE,
            "fix": "none",
            "schedule": "-",
            "switches": [],
            "seams": [],
            "trace": ["compiled:start#1"],
            "outcome": "ok",
        }
    ],
}


def cell(**changes: object) -> dict[str, object]:
    return {**RECORDED, "cells": [{**RECORDED["cells"][0], **changes}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ": not valid JSON: "),
        ("{", ": not valid JSON: "),
        ("[" * 100_000, ": not valid JSON: "),
        ("[]", ": no field 'schema'; is this a file that --json wrote?"),
        ({**RECORDED, "schema": 2}, ": schema 2 is not 1, the one this version reads"),
        ({**RECORDED, "schema": "1"}, ": 'schema' is of type str, not int"),
        ({**RECORDED, "cells": []}, ": no cell was recorded, so there is nothing to replay"),
        ({**RECORDED, "cells": [3]}, ": the last cell: no field 'race'"),
        ({"schema": 1}, ": no field 'cells'"),
        (cell(race="tracing-flag-leek"), "did you mean tracing-flag-leak"),
        (cell(fix="locks"), "did you mean lock or file-lock?"),
        (cell(schedule="a>b"), ": the last cell: 'a>b' is not a switch; write THREAD:SEAM#VISIT>THREAD"),
        (cell(switches=["a>b taken"]), ": the last cell: 'a>b' is not a switch; write THREAD:SEAM#VISIT>THREAD"),
        (cell(outcome="good"), ": the last cell: 'good' is not an outcome"),
        (cell(trace=["a:start#1", 3]), ": the last cell: 'trace[1]' is of type int, not str"),
    ],
)
def test_a_recording_that_cannot_be_replayed(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    assert message in refused("replay", str(path))


def test_a_recording_that_cannot_be_read(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff")
    assert "x.json: not valid JSON: " in refused("replay", str(tmp_path / "x.json"))
    assert refused("replay", "missing.json") == "cannot read missing.json: No such file or directory"
    assert refused("replay", str(tmp_path)) == f"cannot read {tmp_path}: Is a directory"


READERS = [
    (["replay"], "run, explore, audit, matrix or gate"),
    (["report"], "run, explore, audit, matrix, gate or replay"),
    (["gate", "--from"], "gate, matrix or run"),
    (["gate", "--from", str(results.folder() / "torch-2.13.0-py3.11.json"), "--against"], "gate, matrix or run"),
    (["export", RACE, "-o", "nowhere", "--script-only", "--schedule"], "run, explore, audit, matrix or gate"),
]


@pytest.mark.parametrize(("reader", "taken"), READERS)
def test_a_file_of_a_command_that_writes_none_of_what_is_read_is_told_by_name(tmp_path, reader, taken):
    path = tmp_path / "x.json"
    path.write_text(
        json.dumps(document.envelope("list", None, {"races": {}, "fixes": {}}, seeds=[])), encoding="utf-8"
    )
    assert refused(*reader, str(path)) == f"{path} is what list wrote; give what {taken} wrote with --json"
    inventory = str(fixtures() / "surface" / "torch-2.13.0.json")
    assert refused(*reader, inventory) == f"{inventory} is what surface wrote; give what {taken} wrote with --json"
    path.write_text(json.dumps(document.envelope("gate", "2.13.0", {"changes": []}, seeds=[])), encoding="utf-8")
    assert refused(*reader, str(path)) == (
        f"{path} is what gate wrote without measuring, so no cell is in it; give what {taken} wrote with --json"
    )


def test_a_recorded_result_holds_no_run_and_says_where_the_runs_are():
    file = str(results.folder() / "torch-2.13.0-py3.11.json")
    assert refused("replay", file) == (
        f"{file} is a recorded result, which keeps no run whole; fixtures/schedules/ has the runs"
    )


def test_of_a_file_with_several_runs_one_must_be_chosen(tmp_path):
    path = tmp_path / "x.json"
    (run,) = RECORDED["cells"]
    path.write_text(json.dumps({**RECORDED, "cells": [run, {**run, "fix": "lock"}]}), encoding="utf-8")
    assert f"{path} has 2 runs, of which none shows a race: choose one with --cell" in refused("replay", str(path))
    assert refused("replay", str(path), "--cell", f"{RACE}/warmup").startswith(
        f"{path} has no run of {RACE} under warmup; it has {RACE}/none, {RACE}/lock"
    )
    assert refused("replay", str(path), "--cell", RACE).startswith(
        f"argument --cell: '{RACE}' is not RACE/FIX; without a fix it is RACE/none"
    )


@pytest.mark.parametrize("arguments", [["run", RACE], ["matrix"], ["explore", RACE], ["replay", "x.json"]])
def test_a_place_for_json_that_cannot_be_written_is_told_before_the_run(tmp_path, arguments):
    (tmp_path / "file").touch()
    # Nothing can run here: whatever is found out only by running would be told instead.
    nothing = environment(PATH="/nowhere", CXX="/nowhere/g++")
    for place, why in (
        (tmp_path, "Is a directory"),
        (tmp_path / "file" / "x.json", "Not a directory"),
        (tmp_path / "missing" / "x.json", "No such file or directory"),
    ):
        line = refused(*arguments, "--json", str(place), env=nothing)
        assert line == f"cannot write '{place}': {why}; give --json another file, or -"


def test_an_empty_place_for_json_is_not_no_place():
    assert "cannot write ''" in refused("list", "--json", "")


def test_a_full_disk():
    done = subprocess.run(
        [sys.executable, "-m", "repro", "list", "--json", "/dev/full"],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert RACE in done.stdout
    assert done.stderr == "repro: cannot write '/dev/full': No space left on device; give --json another file, or -\n"
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json", "-"]])
def test_standard_output_that_is_full(arguments):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "repro", *arguments],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "repro: [Errno 28] No space left on device"
    assert "Traceback" not in done.stderr


# ---- devices -----------------------------------------------------------------------------------------------------


def test_a_device_that_is_none():
    assert refused("run", RACE, "--device", "gpu") == "no such device: 'gpu'; give cpu, cuda or cuda:N"


def test_a_device_that_is_not_there():
    assert refused("run", RACE, "--device", "cuda:99").startswith("no device cuda:99: torch ")


@pytest.mark.parametrize("verb", ["run", "explore"])
def test_where_one_fix_is_judged_a_second_one_does_not_take_its_place(verb):
    assert refused(verb, RACE, "--fix", "lock", "--fix", "warmup") == (
        "one fix at a time; all of them together are --fix lock+warmup, and matrix takes several"
    )


def test_a_race_on_cuda_alone_needs_a_device():
    assert refused("run", "first-backward") == "first-backward is a race on CUDA alone: give --device cuda"


@pytest.mark.skipif(preflight.cuda_devices() > 0, reason="there is a device")
def test_the_script_of_such_a_race_is_run_on_a_device(tmp_path):
    said = refused("export", "first-backward", "-o", str(tmp_path))
    assert said.startswith("first-backward needs a CUDA device, and torch sees none: --script-only")
    assert [*tmp_path.iterdir()] == []
