"""What a run leaves when a process in it hangs or is killed: no child, no lock file, no directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from repro.experiment import Experiment
from repro.laboratory import Laboratory
from repro.outcome import Kind


def inventory(laboratory: Laboratory) -> tuple[set[Path], set[psutil.Process]]:
    """Files and folders beside the kernels that are kept on purpose, and all processes below this one."""
    kept = {path for folder in (laboratory.cache, laboratory.cache / "tmp") for path in folder.iterdir()}
    return kept, set(psutil.Process().children(recursive=True))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    """A laboratory with a cache directory of its own: in the shared one the tests beside this are at work."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("REPRO_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        with Laboratory() as laboratory:
            yield laboratory


@pytest.mark.xdist_group("left behind")
@pytest.mark.parametrize(
    ("race", "fix", "kind"),
    [
        # Killed while it holds the lock file of the fix, with its temporary file in the cache.
        ("writer-killed", "file-lock", Kind.OK),
        ("writer-killed", "own-directory", Kind.OK),
        ("fork-while-compiling", "file-lock", Kind.HANG),
    ],
)
def test_nothing_is_left_of_a_process_that_hangs_or_is_killed(
    race: str, fix: str, kind: Kind, alone: Laboratory
) -> None:
    # The first run warms the sandbox up and fills the seeds.
    alone.perform(Experiment(race="writer-killed"))
    before = inventory(alone)
    run = alone.perform(Experiment(race=race, fix=fix))

    assert run.outcome.kind is kind, run.outcome.reason
    assert inventory(alone) == before
