"""What a run leaves when a process in it hangs or is killed: no child, no lock file, no directory."""

from __future__ import annotations

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


# It looks at all that is in the cache directory, where tests beside it are at work.
@pytest.mark.nightly
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
    race: str, fix: str, kind: Kind, laboratory: Laboratory
) -> None:
    # The first run warms the sandbox up and fills the seeds.
    laboratory.perform(Experiment(race="writer-killed"))
    before = inventory(laboratory)
    run = laboratory.perform(Experiment(race=race, fix=fix))

    assert run.outcome.kind is kind, run.outcome.reason
    assert inventory(laboratory) == before
