"""What can happen to a cache directory, without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from repro import cache_directory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads modes as Linux does")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    (folder / "ab").mkdir(parents=True)
    (folder / "ab" / "kernel.so").write_bytes(b"0123456789")
    monkeypatch.setenv(cache_directory.VARIABLE, str(folder))
    return folder


def test_a_wiped_directory_is_gone_and_can_be_wiped_again(cache: Path) -> None:
    wipe = cache_directory.wipe()
    wipe()
    wipe()
    assert not cache.exists()


def test_what_happens_is_to_the_directory_that_was_shared_at_the_start(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wipe = cache_directory.wipe()
    (tmp_path / "own").mkdir()
    monkeypatch.setenv(cache_directory.VARIABLE, str(tmp_path / "own"))
    wipe()
    assert (tmp_path / "own").exists()
    assert not cache.exists()


def test_a_cut_file_is_a_new_one_and_the_old_one_is_whole(cache: Path) -> None:
    with open(cache / "ab" / "kernel.so", "rb") as old:
        cache_directory.cut("*/*.so", keep=0.5)()
        assert old.read() == b"0123456789"
    assert (cache / "ab" / "kernel.so").read_bytes() == b"01234"


def test_nothing_to_cut_is_an_error(cache: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing in the cache is like \*/\*\.py"):
        cache_directory.cut("*/*.py", keep=0)()


def test_a_directory_that_is_read_only_is_so_for_root_too(cache: Path) -> None:
    program = """
import sys
from pathlib import Path
from repro import cache_directory
cache = cache_directory.shared()
cache_directory.make_read_only()()
def write():
    for path in (cache / "ab" / "kernel.so", cache / "ab" / "new"):
        try:
            path.open("a")
        except PermissionError:
            print("forbidden")
    print((cache / "ab" / "kernel.so").read_text())
cache_directory.without_privileges(write)()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    for path in [cache, *cache.rglob("*")]:
        path.chmod(0o755)

    assert done.stdout.split() == ["forbidden", "forbidden", "0123456789"]


def test_a_cache_is_filled_once_and_copied_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, compiled = tmp_path / "seeds" / "seed", tmp_path / "compiled"

    def compile() -> None:
        compiled.open("a").write("once ")
        (cache_directory.shared() / "code.py").touch()
        (cache_directory.shared() / "kernel.so").touch()

    monkeypatch.setattr(cache_directory, "_graph_folders", list)
    for name, contents, files in (
        ("first", "warm", {"code.py", "kernel.so"}),
        ("second", "kernels", {"kernel.so"}),
        ("third", "empty", set()),
    ):
        cache_directory.fill(tmp_path / name, contents, seed, compile)
        assert set(os.listdir(tmp_path / name)) == files
    assert compiled.read_text() == "once "
    assert os.listdir(seed.parent) == ["seed"]


def test_a_cache_that_cannot_be_filled_leaves_no_seed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the compile that fills the cache failed"):
        cache_directory.fill(tmp_path / "cache", "warm", tmp_path / "seeds" / "seed", lambda: os._exit(1))
    assert os.listdir(tmp_path / "seeds") == []


def test_a_killed_linker_leaves_an_empty_library(tmp_path: Path) -> None:
    """The state that cache-cut-library plants, made by a real linker that is killed when its output appears."""
    source, library = tmp_path / "kernel.cpp", tmp_path / "kernel.so"
    source.write_text("#include <map>\nstd::map<int, int> seen;\n")
    object_file = tmp_path / "kernel.o"
    subprocess.run(["g++", "-c", "-fPIC", str(source), "-o", str(object_file)], check=True)
    link = ["g++", "-shared", str(object_file), "-o", str(library)]
    subprocess.run(link, check=True)
    whole = library.stat().st_size
    left = whole
    # A linker that was through before the kill says nothing.
    while left == whole:
        library.unlink()
        linker = subprocess.Popen(link, start_new_session=True, stderr=subprocess.DEVNULL)
        while not library.exists():
            pass
        os.killpg(linker.pid, signal.SIGKILL)
        linker.wait()
        left = library.stat().st_size

    assert left == 0
