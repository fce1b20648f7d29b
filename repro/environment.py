"""Another torch for the gate: a virtual environment made from a pip requirement, or an interpreter that is there.

An environment is kept in the cache directory and used again for the same requirement. One that was not finished, or
that does not start any more, is made anew.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from repro.preflight import CACHE_VARIABLE, NotReady, cache_base

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NAME = "flex-attention-races"
_ROOT = Path(__file__).parent.parent


def interpreter(spec: str) -> Path:
    """The Python that has the torch of ``spec``. Raises :class:`repro.preflight.NotReady`.

    ``spec`` is the path of an interpreter, or what ``pip install`` takes, such as ``torch==2.14.1``.
    """
    python = _existing(spec)
    if python is None:
        python = _made(spec)
    # With something missing the run would end in a traceback, and Python's exit code for that is that of a verdict.
    names = ["torch", *(Requirement(line).name for line in dependencies())]
    try:
        done = subprocess.run([str(python), "-c", _PROBE, *names], capture_output=True, text=True)
    except OSError as error:
        raise NotReady(f"{python} does not start: {error.strerror}; give --torch-spec another interpreter") from None
    if done.returncode:
        raise NotReady(f"{python} is no Python that starts; give --torch-spec another interpreter")
    version, *missing = done.stdout.split()
    if version == "old":
        raise NotReady(f"{python} is too old; this suite needs Python 3.10 or newer")
    if "torch" in missing:
        raise NotReady(f"{python} has no torch; give --torch-spec an interpreter with torch, or torch==VERSION")
    if missing:
        raise NotReady(f"{python} lacks {missing[0]}; run: {python} -m pip install {' '.join(missing)}")
    return python


_PROBE = """
import sys
if sys.version_info < (3, 10):
    print("old")
    sys.exit()
import importlib.metadata
print("good")
for name in sys.argv[1:]:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        print(name)
"""


def run(spec: str, arguments: Sequence[str]) -> int:
    """``python -m repro`` with ``arguments`` under the torch of ``spec``: its output is seen, its exit code returned.

    Raises :class:`repro.preflight.NotReady`.
    """
    python = interpreter(spec)
    done = subprocess.run(
        [str(python), "-m", "repro", *arguments], env={**os.environ, "PYTHONPATH": str(_import_root())}
    )
    # Killed by a signal is no verdict.
    return done.returncode if done.returncode >= 0 else 3


def _import_root() -> Path:
    """A directory to import this package from. Where it is installed, torch is its neighbour and must stay behind."""
    if (_ROOT / "pyproject.toml").is_file():
        return _ROOT
    package = Path(__file__).parent
    root = cache_base() / "environments" / f"source-{hashlib.sha256(str(package).encode()).hexdigest()[:16]}"
    root.mkdir(parents=True, exist_ok=True)
    if not (root / package.name).is_dir():
        (root / package.name).unlink(missing_ok=True)
        (root / package.name).symlink_to(package)
    return root


def _existing(spec: str) -> Path | None:
    """The interpreter at ``spec``; ``None`` where that is a requirement."""
    path = Path(spec).expanduser()
    looks_like_a_path = os.sep in spec and not any(part in spec for part in (" ", "@", "://"))
    if path.is_dir() and (path / "bin" / "python").is_file():
        return path.absolute() / "bin" / "python"
    if path.is_file() and os.access(path, os.X_OK):
        # Not resolved: what a virtual environment's interpreter is a link to does not see the environment.
        return path.absolute()
    if looks_like_a_path:
        why = "is not an interpreter" if path.exists() else "does not exist"
        raise NotReady(f"{spec} {why}; give --torch-spec the path of a Python with torch, or torch==VERSION")
    return None


def _made(spec: str) -> Path:
    try:
        wanted = shlex.split(spec)
    except ValueError as error:
        raise NotReady(f"--torch-spec {spec!r} cannot be read: {error}") from None
    if not wanted:
        raise NotReady("--torch-spec is empty; give it torch==VERSION or the path of a Python with torch")
    if torch := _unnamed(spec.strip()):
        raise NotReady(f"--torch-spec {spec!r} does not say of what: give {shlex.quote(torch)}")
    needed = dependencies()
    key = "\n".join([*wanted, "", *needed, platform.python_version(), sys.prefix])
    place = cache_base() / "environments" / hashlib.sha256(key.encode()).hexdigest()[:16]
    python, finished = place / "bin" / "python", place / "finished"
    if finished.is_file() and _starts(python):
        return python
    print(f"repro: making an environment with {spec}; this takes minutes", file=sys.stderr, flush=True)
    shutil.rmtree(place, ignore_errors=True)
    try:
        venv.create(place, with_pip=True, symlinks=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotReady(
            f"cannot make an environment at {place}: {error}; set {CACHE_VARIABLE} to another place"
        ) from None
    _pip(python, spec, wanted)
    if needed:
        _pip(python, " ".join(needed), needed)
    finished.touch()
    return python


def _unnamed(spec: str) -> str | None:
    """The requirement that is meant by a version of torch, or a range of versions, alone."""
    try:
        return f"torch=={Version(spec)}"
    except InvalidVersion:
        try:
            return f"torch{SpecifierSet(spec)}"
        except InvalidSpecifier:
            return None


def _starts(python: Path) -> bool:
    try:
        return subprocess.run([str(python), "-c", ""], capture_output=True).returncode == 0
    except OSError:
        return False


def _pip(python: Path, what: str, arguments: Sequence[str]) -> None:
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        errors = [line.strip() for line in done.stdout.splitlines() if line.strip().startswith("ERROR:")]
        last = [*done.stdout.split("\n"), f"exit code {done.returncode}"]
        why = errors[-1] if errors else next(line for line in reversed(last) if line.strip())
        raise NotReady(f"pip cannot install {what}: {why.removeprefix('ERROR:').strip()}")


def dependencies() -> list[str]:
    """What this package needs beside torch: as ``pyproject.toml`` says, or the metadata where it is installed."""
    project = _ROOT / "pyproject.toml"
    if project.is_file():
        found: list[str] = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    else:
        found = importlib.metadata.requires(_NAME) or []
    parsed = [Requirement(line) for line in found]
    return [
        str(each)
        for each in parsed
        if each.name != "torch" and (each.marker is None or each.marker.evaluate({"extra": ""}))
    ]
