"""The cache directory that the processes of a race share: how it is when they start, and what can happen to it.

What can happen is the body of a foreign process. Each of these functions is called before the processes are forked,
so that it means the shared directory whatever a fix makes of the process's own.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from repro.torch_names import entries

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
CONTENTS = ("empty", "kernels", "warm")


def shared() -> Path:
    """The directory that torch uses; once a fix has given its process another one, that."""
    return Path(os.environ[VARIABLE])


def wipe() -> Callable[[], None]:
    """Deletes the directory and all that is in it."""
    cache = shared()
    return lambda: shutil.rmtree(cache) if cache.exists() else None


def cut(*patterns: str, keep: float) -> Callable[[], None]:
    """Puts in place of each file that matches one of ``patterns`` the share ``keep`` at its beginning.

    That is a new file, as a new writer would have left it: who has loaded the old one keeps that. It raises where
    there is no such file: then nothing has happened.
    """
    cache = shared()

    def cut_each() -> None:
        for path in _matching(cache, patterns):
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content[: int(len(content) * keep)])

    return cut_each


def graphs() -> list[str]:
    """Patterns that the compiled graphs in the directory match, for :func:`cut` and :func:`plant_temporary`."""
    return [f"{folder}/**/*" for folder in _graph_folders()]


def plant_temporary() -> Callable[[], None]:
    """Puts half of each graph beside it, under the name of a temporary file that its writer has not renamed."""
    cache = shared()
    patterns = graphs()

    def plant() -> None:
        for path in _matching(cache, patterns):
            content = path.read_bytes()
            path.with_name(".1.1.tmp").write_bytes(content[: len(content) // 2])

    return plant


def make_read_only() -> Callable[[], None]:
    cache = shared()

    def forbid() -> None:
        for path in [cache, *cache.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)

    return forbid


def without_privileges(body: Callable[[], None]) -> Callable[[], None]:
    """``body`` as it would be for anybody else: the modes of files mean nothing to root, until it gives that up."""

    def unprivileged() -> None:
        if os.geteuid() == 0:
            _obey_modes()
        body()

    return unprivileged


def _obey_modes() -> None:
    """Give up CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, in this process and in all that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    # <linux/capability.h>, version 3: two words each of effective, permitted and inheritable
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    dropped = [1, 2]
    failed = libc.capget(header, data)
    for capability in dropped:
        failed = failed or libc.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP, for what it starts
        for word in range(3):
            data[word] &= ~(1 << capability)
    failed = failed or libc.capset(header, data)
    if failed:
        raise OSError(ctypes.get_errno(), "cannot give up root's privileges")


def _matching(cache: Path, patterns: Iterable[str]) -> list[Path]:
    files = [path for pattern in patterns for path in cache.glob(pattern) if path.is_file()]
    if not files:
        raise FileNotFoundError(f"nothing in the cache is like {' or '.join(patterns)}")
    return files


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
    # The Python code of a graph is a file among those of the kernels that it calls.
    left_out = [] if contents == "warm" else [*_graph_folders(), "*.py"]
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
