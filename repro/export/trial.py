"""Runs a script as whoever reads the report would: a process of its own, without this package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# Seconds; a script bounds itself below that.
_BOUND = 900
BUG, CLEAN, SAYS_NOTHING = 1, 0, 3


@dataclass(frozen=True)
class Trial:
    """How a run of a script ended: ``code`` is its exit code, negative for a signal; ``output`` all it printed."""

    code: int
    output: str

    @property
    def shown(self) -> bool:
        """An exit code of 1 alone may be Python's own, for a mistake in the script. A signal is a bug by itself."""
        return self.code < 0 or (self.code == BUG and re.search(r"^BUG: ", self.output, re.MULTILINE) is not None)

    @property
    def clean(self) -> bool:
        return self.code == CLEAN

    @property
    def said(self) -> str:
        """The verdict in the script's own words, or how it died."""
        if self.code < 0:
            return f"died by signal {-self.code}"
        last = (self.output.strip().splitlines() or ["nothing"])[-1]
        return last if self.shown or self.clean or self.code == SAYS_NOTHING else f"exit code {self.code}: {last}"


def run(script: str, *, settings: Mapping[str, str] | None = None, python: str = sys.executable) -> Trial:
    """Run the text of a script once; ``settings`` are environment variables for it, such as ``BACKEND``."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "script.py")
        path.write_text(script, encoding="utf-8")
        try:
            # -I: neither the folder that it is in, nor PYTHONPATH, nor the user's own packages.
            done = subprocess.run(
                [python, "-I", "-X", "faulthandler", str(path)],
                cwd=folder,
                env={**inherited, **(settings or {})},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=_BOUND,
            )
        except subprocess.TimeoutExpired as late:
            output = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
            return Trial(SAYS_NOTHING, f"{output}\nno answer in {_BOUND} seconds")
    return Trial(done.returncode, done.stdout)
