"""The cache directory that the processes of a race share: how it is when they start, and what can happen to it.

What can happen is the body of a foreign process. Each of these functions is called before the processes are forked,
so that it means the shared directory whatever a fix makes of the process's own.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from repro.torch_names import entries

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
CONTENTS = ("empty", "kernels", "warm")


def shared() -> Path:
    return Path(os.environ[VARIABLE])


def wipe() -> Callable[[], None]:
    """Deletes the directory and all that is in it."""
    cache = shared()
    return lambda: shutil.rmtree(cache) if cache.exists() else None


def kill(name: str) -> Callable[[], None]:
    """Kills the process ``name``."""
    cache = shared()
    return lambda: os.kill(int(_pid_file(cache, name).read_text()), signal.SIGKILL)


def announce(cache: Path, name: str) -> None:
    """Say under which number the process ``name`` can be killed."""
    _pid_file(cache, name).write_text(str(os.getpid()))


def _pid_file(cache: Path, name: str) -> Path:
    return cache.parent / f"{name}.pid"


def fill(cache: Path, contents: str, seed: Path, compile: Callable[[], object]) -> None:
    """Make the directory ``cache`` as a race wants it: a copy of what ``compile`` leaves behind, or of a part of it.

    That is kept in ``seed``. ``compile`` is called in a process of its own: this one must not remember what it did.
    """
    if contents not in CONTENTS:
        raise ValueError(f"the cache can be {', '.join(CONTENTS)} at the start, not {contents!r}")
    if contents == "empty":
        cache.mkdir()
        return
    if not seed.is_dir():
        seed.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=seed.parent))
        if _compiled(made, compile) != 0:
            shutil.rmtree(made)
            raise RuntimeError("the compile that fills the cache failed")
        # Somebody else may have been as quick.
        with suppress(OSError):
            made.rename(seed)
        shutil.rmtree(made, ignore_errors=True)
    left_out = [] if contents == "warm" else _graph_folders()
    shutil.copytree(seed, cache, ignore=shutil.ignore_patterns(*left_out))


def _compiled(folder: Path, compile: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.environ[VARIABLE] = str(folder)
            compile()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def _graph_folders() -> list[str]:
    import torch

    return [entry["name"] for entry in entries("cache_folder", torch.__version__)]
