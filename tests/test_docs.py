"""What the pages in ``docs/`` show is what there is: commands, files, and the catalogue of races."""

from __future__ import annotations

import configparser
import re
import shlex

import pytest
import yaml
from command_line import ROOT

from repro import fixes, races
from repro.cli import _parser
from repro.report import markdown

TEXT = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
LINES = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]


@pytest.mark.parametrize("line", LINES)
def test_a_command_is_taken(line):
    words = shlex.split(line)
    start = words.index("--") + 1 if words[0] == "tox" else words.index("gate") + 1
    options = _parser().parse_args(["gate", *words[start:]])
    assert options.command.__name__ == "_gate"


def test_the_snippets_can_be_read_and_name_what_there_is():
    (steps,) = [yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml"]
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert set(steps[0]["with"]) <= set(action["inputs"])
    assert set(re.findall(r"outputs\.(\w+)", TEXT)) <= set(action["outputs"])
    (snippet,) = [text for kind, text in BLOCKS if kind == "ini"]
    ini = configparser.ConfigParser()
    ini.read_string(snippet)
    assert "python -m repro gate" in ini["testenv:torch-gate"]["commands"]
    for option in re.findall(r"`(--[\w-]+)", TEXT):
        assert option in _parser().format_help() + _gate_help() + "--torch-baseline", option


def _gate_help() -> str:
    return next(
        parser.format_help()
        for action in _parser()._subparsers._group_actions
        for name, parser in action.choices.items()
        if name == "gate"
    )


def test_the_page_of_races_is_what_the_race_files_give():
    written = (ROOT / "docs" / "races.md").read_text(encoding="utf-8")
    assert written == markdown.catalogue(), "write it anew: python -m repro list --markdown docs/races.md"


@pytest.mark.parametrize(
    ("page", "file"),
    [("writing-a-race", races.FOLDER / "stance_leak.py"), ("writing-a-fix", fixes.FOLDER / "context.py")],
)
def test_a_file_that_is_shown_whole_is_the_file(page, file):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert shown == file.read_text(encoding="utf-8")


PAGES = ["writing-a-race", "writing-a-fix", "engine", "races"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_commands_and_files_that_there_are(page):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(?:\* `)?python -m repro (.*?)`?$", text, flags=re.MULTILINE)
    for line in commands:
        _parser().parse_args(shlex.split(line))
    for name in re.findall(r"`((?:repro|docs|fixtures|tests)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name
    if page == "engine":
        for name in re.findall(r"`(\w+\.py)`", text):
            assert (ROOT / "repro" / "interleave" / name).is_file(), name
    else:
        assert commands


def test_every_function_of_a_fix_is_told_with_the_fixes_that_have_it():
    text = (ROOT / "docs" / "writing-a-fix.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)\(.*\)` \| .* \| (.*) \|$", text, flags=re.MULTILINE)
    assert {function for function, _ in rows} == fixes._HOOKS
    for function, named in rows:
        for fix in re.findall("`(.*?)`", named):
            assert f"def {function}(" in fixes.path(fix).read_text(encoding="utf-8")
