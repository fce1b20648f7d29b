"""``python -m repro audit`` as a command: what it takes, its exit codes, and what the other commands say of it."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from command_line import ROOT, command, refused

from repro import preflight
from repro.cli import _parser

NOTHING = {"seams": [], "trace": []}
EXAMPLES = ROOT / "docs" / "examples"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attention.py"], "'attention.py' is not MODULE:CALLABLE; write it as in my_app.attention:attend"),
        (
            ["nowhere.at:all"],
            "there is no module nowhere; run this in the folder that has it, set PYTHONPATH to that",
        ),
        (["a:b with stance"], "'a:b with stance' is not MODULE:CALLABLE alone; leave out what follows it"),
        (["a:b", "--threads", "9"], "argument --threads: '9' is not a whole number from 2 to 8"),
        (["a:b", "--threads", "1"], "argument --threads: '1' is not a whole number from 2 to 8"),
        (["a:b", "--train"], "--train needs --device cuda: on the CPU compiled flex_attention is for inference"),
    ],
)
def test_bad_usage(arguments, message):
    assert refused("audit", *arguments).startswith(message)


def test_the_commands_of_the_page_are_taken():
    text = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:cd \S+ && )?python -m repro (audit .*)$", text, flags=re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        parsed = _parser().parse_args(shlex.split(line))
        assert parsed.command.__name__ == "_audit"


def test_the_other_commands_say_where_a_callable_belongs():
    for line in ("run a:b", "explore a:b", "matrix --race a:b", "export a:b -o x", "gate --bisect a:b"):
        assert refused(*line.split()).endswith("of a callable of your own: python -m repro audit a:b")


def test_the_command_refuses_with_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "mine.py").write_text("def attention(*inputs):\n    raise ValueError('no\\nlines')\n")
    done = command("audit", "mine:attention", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "mine:attention raises when it is called alone: ValueError: no" in done.stderr


def test_a_replay_where_nobody_finds_the_callable_says_where_to_run_it(tmp_path):
    run = {"race": "nowhere.attention:attend", "fix": "none", "schedule": "-", "outcome": "error"}
    path = tmp_path / "audit.json"
    path.write_text(json.dumps({"schema": 1, "command": "audit", "torch": "2.13.0", "cells": [{**run, **NOTHING}]}))
    assert refused("replay", str(path)) == (
        "there is no module nowhere; run this in the folder that has it, set PYTHONPATH to that, or install it"
    )


@pytest.mark.nightly
def test_the_examples_end_with_their_exit_codes_and_the_broken_one_can_be_replayed(tmp_path):
    if preflight.torch_version().partition("+")[0] not in ("2.13.0", "2.14.1"):
        pytest.skip("what breaks is told of 2.13.0 and 2.14.1")
    file = str(tmp_path / "broken.json")
    broken = command("audit", "threaded_inference:attention", "--json", file, cwd=EXAMPLES)
    assert broken.returncode == 1, broken.stderr
    replayed = command("replay", file, cwd=EXAMPLES)
    assert replayed.returncode == 1, replayed.stderr
    assert replayed.stdout.startswith("threaded_inference:attention, torch")
    mended = command("audit", "threaded_inference_mended:attention", "--foreign", cwd=EXAMPLES)
    assert mended.returncode == 0, mended.stderr
    assert "breaks it" in mended.stdout
