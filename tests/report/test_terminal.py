"""What people read, on a console without colour."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from repro.expectations import PROCESSES, Expected
from repro.experiment import Observation
from repro.fixes import NONE
from repro.interleave import Schedule, Step, Switch
from repro.interleave.replay import SwitchFate
from repro.outcome import Kind, Outcome
from repro.recording import Recording
from repro.report import terminal
from repro.verdict import Cell, judge

BOTH = ("a", "b")
STEPS = [
    Step("a", "start", 1, BOTH, "b"),
    Step("b", "start", 1, BOTH, "b"),
    Step("b", "fx.trace", 1, BOTH, "b"),
    Step("b", "fx.trace", 2, BOTH, "a"),
    Step("a", "end", 1, ("b",), "b"),
    Step("b", "end", 1, (), "b"),
]
LINE = "a:start#1>b, b:fx.trace#2>a"


def seen(kind: Kind, steps: list[Step] = STEPS) -> Observation:
    fates = [SwitchFate(switch, "taken") for switch in Schedule.of(steps).switches]
    return Observation(Outcome(kind, f"[it] was {kind}"), str(Schedule.of(steps)), steps, fates)


def made(fix: str, kind: Kind, known: Kind | None, race: str = "a-race") -> Cell:
    return judge(race, fix, seen(kind), seen(Kind.ERROR), Expected(known, None) if known else None)


def printed(function, *arguments: object, width: int = 200) -> str:
    """What a file, or a terminal without colour, gets."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    function(console, *arguments)
    return console.file.getvalue()


def rows(text: str) -> list[list[str]]:
    lines = [line.replace("┃", "│") for line in text.splitlines()]
    return [[place.strip() for place in line.strip("│").split("│")] for line in lines if "│" in line]


CELLS = [
    made(NONE, Kind.POISONED, Kind.POISONED),
    made("lock", Kind.OK, Kind.OK),
    made("suppress", Kind.DENSE, Kind.ERROR),
    made(PROCESSES, Kind.INCONCLUSIVE, Kind.OK),
    made(NONE, Kind.OK, Kind.ERROR, race="b-race"),
    made("lock", Kind.OK, Kind.DENSE, race="b-race"),
    made("suppress", Kind.HANG, None, race="b-race"),
    made(PROCESSES, Kind.OK, None, race="b-race"),
]


def test_the_matrix_reads_without_colour():
    text = printed(terminal.matrix, CELLS, "2.13.0")

    assert text.splitlines()[0].rstrip() == "torch 2.13.0"
    assert "\x1b" not in text
    assert rows(text) == [
        ["race", "no fix", "lock", "suppress", "processes"],
        ["a-race", "poisoned", "holds", "dense !", "? !"],
        ["b-race", "clean !", "holds !", "hang !", "clean"],
    ]


def test_races_of_processes_have_a_table_of_their_own_and_a_dash_where_a_fix_was_not_tried():
    cells = [
        made(NONE, Kind.OK, Kind.OK),
        made(NONE, Kind.ERROR, Kind.ERROR, race="cold-start"),
        made("file-lock", Kind.OK, Kind.OK, race="cold-start"),
        made(NONE, Kind.OK, Kind.OK, race="disk-full"),
    ]
    text = printed(terminal.matrix, cells, "2.13.0")
    first, second = text.split("torch 2.13.0, processes")

    assert rows(first) == [["race", "no fix"], ["a-race", "clean"]]
    assert rows(second) == [
        ["race", "no fix", "file-lock"],
        ["cold-start", "error", "holds"],
        ["disk-full", "clean", "-"],
    ]


def test_every_outcome_has_a_text_of_its_own_in_the_matrix():
    texts = {rows(printed(terminal.matrix, [made("lock", kind, kind)], "2.13.0"))[1][1] for kind in Kind}
    assert len(texts) == len(Kind)


def test_the_summary_says_what_words_mean_and_what_is_odd():
    text = printed(terminal.summary, CELLS)

    assert "  poisoned: every later call in the process fails" in text
    assert "  dense: silently dense" in text
    assert "  crash:" not in text
    assert "a-race with fix suppress: FAILS (dense)" in text
    assert "  expected of this release: error" in text
    assert "a-race in processes: INCONCLUSIVE" in text
    assert "8 cells: 3 show a race, 4 hold; inconclusive for this release" in text
    assert "b-race must appear without a fix on this release and did not: this run proves nothing" in text
    # What is as known is not told again.
    assert "a-race with fix lock" not in text


@pytest.mark.parametrize(
    ("cells", "standing"),
    [(CELLS[:2], "as expected"), (CELLS[:3], "not as expected"), (CELLS[:4], "inconclusive"), ([], "inconclusive")],
)
def test_the_summary_ends_in_the_standing(cells, standing):
    assert printed(terminal.summary, cells).rstrip().endswith(f"; {standing} for this release")


def test_a_failing_cell_shows_its_schedule_and_the_interleaving():
    text = printed(terminal.cell, CELLS[0])

    assert text.splitlines()[:3] == [
        "a-race without a fix: FAILS (poisoned)",
        "  [it] was poisoned",
        f"  schedule: {LINE}",
    ]
    assert [line.split() for line in text.splitlines()[3:]] == [
        ["a", "b"],
        ["start", ">"],
        ["start"],
        ["fx.trace"],
        ["fx.trace#2", ">"],
        ["end", ">"],
        ["end"],
    ]


def test_a_cell_that_holds_says_why():
    assert printed(terminal.cell, CELLS[1]) == (
        "a-race with fix lock: HOLDS\n  a:start#1>b taken; b:fx.trace#2>a taken\n"
    )


def test_a_long_reason_is_not_broken_where_the_terminal_ends():
    text = printed(terminal.cell, CELLS[0], width=20)
    assert f"  schedule: {LINE}\n" in text


RECORDED = Recording(
    race="a-race",
    fix="lock",
    torch="2.13.0+cpu",
    schedule=Schedule.parse(LINE),
    seams=(),
    trace=tuple(map(str, STEPS)),
    outcome=Kind.ERROR,
    asked=Schedule.parse(LINE),
)


def test_replays_tell_how_often_the_outcome_came_again():
    text = printed(terminal.replays, RECORDED, [seen(Kind.ERROR)] * 3, "2.13.0")
    assert text.startswith(f"a-race with fix lock, torch 2.13.0: error 3 of 3\n  schedule: {LINE}\n")
    assert "left the recorded path" not in text
    assert "inconclusive" not in text


def test_replays_tell_where_they_left_the_path_and_what_came_instead():
    text = printed(terminal.replays, RECORDED, [seen(Kind.ERROR), seen(Kind.OK, STEPS[1:])], "2.13.0")
    assert "error 1 of 2" in text
    assert "  left the recorded path at step 1: recorded a:start#1>b, now b:start#1\n" in text
    assert "  inconclusive: not deterministic: run 1 ended error, run 2 ok\n" in text
    assert "  ok: [it] was ok\n" in text


def test_on_a_release_that_is_not_listed_there_is_a_notice_and_another_path_says_nothing():
    text = printed(terminal.replays, RECORDED, [seen(Kind.ERROR)], "2.14.1")
    assert "  notice: recorded on torch 2.13.0+cpu, not on this release\n" in text
    assert "inconclusive" not in text
    text = printed(terminal.replays, RECORDED, [seen(Kind.OK, STEPS[1:])], "2.14.1")
    assert "  notice: recorded on torch 2.13.0+cpu, not on this release\n" in text
    assert (
        "  inconclusive: left the path of torch 2.13.0+cpu at step 1: recorded a:start#1>b, now b:start#1\n" in text
    )
    assert "left the recorded path" not in text


def test_a_switch_that_was_not_reached_is_told():
    run = seen(Kind.OK)
    run.switches = [SwitchFate(Switch("a", "gone", 1, "b"), "absent", "a never came to gone#1")]
    text = printed(terminal.replays, RECORDED, [run], "2.13.0")
    assert "inconclusive: the schedule was not reached: a:gone#1>b absent (a never came to gone#1)" in text
