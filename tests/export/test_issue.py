"""The issue: PyTorch's fields, filled in by real runs, and nothing in it that names the machine."""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
from pathlib import Path

import pytest

from repro import export, races
from repro.export.issue import columns
from repro.export.scrub import scrub
from repro.preflight import torch_version
from tests.command_line import command

# On every release that is known, and without a C++ compiler as it is.
RACE = "patcher-bystander"
# One export does for all.
pytestmark = pytest.mark.xdist_group("issue")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    done = command("export", RACE, "-n", "1", "-o", str(folder), "--json", str(folder / "export.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{RACE} on torch {torch_version()}: shown 1 of 1 times" in done.stdout
    return folder


@pytest.fixture(scope="module")
def issue(exported: Path) -> str:
    return (exported / "issue.md").read_text(encoding="utf-8")


def test_in_a_worker_it_stands_in_its_group(request):
    """What is exported once is shared only where xdist knows of the group."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@issue"), "this pytest and xdist do not group: install pytest<9.2"


def test_it_has_the_fields_of_the_form_in_order(issue):
    assert re.findall(r"^### (.*)$", issue, re.MULTILINE) == ["🐛 Describe the bug", "Error logs", "Versions"]


def test_it_leaves_the_disclosures_to_whoever_files_it(issue):
    first, _, rest = issue.partition("-->")

    assert "AI assistance" in first
    assert "Nothing is\n  written for you there" in first
    assert "AI assistance" not in rest


def test_it_holds_the_script(issue):
    assert export.write(export.recorded(RACE)).text in issue


def test_the_ablation_was_run(issue):
    rows = dict(re.findall(r"^\| (`\w+` \| `\w+`) \| (.*) \|$", issue, re.MULTILINE))

    assert list(rows) == [
        "`eager` | `None`",
        "`aot_eager` | `None`",
        "`inductor` | `None`",
        "`inductor` | `True`",
        "`inductor` | `False`",
    ]
    assert set(rows.values()) == {"BUG: a module was taken for a part of what another thread traced"}


def test_it_has_the_interleaving_and_the_traceback_and_the_versions(issue):
    assert "hand-over 1 > layer" in issue
    assert "NameError: module is not installed as a submodule" in issue
    assert f"PyTorch version: {torch_version()}" in issue


def test_it_names_the_releases_and_every_related_thread(issue):
    source = Path(races.FOLDER, "patcher_bystander.py").read_text(encoding="utf-8")
    links = re.findall(r'"(https://[^"]+)"', source)

    assert links
    assert all(f"* {link}\n" in issue for link in links)
    assert re.search(r"^\| 2\.9\.1 to [\d.]+ \| error \|$", issue, re.MULTILINE)


def test_nothing_in_it_names_the_machine(issue, exported):
    own = [platform.node(), str(Path.home()), str(exported), str(Path(export.__file__).parents[2])]
    if getpass.getuser() != "root":
        own.append(getpass.getuser())

    assert [name for name in own if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", issue)] == []
    # No absolute path at all, but in links.
    assert re.findall(r"(?<![\w:/.`~>-])/\w[\w.-]*/[\w./-]+", issue) == []


def test_its_json_says_what_was_seen(exported):
    document = json.loads((exported / "export.json").read_text())

    assert document["command"] == "export"
    assert document["said"] == ["BUG: a module was taken for a part of what another thread traced"]


# ---- the parts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('File "/opt/env/lib/python3.11/site-packages/torch/fx/a.py", line 3', 'File "torch/fx/a.py", line 3'),
        ('File "/usr/lib/python3.11/contextlib.py", line 3', 'File "contextlib.py", line 3'),
        (f'File "{Path.home()}/x y/a.py"', 'File "x y/a.py"'),
        ("see /scratch/mine/torchinductor_me/ab/cab.py for", "see cab.py for"),
        ("~/work/a.py", "a.py"),
        ("https://github.com/pytorch/pytorch/issues/1", "https://github.com/pytorch/pytorch/issues/1"),
        ("1/2 and/or 3", "1/2 and/or 3"),
        (
            "Architecture: x86_64; CPU op-mode(s): 32-bit, 64-bit",
            "Architecture: x86_64; CPU op-mode(s): 32-bit, 64-bit",
        ),
    ],
)
def test_scrubbing_leaves_where_it_lies_in_torch(text, left):
    assert scrub(text) == left


def test_scrubbing_takes_out_the_host_and_the_user(monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "node-17.example")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")

    assert scrub("ada on node-17.example at ada@node-17.example, an adage") == "USER on HOST at USER@HOST, an adage"


def test_columns_are_the_hand_overs_by_thread():
    recording = export.recorded("stance-left")
    assert columns(recording, {}).splitlines() == [
        "one              two",
        "start",
        "in-stance > two",
        "                 start",
        "                 in-stance > one",
        "end > two",
        "                 end",
    ]
    # As the script numbers them.
    assert columns(recording, export.write(recording).numbers).splitlines()[2:5] == [
        "hand-over 1 > two",
        "                   start",
        "                   hand-over 2 > one",
    ]


def test_in_the_columns_a_thread_that_raised_does_not_just_end():
    recording = export.recorded("tracing-bystander")
    lines = columns(recording, export.write(recording).numbers).splitlines()

    assert lines[0].split() == ["tracer", "compiled"]
    assert "raised RuntimeError > tracer" in lines[-2]
    assert lines[-1] == "end"


@pytest.mark.parametrize(
    ("race", "since"), [("tracing-bystander", "2.14.1"), ("reset-crash", None), ("cold-start", None)]
)
def test_a_race_that_newer_releases_do_not_have_is_told(race, since):
    assert export.clean_since(race) == since


def test_one_thread_alone_has_no_columns():
    assert columns(export.recorded("lost-config"), {}) == ""
