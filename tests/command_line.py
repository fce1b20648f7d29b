"""Runs ``python -m repro`` as a user does, in a process of its own or in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest.mock import patch

import repro
from repro.cli import main
from repro.laboratory import Laboratory

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


def here(
    *arguments: str, env: dict[str, str] | None = None, laboratory: Laboratory | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end in this process, with a ``laboratory`` that is warm already if it is to have one."""

    def warm(**_: object) -> nullcontext[Laboratory | None]:
        return nullcontext(laboratory)

    # Files, as a command may close what it writes to.
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            patch.dict(os.environ, env or environment(), clear=True),
            patch("repro.laboratory.Laboratory", warm) if laboratory else nullcontext(),
        ):
            code = main(arguments)
        out.seek(0)
        err.seek(0)
        done = subprocess.CompletedProcess(arguments, code, out.read(), err.read())
    assert "Traceback" not in done.stderr
    return done


def refused(*arguments: str, env: dict[str, str] | None = None) -> str:
    """Run it on something that it cannot work with; returns the one line that it says.

    In this process, since nothing long starts, but for where the environment is another.
    """
    done = here(*arguments) if env is None else command(*arguments, env=env)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("repro: ")
    return done.stderr.removeprefix("repro: ").rstrip("\n")
