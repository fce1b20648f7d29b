"""From a recording to a script: what is handed over where, and what is wrapped where no form has a place."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import pytest

from repro import export
from repro.export.trial import run
from repro.interleave.schedule import Schedule, ScheduleError
from repro.recording import Recording
from tests.command_line import command, refused

LEAK = "tracing-flag-leak"
LEFT = "mask-metadata-left"


def asking(race: str, schedule: str) -> Recording:
    """The recording of ``race``, had another schedule been asked for; what its threads waited for is left out."""
    recorded = export.recorded(race)
    trace = [step for step in recorded.trace if ":wait:" not in step]
    return replace(recorded, asked=Schedule.parse(schedule), trace=tuple(trace))


def hand_overs(text: str) -> list[str]:
    return [line.strip().partition("  #")[0] for line in text.splitlines() if line.lstrip().startswith("hand_over(")]


def test_the_hand_overs_are_numbered_as_they_happen():
    text = export.write(export.recorded(LEAK)).text

    assert sorted(hand_overs(text)) == [
        'hand_over(1, "uncompiled", to="compiled")',
        'hand_over(2, "compiled", to="uncompiled")',
        # Where the recorded run waited for the compile lock.
        'hand_over(3, "uncompiled", to="compiled")',
    ]


def test_the_end_of_a_thread_hands_over_although_it_fails():
    text = export.write(asking("stance-left", "two:end#1>one")).text

    assert '    finally:\n        hand_over(1, "two", to="one")' in text


def test_a_place_without_a_hand_over_leaves_nothing():
    text = export.write(asking(LEAK, "-")).text

    ast.parse(text)
    assert hand_overs(text) == []
    assert "if get_proxy_mode():" not in text


@pytest.mark.parametrize(
    ("switch", "wrapped", "line"),
    [
        ("compiled:fx.trace#2>uncompiled", "Tracer.create_args_for_root", "visit=2"),
        ("compiled:fx.traced#1>uncompiled", "Tracer.trace", "result = original_2"),
        ("uncompiled:hop.env.exiting#1>compiled", "_set_compilation_env", "yield value"),
        ("uncompiled:compile_lock.acquire#1>compiled", "compile_lock", "__enter__"),
    ],
)
def test_where_the_form_has_no_place_a_function_of_torch_is_wrapped_and_named(switch, wrapped, line):
    script = export.write(asking(LEAK, f"uncompiled:start#1>compiled, {switch}"))

    assert [name.endswith(wrapped) for name in script.wrapped] == [True]
    assert script.wrapped[0] in (ast.get_docstring(ast.parse(script.text)) or "")
    assert line in script.text


def test_wrapped_functions_hand_over_too():
    schedule = (
        "uncompiled:start#1>compiled, compiled:dynamo.compile#1>uncompiled, "
        "uncompiled:compile_lock.acquire#1>compiled, "
        "compiled:fx.traced#1>uncompiled, uncompiled:hop.env.exiting#1>compiled"
    )
    script = export.write(asking(LEAK, schedule))
    trial = run(script.text)

    assert len(script.wrapped) == 4
    # All five were reached, or it would have nothing to say.
    assert trial.clean or trial.shown, trial.output


def test_without_wrapping_those_hand_overs_are_left_out():
    recording = asking(LEAK, "uncompiled:start#1>compiled, compiled:fx.trace#2>uncompiled")
    script = export.write(recording, wrap=False)

    assert script.wrapped == ()
    assert hand_overs(script.text) == ['hand_over(1, "uncompiled", to="compiled")']


def test_without_any_hand_over_that_is_left_the_threads_run_freely():
    script = export.write(export.recorded("backward-bystander"), wrap=False)

    assert (script.wrapped, hand_overs(script.text)) == ((), [])
    assert "threading.Semaphore(1)) for body in bodies" in script.text
    assert "Semaphore(1)" not in export.write(export.recorded("backward-bystander")).text


def test_how_often_it_shows_with_nothing_wrapped_is_told():
    recording = asking(LEAK, "uncompiled:start#1>compiled, compiled:fx.trace#2>uncompiled")

    assert (
        "How often it shows with nothing wrapped: 0 of 7 times."
        in export.write(recording, unwrapped="0 of 7 times").text
    )


def test_a_hand_over_that_is_not_reached_says_nothing():
    trial = run(export.write(asking(LEFT, "one:fx.traced#9>two")).text)

    assert trial.code == 3
    assert trial.said == "nothing can be said: of 1 hand-overs only these were reached: []"


def test_threads_that_never_end_say_nothing():
    script = export.write(export.recorded(LEFT)).text
    stuck = script.replace("join(300)", "join(1)").replace("with AtSort():", "threading.Event().wait()", 1)
    stuck = stuck.replace("        create_block_mask", "    create_block_mask", 1)
    trial = run(stuck)

    assert trial.code == 3
    assert trial.said == "nothing can be said: time is up"
    assert "in one" in trial.output


def test_a_point_that_no_script_has_is_refused():
    with pytest.raises(ScheduleError, match=r"nothing in a script stands for uncompiled:of-mine#1"):
        export.write(asking(LEAK, "uncompiled:of-mine#1>compiled"))


def test_a_race_that_shows_nowhere_has_nothing_to_report():
    with pytest.raises(ScheduleError, match="cold-start shows on no recorded release, so there is nothing to report"):
        export.write(export.recorded("cold-start"))


def test_a_race_without_a_form_is_told_what_to_write():
    with pytest.raises(
        ScheduleError, match=r"a-race has no script; attach .* or write repro/export/forms/a-race\.py"
    ):
        export.write(replace(export.recorded(LEAK), race="a-race"))


def test_what_run_wrote_exports_as_the_recorded_one(tmp_path):
    written = tmp_path / "run.json"
    assert command("run", "patcher-bystander", "--json", str(written)).returncode == 1
    done = command("export", "patcher-bystander", "--schedule", str(written), "--script-only", "-o", str(tmp_path))

    assert done.returncode == 0
    script = tmp_path / "repro_patcher_bystander.py"
    assert done.stdout == f"{script}\n"
    assert script.read_text() == export.write(export.recorded("patcher-bystander")).text


CELL = {
    "race": "stance-leak",
    "fix": "none",
    "schedule": "debugging:in-stance#1>compiled",
    "switches": ["debugging:in-stance#1>compiled taken"],
    "seams": [],
    "trace": ["debugging:start#1", "debugging:in-stance#1>compiled"],
    "outcome": "dense",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "has no run of stance-left without a fix; it has stance-leak/none"),
        ({"race": "stance-left", "fix": "lock"}, "has no run of stance-left without a fix; it has stance-left/lock"),
    ],
)
def test_a_recording_that_is_not_of_this_race_without_a_fix_is_refused(tmp_path, changes, message):
    written = tmp_path / "other.json"
    written.write_text(json.dumps({"schema": 1, "torch": "2.13.0", "cells": [{**CELL, **changes}]}))

    assert refused("export", "stance-left", "--schedule", str(written), "-o", str(tmp_path / "out")) == (
        f"{written} {message}"
    )
    assert not (tmp_path / "out").exists()


def test_of_a_file_with_several_runs_the_one_without_a_fix_is_exported(tmp_path):
    written = tmp_path / "matrix.json"
    cells = [{**CELL, "outcome": "ok"}, {**CELL, "fix": "lock"}, {**CELL, "race": "stance-left"}]
    written.write_text(json.dumps({"schema": 1, "command": "matrix", "torch": "2.13.0", "cells": cells}))
    found = export.recorded("stance-leak", str(written))
    assert (found.race, found.fix, found.outcome) == ("stance-leak", "none", "ok")


def test_all_races_at_once_are_scripts_only(tmp_path):
    assert refused("export", "all", "-o", str(tmp_path)) == (
        "all races at once only with --script-only, and without --schedule"
    )


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()

    assert refused("export", LEFT, "-o", str(tmp_path / "file")).endswith("File exists; give -o another folder")


def test_only_running_options_are_refused_where_nothing_runs(tmp_path):
    for option in (["-n", "2"], ["--minimise"], ["--c-trace"]):
        assert refused("export", LEAK, "--script-only", *option, "-o", str(tmp_path)).startswith("--script-only")
    done = command("export", LEAK, "--script-only", "--json", "-", "-o", str(tmp_path))
    assert json.loads(done.stdout)["files"] == [str(tmp_path / "repro_tracing_flag_leak.py")]
