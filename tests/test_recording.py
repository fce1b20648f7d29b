"""A recorded run: what JSON keeps of it, and how a replay is checked against it."""

from __future__ import annotations

import json

import pytest

from repro import fixes, races
from repro.expectations import PROCESSES, Expected
from repro.experiment import Experiment, Observation
from repro.fixes import NONE
from repro.interleave import Schedule, ScheduleError, Step, Switch
from repro.interleave.replay import Replay, SwitchFate
from repro.outcome import Kind, Outcome
from repro.recording import Recording, add, load, nondeterminism, recorded_schedule, unproven
from repro.report import document
from repro.verdict import judge

RACE = "tracing-flag-leak"
BOTH = ("a", "b")
STEPS = [
    Step("a", "start", 1, BOTH, "b"),
    Step("b", "start", 1, BOTH, "b"),
    Step("b", "fx.trace", 1, BOTH, "a"),
    Step("a", "end", 1, ("b",), "b"),
    Step("b", "end", 1, (), "b"),
]
LINE = "a:start#1>b, b:fx.trace#1>a"
SEAMS = ["fx.trace", "compile_lock"]


def seen(
    steps: list[Step] = STEPS, kind: Kind = Kind.ERROR, seams: list[str] = SEAMS, fates: str = "", **details: str
) -> Observation:
    switches = [SwitchFate(Switch("a", "start", 1, "b"), fate) for fate in fates.split()]
    return Observation(
        Outcome(kind, f"it was {kind}", details), str(Schedule.of(steps)), steps, switches, seams=[*seams]
    )


def recorded(path, observation: Observation, fix: str = NONE) -> Recording:
    """Through the JSON that ``run`` writes, and back."""
    cell = judge(RACE, fix, observation, observation, Expected(Kind.ERROR, None))
    document.write(document.of_cells("run", "2.13.0", [cell], devices=["cpu"]), str(path))
    return load(str(path))


def test_what_run_writes_is_read_back(tmp_path):
    recording = recorded(tmp_path / "x.json", seen(fates="refused"), "lock")
    trace = ("a:start#1>b", "b:start#1", "b:fx.trace#1>a", "a:end#1>b", "b:end#1")
    assert recording == Recording(
        race=RACE,
        fix="lock",
        torch="2.13.0",
        schedule=Schedule.parse(LINE),
        seams=("fx.trace", "compile_lock"),
        trace=trace,
        outcome=Kind.ERROR,
        # What was meant to be followed, whatever became of it.
        asked=Schedule.parse("a:start#1>b"),
        signature="error",
    )
    assert recording.experiment() == Experiment(race=RACE, fix="lock", strategy=Replay(Schedule.parse(LINE)))


def test_a_run_is_alike_that_has_the_signature_or_the_outcome_where_only_that_was_kept(tmp_path):
    path = tmp_path / "x.json"
    recording = recorded(path, seen(type="KeyError"))
    assert recording.signature == "error:KeyError"
    assert recording.alike(seen(type="KeyError"))
    assert not recording.alike(seen(type="TypeError"))
    for kept in ("error", None):
        written = json.loads(path.read_text())
        written["cells"][0]["signature"] = kept
        if kept is None:
            del written["cells"][0]["signature"]
        path.write_text(json.dumps(written))
        assert load(str(path)).alike(seen(type="TypeError"))
        assert not load(str(path)).alike(seen(kind=Kind.DENSE))


def test_the_control_group_is_replayed_as_such(tmp_path):
    recording = recorded(tmp_path / "x.json", seen(), PROCESSES)
    assert recording.experiment() == Experiment(race=RACE, processes=True)


def test_fields_of_a_later_release_are_ignored(tmp_path):
    path = tmp_path / "x.json"
    was = recorded(path, seen())
    written = json.loads(path.read_text())
    written["weather"] = written["cells"][0]["weather"] = "fine"
    path.write_text(json.dumps(written))
    assert load(str(path)) == was


@pytest.mark.parametrize("field", ["race", "fix", "schedule", "seams", "trace", "outcome"])
def test_a_missing_field_is_named_with_its_file(tmp_path, field):
    path = tmp_path / "x.json"
    recorded(path, seen())
    written = json.loads(path.read_text())
    del written["cells"][0][field]
    path.write_text(json.dumps(written))
    with pytest.raises(ScheduleError, match=rf"x\.json: the last cell: no field '{field}'"):
        load(str(path))


@pytest.mark.parametrize("kept", [{}, {"switches": []}], ids=["an older one", "a crash"])
def test_a_cell_that_kept_no_switches_was_asked_for_its_schedule(tmp_path, kept):
    path = tmp_path / "x.json"
    recorded(path, seen())
    written = json.loads(path.read_text())
    del written["cells"][0]["switches"]
    written["cells"][0].update(kept)
    path.write_text(json.dumps(written))
    assert load(str(path)).asked == Schedule.parse(LINE)


@pytest.mark.parametrize(
    ("workloads", "said"),
    [
        (3, "'workloads' is of type int, not list"),
        ([{"weather": "fine"}], r"'workloads\[0\]': "),
        (["causal"], r"'workloads\[0\]': "),
    ],
)
def test_shapes_that_are_none_are_named_with_their_file(tmp_path, workloads, said):
    path = tmp_path / "x.json"
    recorded(path, seen())
    written = json.loads(path.read_text())
    written["cells"][0]["workloads"] = workloads
    path.write_text(json.dumps(written))
    with pytest.raises(ScheduleError, match=rf"x\.json: the last cell: {said}"):
        load(str(path))


# ---- several runs ------------------------------------------------------------------------------------------------


def several(path, **outcomes: str) -> str:
    """A file with a run of one release for each fix, as ``run --fix`` and ``matrix`` write."""
    recorded(path, seen())
    document = json.loads(path.read_text())
    (cell,) = document["cells"]
    document["cells"] = [{**cell, "fix": fix, "outcome": outcome} for fix, outcome in outcomes.items()]
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.parametrize("outcomes", [{NONE: "error", "lock": "ok"}, {NONE: "ok", "lock": "hang", "warmup": "ok"}])
def test_of_several_runs_the_one_that_shows_a_race_is_meant(tmp_path, outcomes):
    file = several(tmp_path / "x.json", **outcomes)
    (shows,) = [fix for fix, outcome in outcomes.items() if outcome != "ok"]
    for torch in (None, "2.13.0+cpu", "2.99.0"):
        assert load(file, torch).fix == shows


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        (
            {NONE: "error", "lock": "error", "warmup": "ok"},
            "has 3 runs, of which 2 show a race",
        ),
        (
            {NONE: "ok", "lock": "inconclusive"},
            "has 2 runs, of which none shows a race",
        ),
    ],
)
def test_where_several_or_none_show_a_race_it_must_be_said_which_run_is_meant(tmp_path, outcomes, said):
    file = several(tmp_path / "x.json", **outcomes)
    with pytest.raises(ScheduleError) as refusal:
        load(file)
    assert str(refusal.value) == (
        f"{file} {said}: choose one with --cell RACE/FIX; there are {RACE}/none, {RACE}/lock"
    )
    for fix in outcomes:
        assert load(file, place=(RACE, fix)).fix == fix


def test_of_many_runs_only_some_are_named(tmp_path):
    columns = [NONE, *fixes.names(races.THREADS)]
    file = several(tmp_path / "x.json", **dict.fromkeys(columns, "error"))
    with pytest.raises(ScheduleError, match=rf"there are {RACE}/none, .*/lock and {len(columns) - 6} more$"):
        load(file)


def test_a_run_that_is_not_there_is_told_with_those_that_are(tmp_path):
    file = several(tmp_path / "x.json", none="error", lock="ok")
    for place, said in (
        ((RACE, "warmup"), f"{RACE} under warmup"),
        (("stance-left", NONE), "stance-left without a fix"),
    ):
        with pytest.raises(ScheduleError, match=f"x.json has no run of {said}; it has {RACE}/none, {RACE}/lock$"):
            load(file, place=place)


def test_of_one_cell_in_several_releases_the_release_decides_before_the_outcome(tmp_path):
    path = tmp_path / "x.json"
    several(path, none="error", lock="ok")
    document = json.loads(path.read_text())
    document["cells"] = [{**cell, "torch": "2.11.0", "outcome": "ok"} for cell in document["cells"]] + document[
        "cells"
    ]
    path.write_text(json.dumps(document))
    assert load(str(path), "2.13.0").fix == NONE
    with pytest.raises(ScheduleError, match="has 2 runs, of which none shows a race"):
        load(str(path), "2.11.0")


# ---- the trace ---------------------------------------------------------------------------------------------------


def test_a_replay_that_follows_to_the_end_does_not_diverge(tmp_path):
    assert recorded(tmp_path / "x.json", seen()).divergence(seen()) is None


@pytest.mark.parametrize(
    ("steps", "where"),
    [
        ([Step("a", "start", 1, BOTH, "a"), *STEPS[1:]], "step 1: recorded a:start#1>b, now a:start#1"),
        (STEPS[:3], "step 4: only recorded goes on, with a:end#1>b"),
        ([*STEPS, Step("c", "end", 1, (), "c")], "step 6: only now goes on, with c:end#1"),
        ([], "step 1: only recorded goes on, with a:start#1>b"),
    ],
)
def test_the_first_divergence_is_told(tmp_path, steps, where):
    assert recorded(tmp_path / "x.json", seen()).divergence(seen(steps)) == where


def passing(*seams: str) -> list[Step]:
    """The same run, through more seams."""
    return [*STEPS[:2], *(Step("b", seam, 1, BOTH, "b") for seam in seams), *STEPS[2:]]


def test_a_new_seam_or_lock_does_not_break_an_old_schedule(tmp_path):
    recording = recorded(tmp_path / "x.json", seen())
    later = passing("new.seam", "new_lock.acquire", "wait:new_lock")
    assert recording.divergence(seen(later, seams=[*SEAMS, "new.seam", "new_lock"])) is None


@pytest.mark.parametrize("seam", ["fx.trace", "compile_lock.acquire", "wait:compile_lock", "point.of.the.race"])
def test_what_stood_then_is_compared(tmp_path, seam):
    recording = recorded(tmp_path / "x.json", seen())
    assert recording.divergence(seen(passing(seam), seams=[*SEAMS, "new.seam"])) == (
        f"step 3: recorded b:fx.trace#1>a, now b:{seam}#1"
    )


# ---- many replays ------------------------------------------------------------------------------------------------


def test_replays_that_are_alike_are_deterministic():
    assert nondeterminism([seen()]) is None
    assert nondeterminism([seen()] * 3) is None


def test_another_end_is_told():
    runs = [seen(), seen(), seen(kind=Kind.OK)]
    assert nondeterminism(runs) == "run 1 ended error, run 3 ok"
    assert nondeterminism([seen(type="A"), seen(type="B")]) == "run 1 ended error:A, run 2 error:B"


def test_another_path_to_the_same_end_is_told():
    assert nondeterminism([seen(), seen(STEPS[1:])]) == (
        "run 1 and run 2 part at step 1: recorded a:start#1>b, now b:start#1"
    )


def test_replays_that_end_alike_prove_something():
    assert unproven([seen(fates="taken")] * 2) is None
    assert unproven([seen(kind=Kind.OK, fates="taken refused")] * 2) is None
    # A failure counts however it was reached.
    assert unproven([seen(fates="absent")]) is None


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([seen(), seen(kind=Kind.INCONCLUSIVE)], "it was inconclusive"),
        ([seen(kind=Kind.OK, fates="taken absent")], "the schedule was not reached: a:start#1>b absent"),
        ([seen([], kind=Kind.OK)], "no schedule ran"),
        ([seen(), seen(STEPS[1:])], "not deterministic: run 1 and run 2 part at"),
    ],
)
def test_replays_that_prove_nothing_say_why(runs, why):
    assert unproven(runs).startswith(why)


def test_another_path_on_another_release_proves_nothing_and_on_its_own_is_only_told(tmp_path):
    recording = recorded(tmp_path / "x.json", seen())
    other = [seen(STEPS[1:])]
    assert unproven(other, recording, recording.torch) is None
    assert unproven(other, recording, f"{recording.torch}+cu130") is None
    assert unproven(other, recording, "2.99.0") == (
        f"left the path of torch {recording.torch} at step 1: recorded a:start#1>b, now b:start#1"
    )
    assert unproven([seen()], recording, "2.99.0") is None


# ---- several releases --------------------------------------------------------------------------------------------

CELL = {
    "race": RACE,
    "fix": NONE,
    "outcome": "error",
    "schedule": "a:start#1>b",
    "seams": [],
    "trace": ["a:start#1>b"],
}


def test_a_file_lists_several_releases_and_the_last_is_for_all_others(tmp_path):
    path = tmp_path / f"{RACE}.json"
    was = recorded(path, seen(), NONE)

    assert add(RACE, CELL, "2.11.0", tmp_path) == path
    assert add(RACE, CELL, "2.11.0", tmp_path) is None
    assert add(RACE, CELL, was.torch, tmp_path) is None
    assert add("another", CELL, "2.11.0", tmp_path) is None

    old = load(str(path), "2.11.0+cpu")
    assert (old.torch, str(old.schedule), old.outcome) == ("2.11.0", "a:start#1>b", Kind.ERROR)
    assert old.lists("2.11.0")
    for torch in (None, was.torch, "2.99.0"):
        assert load(str(path), torch) == was


def test_a_cell_runs_by_the_schedule_recorded_for_its_release(tmp_path, monkeypatch):
    path = tmp_path / "schedules" / f"{RACE}.json"
    path.parent.mkdir()
    was = recorded(path, seen(), NONE)
    add(RACE, CELL, "2.11.0", path.parent)
    add(RACE, {**CELL, "outcome": "ok"}, "2.12.0", path.parent)
    monkeypatch.setattr("repro.recording.fixtures", lambda: tmp_path)

    assert recorded_schedule(RACE, was.torch) == was.schedule
    assert recorded_schedule(RACE, "2.11.0") == Schedule.parse("a:start#1>b")
    # Not of this release, not one that shows the race, no file at all: the race's own counts.
    assert recorded_schedule(RACE, "2.99.0") is None
    assert recorded_schedule(RACE, "2.12.0") is None
    assert recorded_schedule("another", "2.11.0") is None
