"""The gate's answer, on reports as data: each word, the exit codes, and what is written down."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import ROOT, command, environment, here, refused
from packaging.version import Version

from repro import cli, expectations, fixes, gate, races, recording, results, surface
from repro.expectations import PROCESSES, ExpectationError, Expected, expected, fixtures
from repro.experiment import Experiment, Observation
from repro.fixes import NONE
from repro.gate import SEAM, SEARCH, Known, Word
from repro.outcome import Kind, Outcome
from repro.preflight import torch_version
from repro.report import github, junit, markdown, terminal
from repro.results import Look, Report, ReportError, Seen
from repro.verdict import Standing, Verdict, columns, matrix, places

LINK = "https://example.org/1"
RACE = "tracing-bystander"
SEAMS = ("compile_lock", "fx.trace", "fx.traced")
TRACE = ("a:start#1>b", "b:start#1", "b:fx.trace#1>a", "a:end#1>b", "b:end#1")


def seen(kind: str = "ok", signature: str | None = None, **more: Any) -> Seen:
    verdict = {"ok": "HOLDS", "inconclusive": "INCONCLUSIVE"}.get(kind, "FAILS")
    return Seen(verdict, Kind(kind), signature or kind, trace=more.pop("trace", TRACE), **more)


def report(torch: str = "2.13.0", *, seams: tuple[str, ...] = SEAMS, python: str = "3.11.7", **cells: Seen) -> Report:
    """A report on one race; ``cells`` by column."""
    return Report(
        torch, python, "Linux-x86_64", {"race": seams}, {("race", fix): cell for fix, cell in cells.items()}
    )


def known(record: Report | None = None, **outcomes: str) -> Known:
    return Known(
        "what is known", {("race", fix): Expected(Kind(kind), LINK) for fix, kind in outcomes.items()}, record
    )


def judged(yardstick: Known, run: Report, *places: str, **more: Any) -> gate.Gate:
    fixes_ = places or tuple(fix for _, fix in [*yardstick.outcomes, *run.cells])
    return gate.compare(yardstick, run, [("race", fix) for fix in fixes_], **more)


def word(yardstick: Known, run: Report, fix: str) -> tuple[Word, str]:
    (change,) = [change for change in judged(yardstick, run).changes if change.fix == fix]
    return change.word, change.text


# ---- words -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ok", "error", "dense", "hang"])
@pytest.mark.parametrize("fix", [NONE, "lock", PROCESSES])
def test_what_was_expected_is_green(fix, kind):
    answer = judged(known(**{fix: kind}), report(**{fix: seen(kind)}))
    assert [change.word for change in answer.changes] == [Word.SAME]
    assert answer.standing is Standing.AS_EXPECTED


@pytest.mark.parametrize(
    ("fix", "was", "now", "said"),
    [
        (
            NONE,
            "error",
            "ok",
            (
                Word.BETTER,
                "fixed upstream: remove the workaround, where it is for this race alone; acknowledge with "
                "gate --update",
            ),
        ),
        ("lock", "error", "ok", (Word.BETTER, "fix lock holds now (it was error); acknowledge with gate --update")),
        (PROCESSES, "error", "ok", (Word.BETTER, "does not appear in processes any more (it was error)")),
        (NONE, "ok", "dense", (Word.WORSE, "appears (dense), which it did not")),
        ("lock", "ok", "crash", (Word.WORSE, "fix lock no longer holds (crash)")),
        (PROCESSES, "ok", "error", (Word.WORSE, "appears in processes too (error), which share no Python state")),
        (NONE, "error", "dense", (Word.OTHER, "fails in another way: dense, recorded error")),
    ],
)
def test_each_way_of_being_not_as_expected_has_its_own_words_and_is_red(fix, was, now, said):
    yardstick, run = known(**{fix: was}), report(**{fix: seen(now)})
    found = word(yardstick, run, fix)
    assert found[0] is said[0]
    assert said[1] in found[1]
    assert judged(yardstick, run).standing is Standing.NOT


def test_a_fix_is_not_praised_for_a_race_that_is_gone():
    yardstick = known(none="error", dynamic="error")
    assert "with fix dynamic as without" in word(yardstick, report(none=seen(), dynamic=seen()), "dynamic")[1]
    assert "fix dynamic holds now" in word(yardstick, report(none=seen("error"), dynamic=seen()), "dynamic")[1]


def test_what_nobody_recorded_is_new_and_red_even_where_it_holds():
    for kind in ("ok", "error"):
        answer = judged(known(), report(lock=seen(kind)))
        assert [change.word for change in answer.changes] == [Word.NEW]
        assert answer.standing is Standing.NOT


def test_a_cell_that_did_not_run_makes_the_gate_inconclusive():
    answer = judged(known(none="error", lock="ok"), report(none=seen("error")))
    assert [(change.word, change.text) for change in answer.red] == [(Word.LOST, "did not run")]
    assert answer.standing is Standing.INCONCLUSIVE


@pytest.mark.parametrize("was", ["ok", "error", "inconclusive"])
def test_a_cell_that_says_nothing_makes_the_gate_inconclusive(was):
    run = report(none=seen("inconclusive", reason="seam lost: fx.trace"), lock=seen("error"))
    answer = judged(known(none=was, lock="ok"), run)
    assert word(known(none=was), run, NONE) == (Word.INCONCLUSIVE, "says nothing: seam lost: fx.trace")
    assert answer.standing is Standing.INCONCLUSIVE


def test_a_verdict_that_is_inconclusive_is_not_green_for_a_clean_run():
    absent = Seen("INCONCLUSIVE", Kind.OK, "ok", reason="the schedule was not reached")
    assert judged(known(none="ok"), report(none=absent)).standing is Standing.INCONCLUSIVE


def test_no_cell_is_inconclusive():
    assert judged(known(), report()).standing is Standing.INCONCLUSIVE


# ---- signatures --------------------------------------------------------------------------------------------------

ERROR = "error:RuntimeError:torch/_dynamo/eval_frame.py:compile_wrapper"


@pytest.mark.parametrize("now", [ERROR.replace("Runtime", "Type"), ERROR.replace("compile_wrapper", "_fn"), "error"])
@pytest.mark.parametrize("torch", ["2.13.0", "2.14.1"])
def test_another_exception_or_another_frame_is_another_way_on_any_release(now, torch):
    yardstick = known(report(none=seen("error", ERROR)), none="error")
    run = report(torch, none=seen("error", now))
    assert word(yardstick, run, NONE) == (Word.OTHER, f"fails in another way: {now}, recorded {ERROR}")
    assert judged(yardstick, run).standing is Standing.NOT


def test_a_message_is_not_part_of_a_signature():
    yardstick = known(report(none=seen("error", ERROR, reason="one text")), none="error")
    assert word(yardstick, report(none=seen("error", ERROR, reason="another")), NONE)[0] is Word.SAME


OTHER_PATH = ("a:start#1>b", "b:start#1", "b:fx.traced#1>a", "a:end#1>b", "b:end#1")


@pytest.mark.parametrize("torch", ["2.13.0", "2.14.1"])
def test_another_path_on_the_same_python_is_another_way(torch):
    yardstick = known(report(none=seen("error", ERROR)), none="error")
    found = word(yardstick, report(torch, none=seen("error", ERROR, trace=OTHER_PATH)), NONE)
    assert found == (
        Word.OTHER,
        f"fails in another way: {ERROR} by another path, step 3: recorded b:fx.trace#1>a, now b:fx.traced#1>a",
    )


def test_on_another_python_the_path_may_differ():
    yardstick = known(report(none=seen("error", ERROR)), none="error")
    run = report(none=seen("error", ERROR, trace=OTHER_PATH), python="3.12.1")
    assert word(yardstick, run, NONE)[0] is Word.SAME


def test_a_seam_that_only_one_of_two_runs_had_does_not_make_another_path():
    # A modelled lock has points of its own.
    longer = (*TRACE[:2], "b:new.seam#1", "b:new_lock.acquire#1", "b:wait:new_lock#1>b", *TRACE[2:])
    yardstick = known(report(none=seen("error", ERROR)), none="error")
    run = report(none=seen("error", ERROR, trace=longer), seams=(*SEAMS, "new.seam", "new_lock"))
    assert word(yardstick, run, NONE)[0] is Word.SAME
    assert judged(yardstick, run).gained == ("new.seam", "new_lock")
    # ... but one that both had does.
    both = known(report(none=seen("error", ERROR), seams=(*SEAMS, "new.seam", "new_lock")), none="error")
    assert word(both, run, NONE)[0] is Word.OTHER


def test_a_record_that_a_person_has_overruled_is_not_compared():
    yardstick = known(report(none=seen("dense", "dense")), none="error")
    assert word(yardstick, report(none=seen("error", ERROR)), NONE)[0] is Word.SAME


def test_a_search_may_find_another_failure_than_the_recorded_one():
    yardstick = known(report(none=seen("error", ERROR)), none="error", lock="ok")
    run = report(none=seen("dense", by="search"), lock=seen("dense", by="search"))
    assert word(yardstick, run, NONE)[0] is Word.SAME
    assert word(yardstick, run, "lock")[0] is Word.WORSE


# ---- seams and searches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("torch", ["2.13.0", "2.14.1"])
def test_a_lost_seam_is_red(torch):
    yardstick = known(report(none=seen("error")), none="error")
    answer = judged(yardstick, report(torch, none=seen("error"), seams=SEAMS[1:]))
    assert [change.id for change in answer.red] == [f"{SEAM}/compile_lock"]
    assert "compile_lock does not stand any more" in answer.red[0].text
    assert answer.standing is Standing.NOT


def test_seams_are_only_compared_for_races_that_both_ran():
    yardstick = known(report(none=seen("error")), none="error")
    other = Report("2.13.0", "3.11", "Linux", {"another": ("x",)}, {("race", NONE): seen("error")})
    assert judged(yardstick, other).standing is Standing.AS_EXPECTED


def test_a_race_that_a_search_finds_by_another_schedule_is_red():
    look = Look("race", "it still raises", "a:fx.trace#2>b")
    answer = judged(known(none="ok"), replace(report(none=seen()), looks=(look,)))
    assert [(change.id, change.word) for change in answer.red] == [(f"race/{SEARCH}", Word.WORSE)]
    assert "a:fx.trace#2>b" in answer.red[0].text
    assert answer.standing is Standing.NOT


def test_a_search_that_finds_nothing_is_a_note():
    look = Look("race", "200 schedules, nothing")
    answer = judged(known(none="ok"), replace(report(none=seen()), looks=(look,)))
    assert answer.standing is Standing.AS_EXPECTED
    assert answer.notes == ("race: 200 schedules, nothing",)


# ---- what it means -----------------------------------------------------------------------------------------------


def test_what_the_changes_mean_for_each_fix():
    def two(torch: str, **kinds: tuple[str, str]) -> Report:
        cells = {
            (race, fix): seen(kind) for fix, both in kinds.items() for race, kind in zip("ab", both, strict=True)
        }
        return Report(torch, "3.11", "Linux", {}, cells)

    old = two(
        "2.13.0", none=("error", "dense"), lock=("ok", "ok"), warmup=("ok", "dense"), dynamic=("error", "dense")
    )

    def meaning(new: Report) -> list[str]:
        return list(gate.compare(gate.other(old), new, old.cells).meaning)

    assert meaning(old) == []
    # One race is gone.
    assert meaning(
        two("2.14", none=("ok", "dense"), lock=("ok",) * 2, warmup=("ok", "dense"), dynamic=("ok", "dense"))
    ) == [
        "no fix: 1 of 2 races are gone: a",
        "lock: no longer needed against a; still holds against 1",
        "warmup: can go: all 1 races that it held against are gone",
    ]
    # Both are.
    assert meaning(two("2.14", none=("ok",) * 2, lock=("ok",) * 2, warmup=("ok",) * 2, dynamic=("ok",) * 2)) == [
        "no fix: 2 of 2 races are gone: a, b",
        "lock: can go: all 2 races that it held against are gone",
        "warmup: can go: all 1 races that it held against are gone",
        "no race appears without a fix on this release: workarounds against these races can go",
    ]
    # One fix broke, another one works now.
    assert meaning(
        two("2.14", none=("error", "dense"), lock=("ok", "hang"), warmup=("ok",) * 2, dynamic=("error", "dense"))
    ) == ["lock: no longer holds against b", "warmup: holds now against b"]
    # Only one race was asked about, so nobody can say that the lock can go.
    asked = [("a", NONE), ("a", "lock")]
    new = two("2.14", none=("ok", "dense"), lock=("ok", "ok"))
    assert list(gate.compare(gate.other(old), new, asked).meaning) == [
        "no fix: 1 of 1 races are gone: a",
        "lock: no longer needed against a; not asked about 1 more races that it held against",
    ]
    # It is not needed against one, and does not hold against the other any more.
    broken = two("2.14", none=("ok", "dense"), lock=("ok", "dense"), warmup=("ok", "dense"), dynamic=("ok", "dense"))
    assert "lock: no longer holds against b; no longer needed against a" in meaning(broken)


# ---- yardsticks --------------------------------------------------------------------------------------------------


def at(folder: Path, text: str) -> Path:
    (folder / "race.toml").write_text(text, encoding="utf-8")
    return folder


TABLE = f"""[[release]]
torch = ">=2.9"
upstream = "{LINK}"
[release.outcomes]
none = "error"
"""


def test_a_release_is_held_against_its_own_record(tmp_path):
    records = [report("2.13.0", none=seen("error", ERROR)), report("2.14.1", none=seen("error", "another"))]
    found = gate.release(report("2.13.0+cpu"), [("race", NONE), ("race", "new")], records, at(tmp_path, TABLE))
    assert found.outcomes == {("race", NONE): Expected(Kind.ERROR, LINK)}
    assert found.report is records[0]
    assert found.notes == ()


@pytest.mark.parametrize(
    ("torch", "against", "note"),
    [
        ("2.15.0.dev20260901+cpu", "2.14.1", "is newer than any recorded release: it is compared with torch 2.14.1"),
        ("2.13.1", "2.13.0", "is not recorded: it is compared with torch 2.13.0"),
        ("2.11.0", "2.14.1", "is not recorded: it is compared with torch 2.14.1"),
    ],
)
def test_a_release_that_nobody_recorded_is_held_against_the_newest_before_it(tmp_path, torch, against, note):
    records = [report("2.13.0", none=seen("error")), report("2.14.1", none=seen("error"))]
    found = gate.release(report(torch), [("race", NONE)], records, at(tmp_path, TABLE))
    assert found.report is not None
    assert str(found.report.version) == against
    assert note in found.notes[0]
    assert found.outcomes[("race", NONE)].outcome is Kind.ERROR


def test_the_record_of_the_same_python_counts_where_there_is_one():
    records = [report(python="3.11"), report(python="3.12")]
    assert results.best(records, records[0].version, "3.11") is records[0]
    assert results.best(records, records[0].version, "3.13") is records[1]


# ---- recorded files ----------------------------------------------------------------------------------------------


def test_a_record_is_read_back_as_what_the_comparison_needs(tmp_path):
    full = report(
        "2.13.0+cpu",
        none=seen("error", ERROR, reason="long words", schedule="a:start#1>b"),
        lock=seen(reason="refused"),
        warmup=seen("inconclusive"),
        wrapper=seen("dense", by="search"),
    )
    path = results.record(full, tmp_path)
    (back,) = results.recorded(tmp_path)

    assert path.name == "torch-2.13.0-py3.11.json"
    assert (back.torch, back.python, back.seams) == ("2.13.0", "3.11", full.seams)
    # Nothing of a cell that said nothing; of one that holds no trace; no message at all.
    assert back.cells == {
        ("race", "lock"): seen(trace=()),
        ("race", NONE): seen("error", ERROR, schedule="a:start#1>b"),
    }
    text = path.read_text(encoding="utf-8")
    results.record(full, tmp_path)
    assert path.read_text(encoding="utf-8") == text
    assert "long words" not in text


def test_a_record_is_merged_and_never_truncated(tmp_path):
    results.record(report(none=seen("error", ERROR), lock=seen()), tmp_path)
    results.record(report(lock=seen("hang"), warmup=seen("inconclusive")), tmp_path)
    (back,) = results.recorded(tmp_path)
    assert {fix: cell.outcome for (_, fix), cell in back.cells.items()} == {NONE: Kind.ERROR, "lock": Kind.HANG}
    assert back.cells["race", NONE].trace == TRACE


def test_a_record_under_another_name_is_refused(tmp_path):
    results.record(report(none=seen()), tmp_path).rename(tmp_path / "torch-2.14.0-py3.11.json")
    with pytest.raises(
        ReportError, match=r"torch-2.14.0-py3.11.json: holds torch 2.13.0 on Python 3.11; call it torch-"
    ):
        results.recorded(tmp_path)


# ---- acknowledging -----------------------------------------------------------------------------------------------


def test_acknowledging_writes_both_and_makes_the_gate_green(tmp_path):
    at(tmp_path, TABLE)
    records = tmp_path / "results"
    old = report("2.13.0", none=seen("error", ERROR), lock=seen())
    gate.acknowledge(old, lambda race: None, tmp_path, records)
    new = report("2.14.1", none=seen(), lock=seen("hang"), warmup=seen("inconclusive"))

    changed = gate.acknowledge(new, lambda race: f"{LINK}/{race}", tmp_path, records)

    assert changed == [tmp_path / "race.toml", records / "torch-2.14.1-py3.11.json"]
    assert gate.acknowledge(new, lambda race: None, tmp_path, records) == []
    assert expected("race", "warmup", "2.14.1", tmp_path) is None
    assert expected("race", "lock", "2.15.0", tmp_path) == Expected(Kind.HANG, LINK)
    for run in (old, new):
        places = [place for place, cell in run.cells.items() if cell.conclusive]
        found = gate.compare(gate.release(run, places, results.recorded(records), tmp_path), run, places)
        assert found.standing is Standing.AS_EXPECTED


def test_the_link_of_the_race_is_asked_for_only_where_a_failure_has_none(tmp_path):
    def never(race: str) -> str | None:
        raise AssertionError(race)

    gate.acknowledge(report("2.13.0", none=seen()), never, tmp_path, tmp_path / "results")
    gate.acknowledge(report("2.14.1", none=seen("error")), lambda race: LINK, tmp_path, tmp_path / "results")
    assert expected("race", NONE, "2.14.1", tmp_path) == Expected(Kind.ERROR, LINK)
    with pytest.raises(ExpectationError, match="has no upstream link; give it one"):
        gate.acknowledge(report("2.13.0", none=seen("dense")), lambda race: None, tmp_path, tmp_path / "results")


def test_a_race_that_shows_has_its_schedule_recorded_for_the_release(tmp_path):
    schedules = tmp_path / "schedules"
    schedules.mkdir()
    file = schedules / f"{RACE}.json"
    file.write_bytes((fixtures() / "schedules" / file.name).read_bytes())
    shows = seen("error", ERROR, schedule="a:start#1>b")
    new = Report("2.99.0", "3.11", "Linux", {RACE: SEAMS}, {(RACE, NONE): shows, (RACE, "lock"): seen()})

    changed = gate.acknowledge(new, lambda race: LINK, tmp_path, tmp_path / "results", schedules)

    assert file in changed
    found = recording.load(str(file), "2.99.0")
    assert found.lists("2.99.0")
    assert (found.trace, found.seams, str(found.schedule)) == (TRACE, SEAMS, "a:start#1>b")
    assert not recording.load(str(file), "2.98.0").lists("2.99.0")
    # One of the release is there already.
    assert file not in gate.acknowledge(new, lambda race: LINK, tmp_path, tmp_path / "results", schedules)


def test_what_is_no_column_is_recorded_apart_and_judged_by_that(tmp_path):
    records = tmp_path / "results"
    run = report(
        none=seen("error", ERROR), lock=seen(), **{"lock+dynamic": seen(), "lock-call": seen("error", ERROR)}
    )

    changed = gate.acknowledge(run, lambda race: LINK, tmp_path, records)

    assert changed == [tmp_path / "race.toml", records / run.name, records / "apart" / run.name]
    assert gate.acknowledge(run, lambda race: LINK, tmp_path, records) == []
    assert expected("race", "lock-call", "2.13.0", tmp_path) is None
    (columns_,), (apart,) = results.recorded(records), results.recorded(results.apart(records))
    assert {fix for _, fix in columns_.cells} == {NONE, "lock"}
    assert {fix for _, fix in apart.cells} == {"lock+dynamic", "lock-call"}
    yardstick = gate.release(run, run.cells, [columns_], tmp_path, apart=[apart])
    assert judged(yardstick, run).standing is Standing.AS_EXPECTED
    assert [change.word for change in judged(gate.release(run, run.cells, [columns_], tmp_path), run).red] == [
        Word.NEW,
        Word.NEW,
    ]


# ---- bisect ------------------------------------------------------------------------------------------------------


def test_bisect_names_the_release_at_which_a_race_changed():
    records = [
        report("2.9.1", none=seen("error", ERROR), lock=seen()),
        report("2.10.0", none=seen("error", ERROR), lock=seen()),
        report("2.13.0", none=seen("error", "another"), lock=seen()),
        report("2.14.1", none=seen(), lock=seen()),
    ]
    found = gate.bisect(records, "race", [NONE, "lock", "warmup"])
    assert {fix: [(str(span), span.seen.signature) for span in line] for fix, line in found.items()} == {
        NONE: [("2.9.1 to 2.10.0", ERROR), ("2.13.0", "another"), ("2.14.1", "ok")],
        "lock": [("2.9.1 to 2.14.1", "ok")],
    }


def test_bisect_spans_no_release_that_it_knows_nothing_of():
    records = [report("2.9.1", lock=seen()), report("2.10.0", none=seen()), report("2.11.0", lock=seen())]
    assert [str(span) for span in gate.bisect(records, "race", ["lock"])["lock"]] == ["2.9.1", "2.11.0"]


def test_bisect_compares_releases_on_one_python():
    records = [
        report("2.9.1", none=seen("error", ERROR)),
        report("2.10.0", none=seen("error", ERROR)),
        report("2.10.0", none=seen("error", "another"), python="3.13.0"),
    ]
    assert [str(span) for span in gate.bisect(records, "race", [NONE])[NONE]] == ["2.9.1 to 2.10.0"]


# ---- what is committed -------------------------------------------------------------------------------------------

RECORDS = results.recorded()
ON_CUDA = results.recorded(results.folder("cuda"))


def recorded(torch: str) -> Report:
    return next(record for record in RECORDS if str(record.version) == torch)


def test_every_python_comes_to_the_same_on_a_release():
    """The README says so."""
    others = [record for record in RECORDS if record.minor != "3.11"]
    assert {record.minor for record in others} == {"3.12", "3.13"}
    for record in others:
        usual = results.best(RECORDS, record.version, "3.11")
        assert usual is not None
        assert usual.minor == "3.11"
        assert {place: (cell.outcome, cell.signature) for place, cell in record.cells.items()} == {
            place: (cell.outcome, cell.signature) for place, cell in usual.cells.items()
        }


def test_an_installed_package_is_not_updated(monkeypatch, capsys):
    monkeypatch.setattr(expectations, "_INSTALLED", fixtures())
    assert cli.main(["gate", "--update"]) == 2
    assert "would replace" in capsys.readouterr().err


@pytest.mark.parametrize("records", [RECORDS, ON_CUDA], ids=results.DEVICES)
def test_every_record_is_whole_and_as_expected_of_its_release(records):
    assert records
    for record in records:
        wanted = places(races.names_on([record.device]), fixes.names(), controls=True)
        answer = gate.compare(gate.release(record, wanted, records), record, wanted)
        assert answer.standing is Standing.AS_EXPECTED, [change.text for change in answer.red]
        assert results.reduced(record) == Path(record.source).read_text(encoding="utf-8")


# ---- on a device -------------------------------------------------------------------------------------------------


def test_what_is_recorded_of_a_race_on_cuda_alone_is_what_is_written_down_of_it():
    for record in ON_CUDA:
        for race, fix in places(races.names(races.CUDA), fixes.names(), controls=True):
            known = expected(race, fix, record.torch)
            assert known is not None
            assert known.outcome is record.cells[race, fix].outcome, (race, fix)


def test_on_cuda_a_release_that_nobody_recorded_there_is_compared_with_one_that_somebody_did():
    (record,) = ON_CUDA
    # On the CPU much changed from 2.11 to 2.13; what counts here is what is known of CUDA.
    run = replace(record, torch="2.13.0")
    answer = gate.compare(gate.release(run, run.cells, ON_CUDA), run, run.cells)
    assert answer.standing is Standing.AS_EXPECTED, [change.text for change in answer.red]
    assert answer.against == "what is known of torch 2.11.0 on CUDA"
    assert answer.title == "torch 2.13.0 on CUDA"
    appeared = replace(run, cells={**run.cells, ("mask-metadata-error", NONE): seen("error")})
    (change,) = gate.compare(gate.release(appeared, run.cells, ON_CUDA), appeared, run.cells).red
    assert (change.id, change.word) == ("mask-metadata-error/none", Word.WORSE)


def test_what_a_release_does_on_cuda_is_asked_of_the_record_there():
    (record,) = ON_CUDA
    known = results.expectation(record.torch, ["cuda:1"])
    for place, cell in record.cells.items():
        there = known(*place)
        assert there is not None
        assert there.outcome is cell.outcome
    written = expected("first-call", NONE, "2.13.0")
    assert results.expectation("2.13.0", ["cpu"])("first-call", NONE) == written


def test_an_update_on_cuda_touches_nothing_of_the_cpu(tmp_path):
    records, schedules = tmp_path / "records", tmp_path / "schedules"
    (tmp_path / "race.toml").write_text('[[release]]\ntorch = ">=2.9"\n[release.outcomes]\nnone = "ok"\n')
    before = (tmp_path / "race.toml").read_bytes()
    run = replace(report("2.13.0", none=seen("error")), devices=("cuda",))

    changed = gate.acknowledge(run, lambda race: LINK, tmp_path, records, schedules)

    assert changed == [records / run.name]
    assert (tmp_path / "race.toml").read_bytes() == before
    (back,) = results.recorded(records)
    assert (back.device, back.cells["race", NONE].outcome) == ("cuda", Kind.ERROR)
    yardstick = gate.release(run, run.cells, [back], tmp_path)
    assert judged(yardstick, run).standing is Standing.AS_EXPECTED


@pytest.mark.parametrize("devices", [[], ["xpu"], ["cuda", "gpu"]])
def test_a_report_of_no_device_that_races_run_on(devices):
    document = {**json.loads(Path(ON_CUDA[0].source).read_text(encoding="utf-8")), "devices": devices}
    with pytest.raises(ReportError, match="no device that races run on; those are cpu, cuda"):
        results.of_document(document)


def test_reports_that_cannot_be_judged_by_what_is_recorded(tmp_path):
    document = json.loads(Path(ON_CUDA[0].source).read_text(encoding="utf-8"))
    file = tmp_path / "report.json"

    def refused(document: Any, *more: str) -> str:
        file.write_text(json.dumps(document), encoding="utf-8")
        done = here("gate", "--from", str(file), *more, env=NOWHERE)
        assert done.returncode == 2
        return done.stderr

    assert "is of several devices, cuda:0, cuda:1" in refused({**document, "devices": ["cuda:0", "cuda:1"]})
    del document["devices"]
    assert "does not say that it ran on CUDA, and has backward-bystander" in refused(document)
    cpu = results.folder() / "torch-2.13.0-py3.11.json"
    document["devices"] = ["cuda"]
    assert f"{cpu} is of cpu, and what is to be compared with it of cuda" in refused(document, "--against", str(cpu))
    assert "nothing is recorded of torch 2.13.0 on CUDA" in refused(document, "--against", "2.13.0")


def test_a_report_of_cuda_is_judged_by_what_is_recorded_there():
    for more in ([], ["--race", "first-backward"], ["--against", "2.11.0"]):
        done = here("gate", "--from", ON_CUDA[0].source, *more, "--json", "-", env=NOWHERE)
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(done.stdout)["devices"] == ["cuda"]


def test_the_upgrade_from_2_13_to_2_14_shows_that_the_mark_became_thread_local():
    old, new = recorded("2.13.0"), recorded("2.14.1")
    answer = gate.compare(gate.other(old), new, sorted({*old.cells, *new.cells}))
    mark = {
        "dense-after-leak",
        "dense-fallback",
        "dense-then-nameerror",
        "tracing-bystander",
        "tracing-bystander-foreign",
        "tracing-flag-leak",
    }

    assert {change.race for change in answer.red if change.word is Word.BETTER and change.fix == NONE} == mark
    # Some go on failing at another place.
    assert {change.word for change in answer.red} <= {Word.BETTER, Word.OTHER}
    # Each cell of these that failed is clean now, and no other of theirs changed.
    for race in mark:
        for fix in columns(race, fixes.names(), controls=True):
            failed = old.cells[race, fix].outcome is not Kind.OK
            (change,) = [change for change in answer.changes if change.id == f"{race}/{fix}"]
            assert change.word is (Word.BETTER if failed else Word.SAME), change
    assert [change for change in answer.changes if change.race == "first-call" and change.red] == []
    assert answer.standing is Standing.NOT


def test_the_upgrade_from_2_11_to_2_13_shows_what_is_new_and_what_is_gone():
    old, new = recorded("2.11.0"), recorded("2.13.0")
    answer = gate.compare(gate.other(old), new, sorted({*old.cells, *new.cells}))

    def races_that_got(word):
        return [change.race for change in answer.red if change.word is word and change.fix == NONE]

    assert races_that_got(Word.WORSE) == [
        "is-compiling-leak",
        "is-compiling-left",
        "lost-config",
        "mask-metadata-error",
        "mask-metadata-foreign",
        "mask-metadata-left",
        "mask-metadata-slow",
        "mask-metadata-tags",
    ]
    assert races_that_got(Word.BETTER) == ["config-patch", "dynamic-flag", "first-call", "first-call-separate"]


@pytest.mark.parametrize("older", range(len(RECORDS)))
def test_every_upgrade_between_recorded_releases_is_what_the_expectations_say(older):
    """From each recorded release to each later one: red exactly where what is written down of the two differs."""
    old = RECORDS[older]
    for new in RECORDS[older + 1 :]:
        if new.version == old.version:
            continue
        both = sorted({*old.cells, *new.cells})
        answer = gate.compare(gate.other(old), new, both)
        for change in answer.changes:
            if change.race == SEAM or change.word is Word.OTHER:
                continue
            before, after = (expected(change.race, change.fix, report.torch) for report in (old, new))
            assert before is not None
            assert after is not None
            assert change.red == (before.outcome is not after.outcome), change


def test_the_table_of_releases_in_the_readme_is_the_recorded_one():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    start, end = "<!-- releases -->\n", "<!-- /releases -->"
    assert start in text
    shown = text.partition(start)[2].partition(end)[0]
    assert shown.strip() == markdown.releases(RECORDS, ON_CUDA).strip(), (
        "paste what python -m repro gate --releases prints"
    )


# ---- renderings --------------------------------------------------------------------------------------------------


def mixed() -> gate.Gate:
    yardstick = Known(
        "torch <2.13>",
        {
            ("race", fix): Expected(Kind(kind), LINK)
            for fix, kind in [(NONE, "error"), ("lock", "ok"), ("warmup", "ok")]
        },
        notes=("a|note",),
    )
    run = report("2.14.1", none=seen(), lock=seen("hang"), warmup=seen("inconclusive", reason="100% lost\x00:\nbad"))
    return judged(yardstick, run, NONE, "lock", "warmup", "dynamic")


def test_junit_has_a_test_for_each_cell_and_the_same_names_on_every_release():
    suite = ElementTree.fromstring(junit.gate(mixed())).find("testsuite")
    assert suite is not None
    assert suite.attrib == {"name": "gate", "tests": "4", "failures": "2", "errors": "2", "skipped": "0"}
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    assert list(cases) == [NONE, "lock", "warmup", "dynamic"]
    assert {case.attrib["classname"] for case in cases.values()} == {"gate.race"}
    kinds = {name: [(part.tag, part.attrib["type"]) for part in case] for name, case in cases.items()}
    assert kinds == {
        NONE: [("failure", "better")],
        "lock": [("failure", "worse")],
        "warmup": [("error", "inconclusive")],
        "dynamic": [("error", "lost")],
    }
    same = judged(known(none="error"), report(none=seen("error")))
    (case,) = ElementTree.fromstring(junit.gate(same)).iter("testcase")
    assert (case.attrib, [*case]) == ({"classname": "gate.race", "name": NONE}, [])


def test_markdown_says_the_answer_first_and_escapes_what_it_quotes():
    text = markdown.gate(mixed())
    lines = text.splitlines()
    assert lines[0].endswith("torch 2.14.1: inconclusive")
    assert "Against torch &lt;2.13>. 4 cells: 1 better, 1 worse, 1 lost, 1 inconclusive." in lines
    assert "* a\\|note" in lines
    assert f"| worse | race / lock | fix lock no longer holds (hang) | <{LINK}> |" in lines
    same = markdown.gate(judged(known(none="error"), report(none=seen("error"))))
    assert same.splitlines()[0].endswith("torch 2.13.0: as expected")
    assert "| as recorded | race / no fix | error | <https://example.org/1> |" in same
    many = report(none=seen("error"), **{f"fix{number}": seen() for number in range(gate.FEW)})
    assert "|" not in markdown.gate(gate.compare(gate.other(many), many, list(many.cells)))


def test_annotations_are_one_line_each_with_everything_escaped():
    lines = github.errors(mixed())
    assert len(lines) == 4
    assert all("\n" not in line for line in lines)
    assert lines[1] == "::error title=worse%3A race / lock::fix lock no longer holds (hang)"
    assert "says nothing: 100%25 lost" in lines[2]
    assert lines[2].endswith(":%0Abad")
    assert github.errors(judged(known(none="ok"), report(none=seen()))) == []
    # Nothing ran: that must be seen too.
    assert github.errors(judged(known(), report())) == ["::error title=gate::0 cells: none ran"]


# ---- the command, without torch ----------------------------------------------------------------------------------


@pytest.fixture
def reports(tmp_path: Path) -> dict[str, str]:
    """2.13.0 as recorded; the same, with one fix broken; the same, with one cell not run."""
    document = json.loads((results.folder() / recorded("2.13.0").name).read_text(encoding="utf-8"))
    broken, partial = json.loads(json.dumps(document)), json.loads(json.dumps(document))
    (cell,) = [cell for cell in broken["cells"] if (cell["race"], cell["fix"]) == ("tracing-flag-leak", "lock")]
    cell.update(verdict="FAILS", outcome="hang", signature="hang")
    partial["cells"].pop()
    found = {}
    for name, content in (("same", document), ("broken", broken), ("partial", partial)):
        found[name] = str(tmp_path / f"{name}.json")
        Path(found[name]).write_text(json.dumps(content), encoding="utf-8")
    return found


NOWHERE = environment(PATH="/nowhere", CXX="/nowhere/g++")


@pytest.mark.parametrize(
    ("name", "code", "last"),
    [("same", 0, "; as expected"), ("broken", 1, "1 worse; not as expected"), ("partial", 3, "1 lost; inconclusive")],
)
def test_the_exit_code_is_the_answer(reports, name, code, last):
    done = command("gate", "--from", reports[name], env=NOWHERE)
    assert done.returncode == code
    assert done.stdout.rstrip().endswith(last)
    assert done.stderr == ""


def test_all_documents_are_of_the_same_answer(reports, tmp_path):
    places = [str(tmp_path / name) for name in ("gate.xml", "gate.md")]
    done = here("gate", "--from", reports["broken"], "--junit", places[0], "--markdown", places[1], "--json", "-")
    document = json.loads(done.stdout)
    (red,) = [change for change in document["changes"] if change["red"]]
    assert (red["race"], red["fix"], red["word"]) == ("tracing-flag-leak", "lock", "worse")
    assert document["standing"] == "not as expected"
    assert document["torch"] == "2.13.0"
    assert document["meaning"] == ["lock: no longer holds against tracing-flag-leak"]
    assert ElementTree.parse(places[0]).find(".//failure").attrib["message"] == red["text"]
    assert red["text"] in Path(places[1]).read_text(encoding="utf-8")
    assert red["text"] in done.stderr


def test_in_a_github_job_there_are_annotations_and_a_summary(reports, tmp_path):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    job = environment(GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary))
    wanted = "::error title=worse%3A tracing-flag-leak / lock::fix lock no longer holds (hang)"

    done = here("gate", "--from", reports["broken"], env=job)
    assert wanted in done.stdout.splitlines()
    assert summary.read_text().startswith("before\n## ")

    done = here("gate", "--from", reports["broken"], "--json", "-", env=job)
    json.loads(done.stdout)
    assert wanted in done.stderr.splitlines()
    assert "::error" not in here("gate", "--from", reports["broken"], env=environment(GITHUB_ACTIONS="")).stdout


def narrowed(tmp_path: Path, **asked: list[str] | int | None) -> str:
    """2.13.0 as recorded, of one race without a fix and under the lock; the file says what it was ``asked`` for."""
    document = json.loads((results.folder() / recorded("2.13.0").name).read_text(encoding="utf-8"))
    wanted = [("tracing-flag-leak", NONE), ("tracing-flag-leak", "lock")]
    cells = [cell for cell in document["cells"] if (cell["race"], cell["fix"]) in wanted]
    content = {**document, "command": "gate", "cells": cells, **({"asked": asked} if asked else {})}
    path = tmp_path / "narrowed.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_a_file_is_judged_by_what_it_was_narrowed_to_and_says_what_it_leaves_out(tmp_path):
    file = narrowed(tmp_path, races=["tracing-flag-leak"], fixes=["lock"], times=1, searched=False)
    done = here("gate", "--from", file, env=NOWHERE)
    assert done.returncode == 0, done.stdout
    assert "note: quick: each cell ran once, and no race that stayed away was searched for\n" in done.stdout
    assert "  as recorded tracing-flag-leak / no fix: poisoned\n" in done.stdout
    count = len(races.names_on(["cpu"]))
    assert f"left out: {count - 1} of {count} races\n" in done.stdout
    assert "left out: all fixes but the named ones, and the control group\n" in done.stdout
    assert done.stdout.rstrip().endswith("2 cells: 2 as recorded; as expected")
    # It is no less strict within that, against a release that it is not ...
    assert here("gate", "--from", file, "--against", "2.14.1", env=NOWHERE).returncode == 1
    # ... nor when it is asked for what it does not hold.
    for more in (["--race", "stance-left"], ["--fix", "warmup"], ["--fix", "warmup", "--against", file]):
        assert here("gate", "--from", file, *more, env=NOWHERE).returncode == 3


def test_a_group_stands_for_its_races():
    done = here("gate", "--from", "2.14.1", "--race", "processes", "--race", RACE, "--fix", NONE, env=NOWHERE)
    asked = {*races.names(races.PROCESSES), RACE}
    assert done.returncode == 0, done.stdout
    count = len(races.names_on(["cpu"]))
    assert f"left out: {count - len(asked)} of {count} races\n" in done.stdout
    assert done.stdout.rstrip().endswith(f"{len(asked)} cells: {len(asked)} as recorded; as expected")


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"races": None, "fixes": None},
        {"races": [], "fixes": []},
        {"races": ["tracing-flag-leak"], "fixes": None},
        {"races": ["tracing-flag-leak", "stance-left"], "fixes": ["lock"]},
        {"races": ["tracing-flag-leak"], "fixes": ["lock", "warmup"]},
    ],
    ids=["nothing is said", "everything", "nothing", "every fix", "another race", "another fix"],
)
def test_a_file_without_all_that_it_was_asked_for_is_inconclusive(tmp_path, asked):
    file = narrowed(tmp_path, **asked)
    done = here("gate", "--from", file, env=NOWHERE)
    assert done.returncode == 3
    assert "did not run" in done.stdout
    assert done.stdout.rstrip().endswith("inconclusive")
    if asked.get("races") and asked["fixes"]:
        assert here("gate", "--from", file, "--against", file, env=NOWHERE).returncode == 3


def test_a_file_that_was_narrowed_to_what_is_not_recorded_is_refused(tmp_path):
    file = narrowed(tmp_path, races=["tracing-flag-leak"], fixes=["my/fix.py"])
    assert refused("gate", "--from", file, env=NOWHERE).startswith(
        "the gate knows what is recorded, and of my/fix.py"
    )
    file = narrowed(tmp_path, races=["tracing-flag-leek"], fixes=None)
    assert refused("gate", "--from", file, env=NOWHERE).startswith("no race is called 'tracing-flag-leek'")


def test_a_file_keeps_what_was_searched(tmp_path, reports):
    document = json.loads(Path(reports["same"]).read_text(encoding="utf-8"))
    looks = [
        {"race": "stance-left", "text": "it still raises", "found": "a:fx.trace#2>b"},
        {"race": "stance-leak", "text": "200 schedules, nothing", "found": None},
    ]
    path = tmp_path / "searched.json"
    path.write_text(json.dumps({**document, "command": "gate", "looks": looks}), encoding="utf-8")
    done = here("gate", "--from", str(path), env=NOWHERE)
    assert done.returncode == 1
    assert "worse stance-left / search: appears by another schedule, a:fx.trace#2>b: it still raises" in done.stdout
    assert "note: stance-leak: 200 schedules, nothing" in done.stdout


def test_two_reports_are_compared_without_running_anything(reports):
    done = here("gate", "--from", reports["broken"], "--against", reports["same"], env=NOWHERE)
    assert done.returncode == 1
    assert "tracing-flag-leak / lock: fix lock no longer holds (hang)" in done.stdout
    # ... or with a recorded release.
    done = command(
        "gate", "--from", reports["same"], "--against", "2.14.1", "--race", "tracing-flag-leak", env=NOWHERE
    )
    assert done.returncode == 1
    assert "tracing-flag-leak / no fix: appears (poisoned), which it did not" in done.stdout
    assert "left out: " in done.stdout
    assert "tracing-bystander" not in done.stdout


def test_bisect_and_the_table_come_from_what_is_recorded():
    done = here("gate", "--bisect", "tracing-flag-leak", env=NOWHERE)
    assert done.returncode == 0
    assert "tracing-flag-leak without a fix: " in done.stdout
    assert done.stdout.splitlines()[0].endswith("poisoned on 2.9.1 to 2.13.0, ok on 2.14.1 to 2.15.0")
    done = here("gate", "--bisect", "tracing-flag-leak", "--fix", "lock+dynamic", env=NOWHERE)
    assert "with fix lock+dynamic: ok on 2.13.0" in done.stdout
    done = here("gate", "--bisect", "tracing-flag-leak", "--fix", "lock+own-code", env=NOWHERE)
    assert done.returncode == 3
    assert "with fix lock+own-code: nothing is recorded" in done.stdout
    table = markdown.releases(RECORDS, ON_CUDA)
    assert here("gate", "--releases", env=NOWHERE).stdout == table
    assert json.loads(here("gate", "--releases", "--json", "-", env=NOWHERE).stdout)["markdown"] == table


@pytest.fixture
def copy(tmp_path: Path) -> dict[str, str]:
    """The package with fixtures of its own, so that --update changes nothing here."""
    root = tmp_path / "copy"
    root.mkdir()
    (root / "repro").mkdir()
    for entry in (ROOT / "repro").iterdir():
        if entry.name != "__pycache__":
            target = root / "repro" / entry.name
            if entry.is_dir():
                target.symlink_to(entry)
            else:
                target.write_bytes(entry.read_bytes())
    for folder in ("expectations", "results", "schedules"):
        (root / "fixtures" / folder).mkdir(parents=True)
        for file in (fixtures() / folder).glob("*.*"):
            (root / "fixtures" / folder / file.name).write_bytes(file.read_bytes())
    return {**NOWHERE, "PYTHONPATH": str(root), "root": str(root)}


def test_update_from_reports_writes_what_was_seen_and_then_it_is_expected(reports, copy):
    root = Path(copy["root"])
    file = root / "fixtures" / "expectations" / "tracing-flag-leak.toml"
    before = file.read_text(encoding="utf-8")

    def gated(*arguments: str) -> Any:
        return command("gate", *arguments, env=copy, cwd=root)

    assert gated("--from", reports["broken"]).returncode == 1
    done = gated("--update", "--from", reports["broken"])
    assert done.returncode == 0
    assert f"written: {file}" in done.stdout
    assert 'lock = "hang"' in file.read_text(encoding="utf-8")
    assert gated("--from", reports["broken"]).returncode == 0
    assert gated("--from", reports["same"]).returncode == 1
    # The other releases stay as they were, and so does everything once it is taken back.
    assert expected("tracing-flag-leak", "lock", "2.14.1", file.parent) == Expected(Kind.OK, None)
    assert gated("--update", "--from", reports["broken"], "--from", reports["same"]).returncode == 0
    assert file.read_text(encoding="utf-8") == before


# ---- the surface beside the verdicts -------------------------------------------------------------------------------


def test_the_gate_says_what_changed_on_the_surface_where_it_compares_two_releases(reports, tmp_path):
    places = {name: str(tmp_path / f"gate.{name}") for name in ("junit", "markdown", "json")}
    targets = [word for name, place in places.items() for word in (f"--{name}", place)]
    one = ["--from", reports["same"], "--race", "tracing-flag-leak"]
    done = here("gate", *one, "--against", "2.14.1", *targets, env=NOWHERE)
    document = json.loads(Path(places["json"]).read_text(encoding="utf-8"))["surface"]
    wanted = surface.compare("2.14.1", "2.13.0")

    assert (document["old"], document["new"], document["counts"]) == ("2.14.1", "2.13.0", wanted.counts)
    # 2.14 gave this mark to a thread, which is why the race is gone there
    (mark,) = [change for change in document["changes"] if change["name"].endswith("._is_fx_tracing_flag")]
    assert mark["kind"] == "new"
    lines = terminal.surface_lines(wanted)
    assert f"new: {mark['name']}: {mark['what']}" in lines
    for text in (done.stdout, Path(places["markdown"]).read_text(encoding="utf-8")):
        assert all(line in text for line in lines[1:])
    assert lines[0] in done.stdout
    assert lines[-1] == "the rest: python -m repro surface --diff 2.14.1 2.13.0"
    assert "surface" not in Path(places["junit"]).read_text(encoding="utf-8")
    assert done.returncode == 1


def test_of_one_release_there_is_no_surface_to_compare(reports):
    done = here("gate", "--from", reports["same"], "--json", "-", env=NOWHERE)
    assert json.loads(done.stdout)["surface"] is None
    assert "surface" not in done.stderr


def test_a_release_without_an_inventory_is_named_and_nothing_about_it_is_made_up(reports, tmp_path):
    document = json.loads(Path(reports["same"]).read_text(encoding="utf-8"))
    (tmp_path / "new.json").write_text(json.dumps({**document, "torch": "9.0.0"}), encoding="utf-8")
    done = here("gate", "--from", str(tmp_path / "new.json"), "--race", RACE, env=NOWHERE)
    hint = f"python -m repro surface --diff {RECORDS[-1].version} 9.0.0"
    assert f"note: no inventory of torch 9.0.0 is recorded: {hint}" in done.stdout
    assert "surface of torch" not in done.stdout


def test_an_installed_torch_without_an_inventory_is_read(monkeypatch, tmp_path):
    (tmp_path / "_dynamo").mkdir()
    (tmp_path / "version.py").write_text("__version__ = '9.0.0+cpu'\n")
    (tmp_path / "_dynamo" / "__init__.py").write_text("N = 0\ndef compile():\n    global N\n    N = 1\n")
    monkeypatch.setattr(surface, "installed", lambda: tmp_path)
    changed, unknown = gate.upgrade(Version("2.13.0"), Version("9.0.0"), here=True)
    assert changed is not None
    assert (changed.new, unknown) == ("9.0.0", [])
    assert changed.counts["new"] == 1
    assert len(changed.turns) > terminal.FEW
    lines = terminal.surface_lines(changed)
    assert len(lines) == terminal.FEW + 3
    assert f"and {len(changed.turns) - terminal.FEW} more" in lines[-2]
    assert lines[-1].endswith("--diff 2.13.0 PYTHON")
    assert gate.upgrade(Version("2.13.0"), Version("9.0.0"), here=False)[0] is None


# ---- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--race", "tracing-flag-leek"], "no race is called 'tracing-flag-leek'"),
        (["--fix", "locks"], "no fix is called 'locks'"),
        (["--bisect", "leek"], "no race is called 'leek'"),
        (["--from", "missing.json"], "missing.json: no such file, and no release such as 2.13.0"),
        (["--against", "nightly"], "nightly: no such file, and no release such as 2.13.0"),
        (["--against", "2.0.0"], "nothing is recorded of torch 2.0.0; recorded are: "),
        (["--from", "a.json", "--from", "b.json"], "--from takes more than one report only with --update"),
        (["--update", "--from", "a", "--from", "b", "--markdown", "c"], "take one answer, and each --from gives one"),
        (["--update", "--against", "2.13.0"], "--update writes what is expected of one release"),
        (["--torch-spec", "torch", "--from", "a.json"], "beside --from there is nothing to do for --torch-spec"),
        (["--from", "a.json", "--quick", "-n", "2"], "beside --from there is nothing to do for --quick, -n: leave"),
        (["--from", "a.json", "--device", "cpu"], "beside --from there is nothing to do for --device: leave it out"),
        (["--device", "cuda", "--race", "cold-start"], "cold-start is a race of processes, on the CPU alone"),
        (["--race", "first-backward"], "first-backward is a race on CUDA alone: give --device cuda"),
        (["--device", "cuda:0", "--device", "cuda:1"], "what is recorded is of one device: give --device once"),
        (["--quick", "--budget", "9"], "beside --quick there is nothing to do for --budget: leave it out"),
        (["--releases", "--update"], "beside --releases there is nothing to do for --update: leave it out"),
        (["--decision", "--releases"], "beside --decision there is nothing to do for --releases: leave it out"),
        (["--bisect", "stance-leak", "--race", "stance-left"], "beside --bisect there is nothing to do for --race"),
        (["--bisect", "stance-leak", "--fix", "file-lock"], "file-lock is no fix for races of threads"),
        (["--bisect", "stance-leak", "--fix", "warmup-other-device"], "--bisect reads what is recorded on the CPU"),
        (["--json", "-", "--junit", "-"], "standard output can take only one of --json, --junit, --markdown and -o"),
        (
            ["--junit", "/missing/x.xml"],
            "cannot write '/missing/x.xml': No such file or directory; give --junit another",
        ),
        (
            ["--markdown", "/missing/x"],
            "cannot write '/missing/x': No such file or directory; give --markdown another",
        ),
        (["-n", "0"], "argument -n: '0' is not a whole number from 1 up"),
    ],
)
def test_what_cannot_work_is_told_in_one_line(arguments, message):
    assert message in refused("gate", *arguments, env=NOWHERE)


def test_a_fix_file_is_for_the_matrix(tmp_path):
    (tmp_path / "mine.py").write_text("def guard(function):\n    return function\n")
    assert "use matrix --fix" in refused("gate", "--fix", str(tmp_path / "mine.py"))


CELL = {"race": "a", "fix": "none", "verdict": "HOLDS", "outcome": "ok", "signature": "ok", "schedule": "-"}
HEAD = {"schema": 1, "torch": "2.13.0", "python": "3.11", "platform": "Linux"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", ": not valid JSON: "),
        ([], ": no field 'schema'; is this a file that --json wrote?"),
        ({**HEAD, "schema": 2}, ": schema 2 is not 1"),
        ({**HEAD, "torch": "new", "cells": []}, ": torch 'new' is not a version"),
        (HEAD, ": no field 'cells'"),
        ({**HEAD, "cells": [3]}, ": cell 1: no field 'race'"),
        ({**HEAD, "cells": [CELL, {**CELL, "outcome": "good"}]}, ": cell 2: a / none stands there twice"),
        ({**HEAD, "cells": [{**CELL, "outcome": "good"}]}, ": cell 1: 'good' is not an outcome"),
        ({**HEAD, "cells": [{**CELL, "trace": "abc"}]}, ": traces: no field 'abc'"),
        ({**HEAD, "cells": [], "asked": 3}, ": 'asked' is of type int, not dict"),
        ({**HEAD, "cells": [], "asked": {"races": ["a", 3]}}, ": asked: 'races[1]' is of type int, not str"),
        ({**HEAD, "cells": [], "asked": {"times": "3"}}, ": asked: 'times' is of type str, not int"),
        ({**HEAD, "cells": [], "seams": {"a": "x"}}, ": seams: 'a' is of type str, not list"),
    ],
)
def test_a_report_that_cannot_be_read_is_named_with_the_place(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    assert f"{path}{message}" in refused("gate", "--from", str(path), env=NOWHERE)


# ---- with torch --------------------------------------------------------------------------------------------------

TORCH = Version(Version(torch_version()).base_version)
SHOWS = Version("2.14") > TORCH


def test_the_gate_measures_and_is_green_on_a_recorded_release(tmp_path, laboratory):
    target = tmp_path / "gate.json"
    line = ("gate", "--quick", "-n", "2", "--race", RACE, "--fix", "lock", "--json", str(target))
    done = here(*line, laboratory=laboratory)
    document = json.loads(target.read_text(encoding="utf-8"))

    assert done.returncode == 0, done.stdout
    assert "note: quick: no race that stayed away was searched for\n" in done.stdout
    count = len(races.names_on(["cpu"]))
    assert f"left out: {count - 1} of {count} races" in done.stdout
    assert [(cell["fix"], cell["verdict"]) for cell in document["cells"]] == [
        (NONE, "FAILS" if SHOWS else "HOLDS"),
        ("lock", "HOLDS"),
    ]
    assert document["asked"] == {"races": [RACE], "fixes": ["lock"], "times": 2, "searched": False}
    # What it wrote can be judged again elsewhere ...
    done = here("gate", "--from", str(target), env=NOWHERE)
    assert done.returncode == 0, done.stdout
    assert done.stdout.rstrip().endswith("2 cells: 2 as recorded; as expected")
    # ... and the other release must be red, by name.
    other = "2.14.1" if SHOWS else "2.13.0"
    done = here("gate", "--from", str(target), "--race", RACE, "--fix", "lock", "--against", other, env=NOWHERE)
    assert done.returncode == 1
    assert f"{RACE} / no fix: {'appears (error)' if SHOWS else 'does not appear any more'}" in done.stdout


def test_the_full_gate_searches_for_a_race_that_stayed_away(laboratory):
    done = here("gate", "-n", "1", "--race", "first-call", "--fix", "lock", "--budget", "2", laboratory=laboratory)
    stays_away = Version("2.13") <= TORCH
    assert ("first-call: searched without a fix: 2 schedules" in done.stdout) == stays_away
    assert done.returncode == 0, done.stdout


def test_runs_that_differ_make_a_cell_inconclusive():
    runs = [Observation(Outcome(Kind.OK, "one")), Observation(Outcome(Kind.ERROR, "two"))]

    class Changing:
        torch = "2.13.0"

        def perform_all(self, experiments: list[Experiment]) -> Iterator[Observation]:
            return (runs[number % 2] for number, _ in enumerate(experiments))

    cells = list(matrix(Changing(), [RACE], ["lock"], controls=False, times=2))
    assert [cell.verdict for cell in cells] == [Verdict.INCONCLUSIVE] * 2
    assert cells[0].reason == "not deterministic: run 1 ended ok, run 2 error"


def test_pytest_is_the_gate_of_another_baseline():
    wanted = f"tests/races/test_races.py::test_every_cell_is_as_this_release_is_known_to_behave[{RACE}]"

    def tested(version: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--torch-baseline={version}", wanted],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
        )

    done = tested("2.14.1" if SHOWS else "2.13.0")
    assert done.returncode == 1
    assert f"{RACE}/none: {'appears (error)' if SHOWS else 'does not appear any more'}" in done.stdout
    mark = "torch.fx._symbolic_trace._is_fx_tracing_flag"
    assert (f"new: {mark}" if SHOWS else f"moved: {mark}") in done.stdout
    unknown = tested("2.0.0")
    assert unknown.returncode == 4
    assert "--torch-baseline: nothing is recorded of torch 2.0.0; recorded are: " in unknown.stderr
