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
        (["attention:None"], "'attention:None' is not MODULE:CALLABLE; write it as in my_app.attention:attend"),
        (["attention:attend."], "'attention:attend.' is not MODULE:CALLABLE; write it as in my_app.attention:attend"),
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
    for line in ("run a:b", "explore a:b", "matrix --race a:b", "gate --bisect a:b"):
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


def exported(
    tmp_path,
    source: str,
    race: str = "mine:attention",
    outcome: str = "error",
    named: str = "mine:attention",
    **document,
) -> str:
    """What ``export`` says of a module ``mine`` with this ``source``, given what an audit wrote of ``race``."""
    (tmp_path / "mine.py").write_text(source)
    size = {"heads": 8, "queries": 512, "keys": 640}
    found = {"race": race, "fix": "none", "schedule": "-", "outcome": outcome, "workloads": [size, size], **NOTHING}
    found["trace"] = document.pop("trace", [])
    content = {"schema": 1, "command": "audit", "torch": "2.13.0", "cells": [found], **document}
    (tmp_path / "audit.json").write_text(json.dumps(content))
    arguments = ["export", named, "--schedule", "audit.json", "--script-only", "-o", "out"]
    done = command(*arguments, cwd=tmp_path)
    written = f"out/repro_{re.sub('[.:]', '_', named)}.py\n"
    assert (done.returncode, done.stdout, done.stderr.count("\n")) in [(2, "", 1), (0, written, 0)], done.stderr
    return done.stderr.removeprefix("repro: ").rstrip("\n")


def test_a_callable_is_exported_as_it_stands_without_what_runs_it(tmp_path):
    source = (
        '"""Mine."""\nfrom __future__ import annotations\n\nimport torch\n\n\ndef attention(*inputs):\n    return 1\n'
    )
    main = "\n\nif __name__ == '__main__':\n    print(attention())\n"

    assert exported(tmp_path, source + main) == ""

    script = (tmp_path / "out" / "repro_mine_attention.py").read_text(encoding="utf-8")
    assert "\ndef attention(*inputs):\n    return 1\n" in script
    assert "print(attention())" not in script
    assert "Mine." not in script
    assert script.count("from __future__ import annotations\n") == 1
    compile(script, "script", "exec")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"source": "import numpy\n"},
            "mine imports numpy, which a reader of the script has not: put the callable into a module that imports "
            "torch and the standard library only, and audit that",
        ),
        ({"source": "from .other import attention\n"}, "mine imports .other, which a reader of the script has not"),
        ({"source": "def run_threads():\n    pass\n"}, "a script has a 'run_threads' of its own: call yours"),
        ({"source": "def\n"}, "mine cannot be read: invalid syntax"),
        ({"source": "", "race": "other:attention"}, "audit.json is of other:attention, not of mine:attention"),
        ({"source": "", "outcome": "ok"}, "nothing breaks mine:attention in what was recorded"),
        (
            {"source": "", "devices": ["cpu", "cuda"]},
            "mine:attention was called on cpu, cuda: a script needs one device",
        ),
        ({"source": "", "torch": "new"}, "audit.json: the last cell: 'torch' is 'new', which is no version"),
        (
            {"source": "", "trace": ["first:wait:lock>second"]},
            "mine:attention: 'first:wait:lock>second' in its trace is no step; record it again",
        ),
        ({"source": "", "cells": []}, "audit.json: nothing breaks the callable there, so there is nothing to report"),
        ({"source": "", "command": "run"}, "audit.json is what run wrote; give what audit wrote with --json"),
        (
            {"source": "", "race": "mine:attention with tracer"},
            "mine:attention with tracer: export the race that audit --foreign names; it needs no code of yours",
        ),
    ],
)
def test_what_cannot_be_exported_is_told_in_one_line(changes, said, tmp_path):
    assert exported(tmp_path, **changes).startswith(said)


def test_the_module_is_found_without_importing_what_it_is_in(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("raise SystemExit(1)\n")
    (tmp_path / "app" / "mine.py").write_text("def attention():\n    pass\n")

    assert exported(tmp_path, "", race="app.mine:attention", named="app.mine:attention") == ""
    assert "def attention():" in (tmp_path / "out" / "repro_app_mine_attention.py").read_text(encoding="utf-8")
    assert exported(tmp_path, "", race="app.no:attention", named="app.no:attention") == (
        "there is no module app.no; run this in the folder that it was audited in"
    )


def test_a_callable_is_exported_by_what_its_audit_wrote(tmp_path):
    assert refused("export", "a:b", "-o", str(tmp_path)).startswith("there is no module a;")
    assert refused("export", "json:dumps", "-o", str(tmp_path)) == (
        "nothing is recorded of json:dumps: give what breaks it with --schedule, as python -m repro audit json:dumps "
        "--json FILE writes it"
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
    exported = command(
        "export", "threaded_inference:attention", "--schedule", file, "-n", "1", "-o", str(tmp_path), cwd=EXAMPLES
    )
    assert exported.returncode == 0, exported.stderr
    assert exported.stdout.startswith("threaded_inference:attention on torch")
    assert "shown 1 of 1 times" in exported.stdout
    issue = (tmp_path / "issue.md").read_text(encoding="utf-8")
    assert "### Error logs" in issue
    assert "https://github.com/pytorch/pytorch/issues/" in issue.partition("**Related:**")[2]
    mended = command("audit", "threaded_inference_mended:attention", "--foreign", cwd=EXAMPLES)
    assert mended.returncode == 0, mended.stderr
    assert "breaks it" in mended.stdout
