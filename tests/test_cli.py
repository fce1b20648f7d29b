"""The command line: exit codes, JSON, what is printed where, and what an interrupt leaves."""

from __future__ import annotations

import json
import os
import platform
import pty
import signal
import subprocess
import sys
from multiprocessing.connection import wait
from typing import Any

import psutil
import pytest
from command_line import COMMAND, command, environment, here
from packaging.specifiers import SpecifierSet

from repro import fixes, races, results
from repro.expectations import PROCESSES, expected
from repro.fixes import NONE
from repro.outcome import Kind
from repro.preflight import torch_version

COMMANDS = ("list", "run", "explore", "matrix", "gate", "replay", "report", "surface", "export")
RACE = "tracing-bystander"


def known_to_show() -> bool:
    """Whether the installed release is known to show the race."""
    known = expected(RACE, NONE, torch_version())
    assert known is not None
    return known.outcome is not Kind.OK


def check_envelope(document: dict[str, Any], name: str) -> None:
    assert document["schema"] == 1
    assert document["command"] == name
    assert document["python"] == platform.python_version()
    assert document["platform"].startswith("Linux-")
    assert document["seeds"] == []


# ---- without torch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["mat"], ["--colour"]])
def test_a_command_line_that_is_not_understood_exits_2_with_one_line(arguments):
    done = command(*arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "see python -m repro --help" in done.stderr


@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)])
def test_looking_around_does_not_import_torch(arguments):
    program = f"""
import sys
from repro.cli import main
code = main({arguments!r})
assert not {{"torch", "numpy"}} & set(sys.modules), "imported"
sys.exit(code)
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout


def test_list_names_every_race_and_every_fix():
    shown = command("list").stdout

    for name in [*races.names(), *fixes.names(), *fixes.beside()]:
        assert any(line.split()[:1] == [name] for line in shown.splitlines())


def test_list_says_on_which_releases_a_race_shows_that_is_not_on_all():
    done = command("list", "--json", "-")
    releases = json.loads(done.stdout)["releases"]
    lines = {line.split()[0]: line.rstrip() for line in done.stderr.splitlines() if line.split()[0] in releases}
    assert set(lines) == set(releases) == set(races.names())

    for report in results.recorded():
        for race, fix in report.cells:
            if fix == NONE:
                # The first range that holds a release counts.
                kind = next(kind for torch, kind in releases[race].items() if report.release in SpecifierSet(torch))
                assert kind == report.cells[race, fix].outcome, (race, report.torch)
    for race, line in lines.items():
        shown = [f"{kind} on torch {torch}" for torch, kind in releases[race].items() if kind != "ok"]
        if not shown:
            assert line.endswith(" (clean without a fix on every recorded release)")
        elif len(shown) < len(releases[race]):
            assert line.endswith(f" ({'; '.join(shown)} only)")
        else:
            assert "torch >" not in line
    assert any(line.endswith("only)") for line in lines.values())


def test_json_on_standard_output_is_alone_there():
    done = command("list", "--json", "-")

    document = json.loads(done.stdout)
    check_envelope(document, "list")
    assert list(document["races"]) == races.names()
    assert list(document["fixes"]) == [*fixes.names(), *fixes.beside()]
    assert RACE in done.stderr


def test_json_replaces_a_file_as_a_whole_and_leaves_nothing_beside_it(tmp_path):
    target = tmp_path / "out.json"
    target.write_text("x" * 100_000)
    link = tmp_path / "link.json"
    link.symlink_to(target)

    assert command("list", "--json", str(link)).returncode == 0

    check_envelope(json.loads(target.read_text()), "list")
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_json_goes_into_a_pipe_or_a_device_and_does_not_replace_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    # Held open, so that the check before the run is not all that the reader sees.
    writer = os.open(pipe, os.O_WRONLY)

    assert command("list", "--json", str(pipe)).returncode == 0

    os.close(writer)
    check_envelope(json.loads(reader.communicate()[0]), "list")
    assert pipe.is_fifo()


def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = command("list", stdout=writer)
    os.close(writer)

    assert done.returncode == 3
    assert done.stderr == ""


def test_a_mistake_of_ours_is_one_line_and_never_a_verdict():
    program = """
import sys
from repro import cli
cli._list = lambda options: {}["missing"]
sys.exit(cli.main(["list"]))
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)

    assert done.returncode == 3
    assert done.stderr == "repro: a mistake in this program, <string>:4: KeyError: 'missing'\n"


# ---- with torch --------------------------------------------------------------------------------------------------


def test_a_race_is_run_shown_recorded_and_replayed(tmp_path):
    target = tmp_path / "run.json"
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        run = subprocess.Popen(
            [*COMMAND, "run", RACE, "--json", str(target)],
            env=environment(TERM="xterm"),
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
        )
        os.close(theirs)
        seen = b"".join(iter(lambda: _read(terminal), b""))
        shown = run.communicate()[0]
    recorded = json.loads(target.read_text())

    assert run.returncode == (1 if known_to_show() else 0)
    # Progress is there where somebody watches.
    assert b"schedules" in seen
    assert b"0/1" in seen
    assert shown.startswith(f"{RACE} without a fix: {'FAILS' if known_to_show() else 'HOLDS'}")
    check_envelope(recorded, "run")
    assert recorded["torch"].startswith(torch_version().partition("+")[0])
    (cell,) = recorded["cells"]
    assert (cell["race"], cell["fix"], cell["as_expected"]) == (RACE, NONE, True)
    assert {"compile_lock", "fx.trace"} <= set(cell["seams"])

    replay = command("replay", str(target), "-n", "2", "--json", "-")

    assert replay.returncode == run.returncode
    replayed = json.loads(replay.stdout)
    check_envelope(replayed, "replay")
    assert [again["trace"] for again in replayed["runs"]] == [cell["trace"]] * 2
    assert f"{cell['outcome']} 2 of 2" in replay.stderr
    assert "left the recorded path" not in replay.stderr
    # ... and not where nobody does.
    assert "\x1b" not in replay.stderr


def _read(terminal: Any) -> bytes:
    """What the terminal's other side wrote; nothing once it is closed, which Linux reports as an error."""
    try:
        return bytes(terminal.read(65536))
    except OSError:
        return b""


def test_a_fix_that_holds_exits_0(laboratory):
    done = here("run", RACE, "--fix", "lock", "--json", "-", laboratory=laboratory)

    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    check_envelope(document, "run")
    assert [(cell["fix"], cell["as_expected"]) for cell in document["cells"]] == [(NONE, True), ("lock", True)]
    assert document["cells"][1]["verdict"] == "HOLDS"
    assert document["asked"] == {"races": [RACE], "fixes": ["lock"], "times": 1, "searched": False}
    assert "schedules" not in done.stderr


def test_the_matrix_of_the_installed_release_exits_0(tmp_path, laboratory):
    target = tmp_path / "matrix.json"
    done = here("matrix", "--race", RACE, "--json", str(target), laboratory=laboratory)

    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    document = json.loads(target.read_text())
    check_envelope(document, "matrix")
    assert [cell["fix"] for cell in document["cells"]] == [NONE, *fixes.names(races.THREADS), PROCESSES]
    assert document["asked"] == {"races": [RACE], "fixes": None, "times": 1, "searched": False}
    assert done.stdout.rstrip().endswith("as expected for this release")


FIX_THAT_WAITS = """
import os
import signal

def before_threads(attention, examples):
    with open({pipe!r}, "w") as pipe:
        pipe.write(str(os.getpid()))
    signal.pause()
"""


def test_an_interrupt_leaves_no_process_and_no_file(tmp_path):
    pipe, fix, temporary = tmp_path / "pipe", tmp_path / "waits.py", tmp_path / "tmp"
    target = tmp_path / "matrix.json"
    os.mkfifo(pipe)
    temporary.mkdir()
    fix.write_text(FIX_THAT_WAITS.format(pipe=str(pipe)))
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        process = subprocess.Popen(
            [*COMMAND, "matrix", "--race", RACE, "--fix", str(fix), "--json", str(target)],
            env=environment(TMPDIR=str(temporary)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell that starts the tests in the background has it ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        # A child of the sandbox is in the middle of its job, or the command has ended.
        ended = os.pidfd_open(process.pid)
        assert wait([reader, ended]) == [reader]
        below = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    ends = [os.pidfd_open(pid) for pid in below]

    process.send_signal(signal.SIGINT)
    out, err = process.communicate()

    assert process.returncode == 3
    assert out == ""
    assert err == "repro: interrupted; nothing is left running\n"
    assert len(ends) >= 2
    assert set(wait(ends, timeout=0)) == set(ends)
    assert sorted(tmp_path.iterdir()) == sorted([pipe, fix, temporary])
    assert [*temporary.iterdir()] == []
    for descriptor in [ended, *ends]:
        os.close(descriptor)
