"""The surface of real torch: what was known is found by rules, and what is recorded is what the source says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from repro import surface
from repro.expectations import fixtures
from repro.preflight import torch_version
from tests.command_line import command, environment, refused

RELEASES = ["2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
# The races that were known before there was an inventory: what they leave changed, and where.
KNOWN = {
    "torch.fx._symbolic_trace._is_fx_tracing_flag": "<2.14",
    "torch.fx._symbolic_trace.CURRENT_PATCHER": ">=2.9",
    "torch.nn.modules.module.Module.__call__": ">=2.9",
    "torch.nn.modules.module.Module.__getattr__": ">=2.9",
    "torch.fx.traceback.current_meta": ">=2.9",
    "torch._dynamo.eval_frame._stance": ">=2.9",
    "torch.compiler._is_compiling_flag": ">=2.9",
}


def without_torch(*arguments: str) -> None:
    """Run the command in a process that must not have imported torch at its end."""
    code = f"import sys; from repro.cli import main; code = main(['surface', *{list(arguments)}])\n"
    code += "print(code, 'torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0 False"


def test_every_release_has_its_inventory() -> None:
    assert surface.releases() == RELEASES


@pytest.mark.parametrize("release", RELEASES)
def test_what_was_known_is_among_the_suspects_of_every_release_that_has_it(release: str) -> None:
    inventory = surface.inventory(release)
    suspects = {one.name for one in inventory.globals.values() if one.suspect}
    there = {name for name, releases in KNOWN.items() if release in SpecifierSet(releases)}

    assert suspects & {*KNOWN} == there
    # they come first, and are few enough to be probed one by one
    assert {one.name for one in inventory.ranked()[: len(suspects)]} == suspects
    assert len(suspects) < len(inventory.globals) / 4


def test_the_recorded_inventory_is_what_the_source_says_and_torch_is_not_imported(tmp_path: Path) -> None:
    file = tmp_path / "surface.json"
    without_torch("--json", str(file))
    installed = surface.inventory(str(file))
    release = Version(torch_version()).base_version
    if release not in RELEASES:
        pytest.skip(f"no inventory of torch {release} is recorded")
    recorded = surface.inventory(release)
    assert surface.counts(installed) == surface.counts(recorded)
    assert installed.globals == recorded.globals


def test_what_is_recorded_is_read_without_torch() -> None:
    without_torch("--torch", "2.13.0")
    without_torch("--diff", "2.13.0", "2.14.1")


def test_since_2_14_the_mark_of_a_trace_belongs_to_a_thread() -> None:
    moved = {change.name: change for change in surface.compare("2.13.0", "2.14.1").changes if change.kind == "moved"}
    mark = moved["torch.fx._symbolic_trace._is_fx_tracing_flag"]
    assert mark.suspect
    assert "now a thread's: " in mark.what


def test_since_2_13_a_compile_marks_the_process() -> None:
    came = [change for change in surface.compare("2.12.1", "2.13.0").suspects if change.kind == "writer"]
    (by,) = [change.what for change in came if change.name == "torch.compiler._is_compiling_flag"]
    assert by == "written by torch.compiler:_compile_session_context (swap)"


def test_since_2_12_config_belongs_to_a_context() -> None:
    changes = surface.compare("2.11.0", "2.12.1").changes
    assert any(change.kind == "moved" and ".config." in change.name for change in changes)


def test_a_release_differs_from_itself_in_nothing() -> None:
    assert not surface.compare("2.13.0", "2.13.0").changes


def test_what_was_judged_is_no_suspect_and_says_why() -> None:
    assert surface.judgement("sys.modules", "2.13.0")
    assert not surface.judgement("torch.fx.traceback.current_meta", "2.13.0")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--torch", "1.0.0"], "is no recorded release"),
        (["--torch", __file__], "not an inventory"),
        (["--diff", "2.13.0", "nowhere"], "is no recorded release"),
        (["--torch", "2.13.0", "--diff", "2.13.0", "2.14.1"], "exclude each other"),
        (["--torch", "/bin/false"], "not a Python interpreter that runs"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], words: str) -> None:
    assert words in refused("surface", *arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema":2,"torch":"2.13.0","globals":{}}', "schema 2 is not 1"),
        ('{"torch":"2.13.0","globals":{}}', "not an inventory: KeyError: 'schema'"),
    ],
)
def test_an_inventory_of_another_kind_is_refused(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "surface.json"
    file.write_text(text, encoding="utf-8")
    assert words in refused("surface", "--torch", str(file))


def test_where_there_is_no_torch_nothing_is_said_to_be_safe(tmp_path: Path) -> None:
    done = command("surface", "--torch", str(tmp_path))
    assert done.returncode == 2
    assert "nothing to inventory" in done.stderr


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "surface.json"
    assert command("surface", "--torch", "2.13.0", "--json", str(file)).returncode == 0
    assert command("surface", "--diff", "2.13.0", str(file)).returncode == 0
    assert surface.inventory(str(file)) == surface.inventory("2.13.0")
    text = file.read_text(encoding="utf-8")
    assert surface.dumps(surface.inventory(str(file)), head(text)) == text


@pytest.mark.parametrize("path", sorted((fixtures() / "surface").iterdir()), ids=lambda path: path.name)
def test_every_file_says_of_what_it_is_and_has_a_line_for_each_entry(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert head(text).keys() == {"schema", "command", "torch", "python", "platform", "seeds"}
    assert path.stem.endswith(f"-{head(text)['torch']}")
    (entries,) = [value for value in json.loads(text).values() if isinstance(value, (dict, list)) and value]
    assert len(text.splitlines()) == len(entries) + 2


def head(text: str) -> dict[str, Any]:
    """The envelope of a document, without what is in it."""
    return {key: value for key, value in json.loads(text).items() if key not in ("globals", "probes")}
