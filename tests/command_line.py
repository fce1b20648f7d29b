"""Runs ``python -m repro`` as a user does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import repro
from repro.cli import main

ROOT = Path(repro.__file__).parent.parent
COMMAND = [sys.executable, "-m", "repro"]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def command(*arguments: str, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it to its end. There must never be a traceback."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    done = subprocess.run([*COMMAND, *arguments], env=env or environment(), text=True, **pipes)
    assert "Traceback" not in (done.stderr or "")
    return done


def refused(*arguments: str, env: dict[str, str] | None = None) -> str:
    """Run it on something that it cannot work with; returns the one line that it says.

    In this process, since nothing long starts, but for where the environment is another.
    """
    if env is None:
        code, stdout, stderr = here(*arguments)
    else:
        done = command(*arguments, env=env)
        code, stdout, stderr = done.returncode, done.stdout, done.stderr
    assert code == 2, stderr
    assert stdout == ""
    assert stderr.count("\n") == 1
    assert stderr.startswith("repro: ")
    return stderr.removeprefix("repro: ").rstrip("\n")


def here(*arguments: str) -> tuple[int, str, str]:
    """Run it in this process: exit code, standard output and standard error."""
    # Files, as a command may close what it writes to.
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()
