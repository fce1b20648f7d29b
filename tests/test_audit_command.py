"""``python -m repro audit`` as a command: what it takes, its exit codes, and what the other commands say of it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import ROOT, command, here, refused

from repro import preflight
from repro.cli import _parser
from repro.export.trial import run

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


ATTENTION = "def attention():\n    pass\n"


@pytest.fixture
def exported(tmp_path, monkeypatch) -> Callable[..., str]:
    """What ``export`` says of a module ``mine`` with a ``source``, given what an audit wrote of ``race``."""
    monkeypatch.chdir(tmp_path)

    def said(
        source: str,
        race: str = "mine:attention",
        outcome: str = "error",
        named: str = "mine:attention",
        **document: Any,
    ) -> str:
        Path("mine.py").write_text(source)
        sizes = [{"heads": 8, "queries": 512, "keys": keys} for keys in document.pop("keys", (640, 768))]
        found = {"race": race, "fix": "none", "schedule": "-", "outcome": outcome, "workloads": sizes, **NOTHING}
        found |= {name: document.pop(name) for name in ("trace", "switches", "fix") if name in document}
        content = {"schema": 1, "command": "audit", "torch": "2.13.0", "cells": [found], **document}
        Path("audit.json").write_text(json.dumps(content))
        done = here("export", named, "--schedule", "audit.json", "--script-only", "-o", "out")
        written = f"out/repro_{re.sub('[.:]', '_', named)}.py\n"
        told = (done.returncode, done.stdout, done.stderr.count("\n"))
        assert told in [(2, "", 1), (0, written, 0)], done.stderr
        return done.stderr.removeprefix("repro: ").rstrip("\n")

    return said


def test_a_callable_is_exported_as_it_stands(exported, tmp_path):
    beginning = "#!/usr/bin/env python\n# Somebody's\n" + '"""Mine."""; import math\n'
    rest = """

import torch  # with a blank after it \n\n\n\n\n
try:
    import numpy
except ImportError:
    numpy = None


def attention(*inputs):
    "Of \u2028 two lines."
    return [errors for errors in (1, math.pi)]


if __name__ != "__main__":
    call = attention
else:
    raise SystemExit("this is not run")
"""
    source = f"{beginning}from __future__ import annotations\n{rest}"

    assert exported(source) == ""

    script = (tmp_path / "out" / "repro_mine_attention.py").read_text(encoding="utf-8")
    assert (beginning + rest).strip("\n") in script
    assert script.count("from __future__ import annotations\n") == 1
    compile(script, "script", "exec")
    # All of the module, and nothing else.
    part = script.partition("# ---- mine ----\n")[2].partition("\naudited = attention\n")[0]
    given: dict = {"__name__": "__main__", "sys": SimpleNamespace(modules={"__main__": None})}
    exec(compile(part.replace("import torch", "import json as torch"), "part", "exec"), given)
    assert given["call"] is given["attention"]
    assert given["__name__"] == "__main__"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"source": "import numpy\n"},
            "mine imports numpy, which a reader of the script has not: put the callable into a module that imports "
            "torch and the standard library only, and audit that",
        ),
        ({"source": "from .other import attention\n"}, "mine imports .other, which a reader of the script has not"),
        (
            {"source": "if 1:\n    def run_threads(): pass\n"},
            "a script has a 'run_threads' of its own: call that of mine something else, and audit it",
        ),
        ({"source": "def f():\n    global turns\n    turns = 1\n"}, "a script has a 'turns' of its own"),
        ({"source": "all = None\n"}, "a script has a 'all' of its own"),
        ({"source": "import threading as sys\n"}, "a script has a 'sys' of its own"),
        ({"source": "from torch import *\n"}, "mine imports *: name what it needs, and audit that"),
        ({"source": "def other(): pass\n"}, "mine has no 'attention' any more: audit it again"),
        (
            {"source": "from __future__ import annotations; import math\n"},
            "mine: give what is imported from __future__ a line of its own",
        ),
        ({"source": "x = " + "-" * 100_000 + "1\n"}, "mine cannot be read: "),
        ({"source": "def\n"}, "mine cannot be read: invalid syntax"),
        ({"source": "", "race": "other:attention"}, "audit.json is of other:attention, not of mine:attention"),
        (
            {"source": ATTENTION, "outcome": "wasteful"},
            "mine:attention came to wasteful, and a script looks at errors and values alone",
        ),
        (
            {"source": ATTENTION, "keys": (640, 640)},
            "mine:attention was called on what no script can give it; audit it again",
        ),
        (
            {"source": ATTENTION, "switches": ["first:fx.trace#1>third taken"]},
            "mine:attention: no thread is called third; those are first, second",
        ),
        (
            {"source": ATTENTION, "switches": ["first:autograd#1>second taken"]},
            "mine:attention: nothing in a script stands for first:autograd#1",
        ),
        ({"source": ATTENTION, "fix": "lock"}, "audit.json is of mine:attention under lock: a script has no fix"),
        ({"source": "", "outcome": "ok"}, "nothing breaks mine:attention in what was recorded"),
        (
            {"source": "", "devices": ["cpu", "cuda"]},
            "mine:attention was called on cpu, cuda: a script needs one device",
        ),
        ({"source": "", "torch": "new"}, "audit.json: the last cell: 'torch' is 'new', which is no version"),
        (
            {"source": ATTENTION, "trace": ["first:wait:lock>second"]},
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
def test_what_cannot_be_exported_is_told_in_one_line(changes, said, exported):
    assert exported(**changes).startswith(said)


def test_the_module_is_found_without_importing_what_it_is_in(exported, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("raise SystemExit(1)\n")
    (tmp_path / "app" / "mine.py").write_text("def attention():\n    pass\n")

    assert exported("", race="app.mine:attention", named="app.mine:attention") == ""
    assert "def attention():" in (tmp_path / "out" / "repro_app_mine_attention.py").read_text(encoding="utf-8")
    assert exported("", race="app.no:attention", named="app.no:attention") == (
        "there is no module app.no; run this in the folder that it was audited in"
    )


TWO_LOCKS = """
import threading

import torch
from torch.nn.attention.flex_attention import create_block_mask

LOCKS = [threading.Lock(), threading.Lock()]


def attention(query, key, value, mask_mod):
    first, then = LOCKS if threading.current_thread().name == "first" else LOCKS[::-1]
    with first:
        create_block_mask(mask_mod, None, None, query.shape[-2], key.shape[-2], device=query.device)
        with then:
            seen = (tensor[:, :, :512] for tensor in (query, key, value))
            return torch.nn.functional.scaled_dot_product_attention(*seen, is_causal=True)
"""


STOPS = """
import threading
import torch

CALLS = []


def attention(query, key, value, mask_mod):
    CALLS.append(threading.current_thread().name)
    if CALLS == ["first", "second"]:
        raise SystemExit(0)
    seen = (tensor[:, :, :512] for tensor in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*seen, is_causal=True)
"""


@pytest.mark.nightly
def test_a_script_says_that_a_thread_was_ended(exported, tmp_path):
    assert exported(STOPS, switches=["first:again#1>second taken"]) == ""

    trial = run((tmp_path / "out" / "repro_mine_attention.py").read_text(encoding="utf-8"))

    assert trial.shown, trial.output
    assert "SystemExit: 0" in trial.output


@pytest.mark.nightly
def test_a_script_says_that_its_threads_wait_for_each_other(exported, tmp_path):
    switches = ["first:mask.sort#1>second taken", "second:mask.sort#1>first taken"]
    assert exported(TWO_LOCKS, outcome="hang", switches=switches) == ""

    trial = run((tmp_path / "out" / "repro_mine_attention.py").read_text(encoding="utf-8"))

    assert trial.shown, trial.output
    assert trial.said == "BUG: threads that call `attention` break it: they wait for each other"


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
    assert "https://github.com/pytorch/pytorch/" in issue.partition("**Related:**")[2]
    mended = command("audit", "threaded_inference_mended:attention", "--foreign", cwd=EXAMPLES)
    assert mended.returncode == 0, mended.stderr
    assert "breaks it" in mended.stdout
