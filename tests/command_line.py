"""Runs ``python -m repro`` as a user does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import repro

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
    """Run it on something that it cannot work with; returns the one line that it says."""
    done = command(*arguments, env=env)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("repro: ")
    return done.stderr.removeprefix("repro: ").rstrip("\n")
