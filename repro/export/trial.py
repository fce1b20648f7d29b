"""Runs a script as whoever reads the report would: a process of its own, without this package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Seconds; a script bounds itself below that.
_BOUND = 900
BUG, CLEAN, SAYS_NOTHING = 1, 0, 3
_STACKS = "---- native stacks ----"


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


def run(
    text: str, *, file: str = "script.py", settings: Mapping[str, str] | None = None, under: Sequence[str] = ()
) -> Trial:
    """Run a script's ``text`` once, ``under`` another command such as a debugger.

    ``settings`` are environment variables for it, such as ``BACKEND``.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file)
        path.write_text(text, encoding="utf-8")
        try:
            # -I: neither the folder that it is in, nor PYTHONPATH, nor the user's own packages.
            done = subprocess.run(
                [*under, sys.executable, "-I", "-X", "faulthandler", str(path)],
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


def native_stacks(text: str, *, file: str, attempts: int) -> str:
    """Where a script dies, as gdb sees it: the native stacks of all threads. In words why there are none."""
    debugger = shutil.which("gdb")
    if debugger is None:
        return "no native stacks: gdb is not installed"
    under = [debugger, "-nx", "-batch", "-return-child-result"]
    for command in ("set pagination off", "run", f"echo {_STACKS}\\n", "thread apply all backtrace 40"):
        under += ["-ex", command]
    for _ in range(attempts):
        before, found, stacks = run(text, file=file, under=[*under, "--args"]).output.partition(f"{_STACKS}\n")
        if found and "received signal" in before:
            return stacks.strip()
    return f"no native stacks: it did not die in {attempts} runs under gdb"
