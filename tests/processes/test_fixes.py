"""Every fix for processes has a race that goes red when the fix is emptied."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro import races
from repro.experiment import Experiment, Observation
from repro.fixes import PROCESSES, UnknownFix, check, names, path
from repro.laboratory import Laboratory
from repro.outcome import Kind

# Of each fix: the line that does it, what it is emptied to, and the race that it is shown by.
EMPTIED = {
    "own-directory": ('os.environ["TORCHINDUCTOR_CACHE_DIR"] = ', "_ = ", "cache-wiped-writing"),
    "file-lock": ("fcntl.flock(file, fcntl.LOCK_EX)", "pass", "cache-wiped-in-turn"),
    "warm-fork": ("attention(*example)", "pass", "cache-cut-library"),
}


def test_every_fix_is_emptied_here() -> None:
    assert sorted(EMPTIED) == names(PROCESSES)


@pytest.mark.parametrize("fix", sorted(EMPTIED))
def test_the_same_schedule_ends_as_without_a_fix(fix: str, tmp_path: Path, laboratory: Laboratory) -> None:
    kept, replaced, race = EMPTIED[fix]
    source = path(fix).read_text(encoding="utf-8")
    assert source.count(kept) == 1
    emptied = tmp_path / path(fix).name
    emptied.write_text(source.replace(kept, replaced), encoding="utf-8")

    assert laboratory.perform(Experiment(race=race, fix=fix)).outcome.kind is Kind.OK
    assert laboratory.perform(Experiment(race=race, fix=str(emptied))).outcome.kind is Kind.ERROR


def test_a_cache_that_nobody_has_filled_yet_is_filled_before_a_compile_that_lasts(
    tmp_path: Path, laboratory: Laboratory
) -> None:
    root = tmp_path / "run"
    root.mkdir()
    experiment = Experiment(race="fork-while-compiling", fix="warm-fork")
    job = "repro.perform_processes:perform"

    run = laboratory.run(job, experiment, str(root), group=races.PROCESSES, timeout=120).value

    assert isinstance(run, Observation)
    assert run.outcome.kind is Kind.OK, run.outcome.reason


def test_a_fix_for_threads_is_none_for_processes() -> None:
    with pytest.raises(UnknownFix, match="lock is no fix for races of processes; those are: file-lock"):
        check("lock", PROCESSES)
