"""Every command of the gate that ``docs/gate.md`` shows is one that the command line takes."""

from __future__ import annotations

import configparser
import re
import shlex

import pytest
import yaml
from command_line import ROOT

from repro.cli import _parser

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
