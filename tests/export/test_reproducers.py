"""The exported script of every race: up to date, readable, alone with torch, and right as often as it is run."""

from __future__ import annotations

import ast
import sys

import pytest

from repro import export, races
from repro.expectations import expected, fixtures, recorded
from repro.export.script import name
from repro.export.trial import SAYS_NOTHING, Trial, run
from repro.fixes import NONE
from repro.outcome import Kind
from repro.preflight import torch_version

FOLDER = fixtures() / "reproducers"
RACES = export.formed()
# Run by day too: one that fails, one that leaves something behind, and one of a block mask.
OFTEN = ["mask-metadata-error", "patcher-bystander", "tracing-flag-leak"]
OF_A_CACHE = [race for race in RACES if race.startswith("cache-")]
# Inside a backward's compile no code of users runs at this place.
WRAPPED = {"backward-bystander": ("torch.fx._symbolic_trace.Tracer.create_args_for_root",)}
RUNS = [pytest.param(race, marks=[pytest.mark.gpu] if race in races.names(races.CUDA) else []) for race in RACES]


def text(race: str) -> str:
    return (FOLDER / name(race)).read_text(encoding="utf-8")


def right(race: str, trial: Trial) -> bool:
    """Whether a run came to what this release is known to do."""
    known = expected(race, NONE, torch_version())
    if known is None and race in races.names(races.CUDA):
        pytest.skip(f"on torch {torch_version()} nobody has recorded what {race} does")
    assert known is not None
    return trial.clean if known.outcome is Kind.OK else trial.shown


def test_every_form_has_one_and_nothing_else_does():
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(map(name, RACES))


def test_every_race_between_threads_has_a_form():
    assert sorted(set(races.names(races.THREADS)) - set(RACES)) == []


@pytest.mark.parametrize("group", [races.PROCESSES, races.CUDA])
def test_every_race_that_shows_has_a_form(group):
    shown = {
        race for race in races.names(group) if any(outcome is not Kind.OK for _, outcome in recorded(race, NONE))
    }
    assert shown
    # Without a fix it is the race before it.
    assert sorted(shown - set(RACES) - {"first-backward-step"}) == []


@pytest.mark.parametrize("race", RACES)
def test_it_is_what_the_recording_gives(race):
    assert text(race) == export.write(export.recorded(race)).text, (
        "stale; write it again: python -m repro export all --script-only -o fixtures/reproducers"
    )


@pytest.mark.parametrize("race", RACES)
def test_it_imports_torch_and_the_standard_library_only(race):
    imported = set()
    for node in ast.walk(ast.parse(text(race))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"torch"}


@pytest.mark.parametrize("race", RACES)
def test_it_wraps_nothing_of_torch(race):
    script = export.write(export.recorded(race))

    assert script.wrapped == WRAPPED.get(race, ())
    assert ("How often it shows with nothing wrapped: " in script.text) == (race in WRAPPED)


@pytest.mark.parametrize("race", RACES)
def test_it_is_short_and_says_at_each_hand_over_why(race):
    lines = text(race).splitlines()
    hand_overs = [line for line in lines if line.lstrip().startswith("hand_over(")]

    # 120 is the aim; the control took five scripts beyond it.
    assert len(lines) <= 124
    assert all("  # " in line for line in hand_overs)
    assert f"HAND_OVERS = {len(hand_overs)}" in lines


@pytest.mark.parametrize("race", OFTEN)
def test_it_shows_the_race_where_the_release_has_it(race):
    trial = run(text(race))

    assert right(race, trial), trial.output


@pytest.mark.parametrize(
    "race",
    [race if race == "cache-read-only" else pytest.param(race, marks=pytest.mark.nightly) for race in OF_A_CACHE],
)
def test_where_nothing_is_cached_it_says_nothing_and_leaves_nothing(race, tmp_path):
    trial = run(text(race), settings={"BACKEND": "eager", "TMPDIR": str(tmp_path)})

    assert trial.code == SAYS_NOTHING, trial.output
    assert [*tmp_path.iterdir()] == []


@pytest.mark.nightly
def test_what_fails_without_its_hand_overs_too_is_no_bug():
    trial = run(text("first-call"), settings={"BACKEND": "inductor", "CXX": "/bin/false"})

    assert trial.code == SAYS_NOTHING, trial.output
    assert "nothing can be said: without its hand-overs it fails too" in trial.output


def test_what_fails_before_its_threads_begin_is_no_bug():
    trial = run(text("tracing-bystander"), settings={"BACKEND": "no such backend"})

    assert trial.code == SAYS_NOTHING, trial.output
    assert "Invalid backend: 'no such backend'" in trial.output


@pytest.mark.nightly
@pytest.mark.parametrize("race", [run for run in RUNS if "ALONE = " in text(str(run.values[0]))])
def test_without_its_hand_overs_it_is_clean(race):
    """That is its control; started as the script starts it."""
    alone = text(race).replace('"alone" in sys.argv', "True")

    assert run(alone).clean


def test_it_runs_where_this_package_is_not() -> None:
    found = run("import repro")
    if found.clean:
        pytest.skip("this package is installed in the environment of the tests, so a script would find it")

    assert "No module named 'repro'" in found.output


def missed(race: str) -> list[str]:
    """What those of ten runs said that did not come to what this release is known to do."""
    return [trial.said for trial in (run(text(race)) for _ in range(10)) if not right(race, trial)]


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("race", RUNS)
def test_it_does_so_ten_times_of_ten(race):
    assert missed(race) == []
