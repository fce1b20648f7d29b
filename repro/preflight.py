"""What must be there before anything runs; found out without importing torch.

Each failure is a :class:`NotReady` whose one line says what to do.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import platformdirs
from packaging.version import InvalidVersion, Version

OLDEST_TORCH = Version("2.9")
CACHE_VARIABLE = "REPRO_CACHE_DIR"
# Bytes that must be free: for the kernels of a first run, and so that what fails in a run cannot be for want of them.
ROOM, LITTLE = 256 * 2**20, 64 * 2**20


class NotReady(Exception):
    """Something that every run needs is missing; the message says what to do."""


def torch_version() -> str:
    """The installed release, as ``torch.__version__`` has it."""
    found = None
    try:
        found = importlib.metadata.version("torch")
        release = Version(Version(found).base_version)
    except importlib.metadata.PackageNotFoundError:
        raise NotReady("torch is not installed; install one with: pip install 'torch>=2.9'") from None
    except (InvalidVersion, KeyError, TypeError):
        raise NotReady(f"torch has no version but {found!r}; install it anew: pip install 'torch>=2.9'") from None
    if release < OLDEST_TORCH:
        raise NotReady(f"torch {found} is too old; this suite needs torch >= {OLDEST_TORCH}")
    return found


def check_flex_attention() -> None:
    spec = importlib.util.find_spec("torch")
    places = list(spec.submodule_search_locations or []) if spec else []
    if not any(Path(place, "nn", "attention", "flex_attention.py").is_file() for place in places):
        raise NotReady(
            "this build of torch has no torch.nn.attention.flex_attention; install a full build of torch >= 2.9"
        )


def compiler() -> str:
    """The C++ compiler that inductor will use: ``CXX``, else the first of the usual names on the path."""
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["g++", "c++", "clang++"]:
        if found := shutil.which(name):
            return found
    if wanted:
        raise NotReady(f"no C++ compiler: CXX={wanted} is not on the PATH; unset CXX or point it at a compiler")
    raise NotReady("no C++ compiler: none of g++, c++, clang++ is on the PATH; install one (Debian: apt install g++)")


def check_compiler() -> None:
    """Whether :func:`compiler` finds one that compiles."""
    command = [compiler(), "-x", "c++", "-fsyntax-only", "-"]
    try:
        done = subprocess.run(command, input="#include <vector>\n", capture_output=True, text=True)
        why = done.stderr.strip().partition("\n")[0] or f"exit code {done.returncode}"
    except OSError as error:
        done, why = None, str(error.strerror)
    if done is None or done.returncode:
        raise NotReady(f"the C++ compiler {command[0]} does not work: {why}; mend it, or point CXX at another")


def cache_base() -> Path:
    """The directory for all that is kept between runs."""
    return Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("flex-attention-races"))


@functools.cache
def cuda_devices() -> int:
    """How many CUDA devices torch sees; asked in another process, since whoever has asked the driver cannot fork."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    command = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
    done = subprocess.run(command, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdecimal() else 0


def check_devices(devices: Iterable[str]) -> None:
    """Whether all of ``devices`` are there, such as ``cpu``, ``cuda`` and ``cuda:1``."""
    for device in devices:
        found = re.fullmatch(r"cpu|cuda(?::(\d+))?", device)
        if found is None:
            raise NotReady(f"no such device: {device!r}; give cpu, cuda or cuda:N")
        if device.startswith("cuda") and int(found[1] or 0) >= cuda_devices():
            raise NotReady(
                f"no device {device}: torch {torch_version()} sees {cuda_devices()} CUDA devices; leave --device "
                "out, or install a CUDA build of torch and a driver"
            )


def cache_directory(torch: str) -> Path:
    """Where compiled kernels are kept between runs, one directory a torch build and Python; made if need be."""
    directory = cache_base() / f"torch-{torch}-python-{platform.python_version()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        raise NotReady(
            f"cannot write the cache directory {directory}: {error.strerror}; set {CACHE_VARIABLE} to a writable one"
        ) from None
    free = shutil.disk_usage(directory).free
    if free < ROOM:
        raise NotReady(
            f"the disk of the cache directory {directory} is full: {free >> 20} MiB are free, and a run may take "
            f"{ROOM >> 20}; make room, or set {CACHE_VARIABLE} to a directory on another disk"
        )
    return directory


def full(directory: Path) -> bool:
    """Whether the disk of ``directory`` has so little room left that a compile may have failed for it."""
    return shutil.disk_usage(directory).free < LITTLE


def check() -> tuple[str, Path]:
    """All of the above. Returns the torch version and the cache directory."""
    if platform.system() != "Linux":
        raise NotReady(f"runs need Linux (process control by pidfd and prctl); this is {platform.system()}")
    version = torch_version()
    check_flex_attention()
    check_compiler()
    return version, cache_directory(version)
