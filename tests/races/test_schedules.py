"""The recorded schedules in ``fixtures/schedules``: the same outcome, along the same path, every time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from repro import races, results
from repro.expectations import expected, fixtures
from repro.interleave import Schedule
from repro.interleave.replay import Replay
from repro.laboratory import Laboratory
from repro.outcome import Kind
from repro.preflight import torch_version
from repro.recording import Recording, load, nondeterminism

FOLDER = fixtures() / "schedules"
TIMES = 2
# What fails with a switch less and is something else: a call that is dense beside an export, with nothing left
# behind, and a compile that fails together with the mask beside it, which is mask-metadata-error.
OTHERS = {
    "export-left": ["one:export.entered#1>two"],
    "mask-metadata-tags": ["compiled:flex.trace#1>masks, masks:mask.sort#1>compiled"],
}


def way(race: str) -> Recording | None:
    """The recording that a replay here must follow step by step.

    None where it is of another release, or of another Python, which may take another way to the same end.
    """
    file = FOLDER / f"{race}.json"
    recording = load(str(file), torch_version())
    python = json.loads(file.read_text(encoding="utf-8"))["python"]
    same_python = ".".join(python.split(".")[:2]) == results.PYTHON
    return recording if same_python and recording.lists(torch_version()) else None


def in_the_matrix(race: str) -> bool:
    """Whether test_races holds its one run against the recorded way; a file that cannot be read fails in a test."""
    try:
        return way(race) is not None
    except (LookupError, ValueError, OSError):
        return False


REPLAYED = [
    pytest.param(race, marks=pytest.mark.nightly) if in_the_matrix(race) else race for race in races.names_on(["cpu"])
]


def test_every_race_has_a_recorded_schedule() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == races.names()


def test_no_recording_holds_a_path_of_the_machine_that_made_it() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not any(root in text for root in ('"/', "/home/", "/root/", "/tmp/", str(Path.home()))), path


@pytest.mark.parametrize("race", REPLAYED)
def test_a_recorded_schedule_is_replayed_every_time(race: str, laboratory: Laboratory) -> None:
    recording = load(str(FOLDER / f"{race}.json"), laboratory.torch)
    runs = list(laboratory.perform_all([recording.experiment()] * TIMES))
    known = expected(race, recording.fix, laboratory.torch)

    assert known is not None
    assert [run.outcome.kind for run in runs] == [known.outcome] * TIMES
    assert nondeterminism(runs) is None
    if way(race):
        assert [recording.divergence(run) for run in runs] == [None] * TIMES


@pytest.mark.nightly
@pytest.mark.parametrize("race", races.names(races.THREADS))
def test_no_switch_of_a_recorded_schedule_can_be_spared(race: str, laboratory: Laboratory) -> None:
    recording = load(str(FOLDER / f"{race}.json"), laboratory.torch)
    known = expected(race, recording.fix, laboratory.torch)
    if known is None or known.outcome is Kind.OK:
        pytest.skip(f"torch {laboratory.torch} does not have {race}")
    switches = recording.schedule.switches
    fewer = [Schedule(switches[:number] + switches[number + 1 :]) for number in range(len(switches))]
    runs = laboratory.perform_all([replace(recording.experiment(), strategy=Replay(schedule)) for schedule in fewer])

    assert [str(one) for one, run in zip(fewer, runs, strict=True) if recording.alike(run)] == OTHERS.get(race, [])
