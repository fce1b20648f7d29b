"""The page: its model on real recorded runs, and the page itself in a browser, where there is one."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import BROWSER, Browser

from repro import races, results
from repro.cli import _parser, main
from repro.expectations import PROCESSES, fixtures
from repro.fixes import NONE
from repro.outcome import Kind
from repro.report import html, pictures
from repro.results import ReportError
from repro.verdict import Verdict
from tests.command_line import ROOT

RACE = "tracing-flag-leak"
TORCH = "2.13.0"
RECORDED = results.folder() / f"torch-{TORCH}-py3.11.json"


def recorded_run(race: str) -> dict[str, Any]:
    """A real run with its messages, stacks and findings, in the document of ``run``."""
    document = json.loads((fixtures() / "schedules" / f"{race}.json").read_text(encoding="utf-8"))
    document["cells"] = document["cells"][-1:]
    return document


def written(path: Path, document: Any) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The recorded run of every race of the CPU without a fix, in one file."""
    document = recorded_run(RACE)
    document["command"] = "matrix"
    runs = [recorded_run(race) for race in races.names_on(["cpu"])]
    document["cells"] = [{"torch": run["torch"], **run["cells"][0]} for run in runs]
    return written(tmp_path_factory.mktemp("html") / "every race.json", document)


def cell(page: html.Page, race: str, fix: str = NONE, release: str = "this") -> html.Cell:
    (found,) = [each for each in page.cells if (each.race, each.fix, each.release) == (race, fix, release)]
    return found


# ---- the model ----------------------------------------------------------------------------------------------------


def test_every_run_is_there_with_its_picture_its_stacks_and_how_to_see_it_again(everything):
    page = html.load(everything)
    runs = [each for each in page.cells if not each.release.startswith("recorded")]

    assert sorted(each.race for each in runs) == races.names_on(["cpu"])
    for each in runs:
        # Who died left no trace; the page says so.
        assert bool(each.lanes) != any("there is no picture" in text for text in each.missing), each.race
        assert each.commands == (f"python -m repro run {each.race}",)
        if each.outcome in (Kind.ERROR, Kind.HANG, Kind.CRASH):
            assert each.stacks, each.race
    assert page.count("shown") + page.count("held") + page.count("unclear") == len(page.own)
    assert cell(page, "reset-crash").lanes == ""


def test_other_releases_are_there_and_named_as_recorded(everything):
    page = html.load(everything)
    rows = {row.release.name: row for table in page.tables for row in table.rows if row.race == RACE}

    assert {str(report.version) for report in results.recorded()} <= set(rows)
    assert (page.releases[0].key, page.releases[0].note) == ("this", "")
    old_ones = [release for release in page.releases if release.command]
    assert all("recorded" in release.note for release in old_ones)
    # Some races are recorded on the last release that had them; that too is of this file.
    assert all(release.key.startswith(("this", "file-")) for release in page.releases if release not in old_ones)
    assert rows["2.14.1"].cells[NONE].word == "clean"
    # Of a failure elsewhere the trace was kept, and nothing else.
    old = cell(page, RACE, "wrapper", f"recorded-cpu-{TORCH}-3.11")
    assert old.lanes
    assert old.stacks == ()
    assert old.missing == (
        "A recorded result keeps neither messages nor stacks. Under Python 3.11 the command above shows it.",
    )
    assert old.commands == (
        f"python -m repro gate --torch-spec torch=={TORCH} --quick --race {RACE} --fix wrapper --json FILE",
    )
    # Of a card the outcomes were kept, and nothing opens.
    assert "first-backward" in {row.race for table in page.tables for row in table.rows}
    assert not any(each.release.startswith("h200") for each in page.cells)


def test_a_recorded_result_is_a_file_too_and_stands_there_once():
    page = html.load(str(RECORDED))

    assert len(page.own) == len(json.loads(RECORDED.read_text(encoding="utf-8"))["cells"])
    assert f"recorded-cpu-{TORCH}-3.11" not in {release.key for release in page.releases}
    assert cell(page, RACE).lanes
    assert "Only of failures a recorded result keeps the trace" in cell(page, RACE, "lock").missing[0]
    assert page.answer is not None
    assert page.answer.red == []


def test_of_one_race_the_page_is_about_this_race(tmp_path):
    file = written(tmp_path / "one.json", recorded_run(RACE))
    page = html.load(file)

    assert {row.race for table in page.tables for row in table.rows} == {RACE}
    assert cell(page, RACE).commands[0] == f"python -m repro replay {file} -n 3"
    assert page.unseen > 400


def test_of_a_file_with_several_runs_the_command_names_the_one(tmp_path):
    document = recorded_run(RACE)
    document["cells"].append({**document["cells"][0], "fix": "lock"})
    file = written(tmp_path / "two.json", document)
    for fix in (NONE, "lock"):
        again = f"python -m repro replay {file} -n 3 --cell {RACE}/{fix}"
        assert cell(html.load(file), RACE, fix).commands[0] == again
        assert _parser().parse_args(shlex.split(again)[3:]).cell == (RACE, fix)


def test_a_replay_is_judged_as_replay_judged_it(tmp_path):
    document = recorded_run(RACE)
    (run,) = document.pop("cells")
    head = {"command": "replay", "race": RACE, "fix": NONE, "verdict": "INCONCLUSIVE", "reason": "not the same"}
    page = html.load(written(tmp_path / "x.json", {**document, **head, "runs": [run, run]}))

    assert [(each.word, each.reason) for each in page.own] == [("?", "2 replays: not the same")]


def test_a_search_that_found_nothing_has_a_verdict_and_no_empty_picture(tmp_path):
    search = {"budget": 9, "schedules": 9, "threads": 2, "steps": 24, "failing": 0, "exhausted": False, "depth": 2}
    document = {
        **recorded_run(RACE),
        "command": "explore",
        "race": RACE,
        "fix": "lock",
        "verdict": "HOLDS",
        "reason": "would have shown",
        "strategy": "pct",
        "seeds": [3],
        "search": {**search, "detection": 0.97},
        "cells": [],
    }
    page = html.load(written(tmp_path / "x.json", document))
    (own,) = page.own

    assert (own.word, own.reason, own.lanes) == ("holds", "would have shown", "")
    assert own.commands == (f"python -m repro explore {RACE} --fix lock --strategy pct --seed 3",)
    assert "9 schedules of 2 threads ran" in html.render(page)


def test_what_a_search_found_can_be_replayed_from_its_file(tmp_path):
    search = {"budget": 9, "schedules": 9, "threads": 2, "steps": 24, "failing": 1}
    head = {"race": RACE, "fix": NONE, "verdict": "FAILS", "reason": "found", "strategy": "pct", "search": search}
    file = written(tmp_path / "x.json", {**recorded_run(RACE), "command": "explore", **head})
    (own,) = html.load(file).own

    assert (own.word, own.commands[0]) == ("poisoned", f"python -m repro replay {file} -n 3")
    assert own.lanes
    assert own.stacks


def test_an_audit_is_a_row_with_the_threads_beside_it_as_columns(tmp_path):
    document = recorded_run(RACE)
    (run,) = document["cells"]
    search = {"budget": 9, "schedules": 9, "threads": 2, "steps": 24, "failing": 1}
    one = {"breaks": True, "schedules": 3, "inconclusive": None, "shown": run}
    document |= {"command": "audit", "target": "my.module:attention", "threads": 2, "strategy": "bounded"}
    document |= {"verdict": "HOLDS", "reason": "all ran", "search": search, "seeds": [0], "cells": []}
    foreign = [{**one, "thread": "tracer"}, {"thread": "exporter", "breaks": False, "schedules": 3, "shown": None}]
    page = html.load(written(tmp_path / "x.json", {**document, "foreign": foreign}))

    ((row,),) = [table.rows for table in page.tables]
    assert {fix: each.word for fix, each in row.cells.items()} == {
        NONE: "clean",
        "beside tracer": "poisoned",
        "beside exporter": "holds",
    }
    assert row.cells["beside tracer"].lanes
    assert row.cells["beside tracer"].commands == (
        "python -m repro audit my.module:attention --foreign --threads 2 --strategy bounded --seed 0",
    )
    assert page.answer is None


@pytest.mark.parametrize(("outcome", "verdict"), [("ok", "INCONCLUSIVE"), ("error", "FAILS"), ("hang", "FAILS")])
def test_a_run_that_nobody_judged_is_never_green(tmp_path, outcome, verdict):
    document = recorded_run(RACE)
    del document["cells"][0]["verdict"]
    document["cells"][0]["outcome"] = outcome
    assert cell(html.load(written(tmp_path / "x.json", document)), RACE).verdict is Verdict(verdict)


def test_a_race_that_is_not_in_the_catalogue_is_shown_and_compared_with_nothing(tmp_path):
    document = recorded_run(RACE)
    document["cells"][0] |= {"race": "my-loader", "fix": "/home/<me>/fix.py"}
    page = html.load(written(tmp_path / "x.json", document))

    assert [table.title for table in page.tables] == ["Other"]
    assert page.answer is None
    assert "There is nothing to compare with" in html.render(page)


def test_what_a_run_said_is_text_on_the_page(tmp_path):
    document = recorded_run(RACE)
    document["cells"][0] |= {"reason": "<script>alert(1)</script>", "fix": '"><b>.py'}
    text = html.render(html.load(written(tmp_path / "x.json", document)))

    assert "<script>alert" not in text
    assert "<b>.py" not in text
    assert "&lt;script&gt;alert(1)" in text


def test_differences_are_those_of_the_gate_as_page_markdown_and_junit(tmp_path):
    document = recorded_run(RACE)
    document["cells"][0] |= {"outcome": "ok", "verdict": "HOLDS", "signature": "ok"}
    file = written(tmp_path / "x.json", document)
    files = ["--markdown", str(tmp_path / "x.md"), "--junit", str(tmp_path / "x.xml")]

    assert main(["report", file, *files]) == 0

    for name in ("x.html", "x.md", "x.xml"):
        assert "fixed upstream: remove the workaround" in (tmp_path / name).read_text(encoding="utf-8")
    other = html.load(file, results.find("2.14.1"))
    assert other.answer is not None
    assert other.answer.against.startswith("torch 2.14.1")
    assert RACE not in {change.race for change in other.answer.red}


def test_what_is_not_measured_is_said_with_the_command_that_measures_it(tmp_path, monkeypatch):
    file = written(tmp_path / "x.json", recorded_run(RACE))
    text = html.render(html.load(file))
    assert "python tests/benchmarks/memory.py --json" not in text
    assert "block-sparse (compiled)" in text

    monkeypatch.setattr(results, "folder", lambda device="cpu": tmp_path / device / "nothing")
    text = html.render(html.load(file))
    assert "python tests/benchmarks/memory.py --json" in text
    assert "python tests/benchmarks/fixes.py --json" in text
    assert "<figure>" not in text


def test_the_recorded_curves_are_what_their_names_say():
    (memory,) = [each for each in html.load(str(RECORDED)).memory if each.torch.startswith(TORCH)]
    assert list(memory.rows) == sorted(memory.rows)
    assert len(memory.rows) >= 5
    for length, row in memory.rows.items():
        assert row["sparse"] < row["bound"] <= row["dense"], length


def test_throughput_is_drawn_with_its_bounds(tmp_path, monkeypatch):
    row = {"fix": "lock", "ratio": 0.95, "low": 0.9, "high": 1.02, "recompiles": 3, "peak_bytes": 2**20}
    document = {
        **recorded_run(RACE),
        "rows": [{**row, "workload": "warm"}, {**row, "workload": "varying", "ratio": 0.91}],
        "pairs": 12,
        "threads": 3,
    }
    (tmp_path / "cpu").mkdir()
    written(tmp_path / "cpu" / f"throughput-torch-{TORCH}.json", document)
    monkeypatch.setattr(results, "folder", lambda device="cpu": tmp_path / device)
    page = html.load(written(tmp_path / "x.json", recorded_run(RACE)))

    (measured,) = page.throughput
    for bar in measured.picture.bars:
        assert bar.low < bar.value < bar.high
    assert measured.picture.bars[0].value < measured.picture.one < measured.picture.bars[0].high
    assert "0.900 to 1.020" in html.render(page)


# ---- pictures -----------------------------------------------------------------------------------------------------

TRACE = ["a:start#1>b", "b:start#1", "b:fx.trace#2", "b:end#1>a", "a:wait:LOCK#1", "a:end#1"]


def test_a_lane_for_each_thread_and_time_runs_down():
    drawn = pictures.lanes(TRACE, ["a:start#1>b taken", "b:fx.trace#2>a refused (a had ended)"])

    assert [name for name, _ in drawn.threads] == ["a", "b"]
    assert [(mark.text, mark.kind, mark.note) for mark in drawn.marks] == [
        ("start", "seam", "switch"),
        ("start", "seam", ""),
        ("fx.trace#2", "seam", "switch refused"),
        ("end", "seam", ""),
        ("wait:LOCK", "wait", ""),
        ("end", "seam", ""),
    ]
    assert [mark.y for mark in drawn.marks] == sorted({mark.y for mark in drawn.marks})
    # The first was asked for; at the second a thread had ended.
    assert [turn.switch for turn in drawn.turns] == [True, False]
    lanes = dict(drawn.threads)
    assert [(mark.x == lanes["a"]) for mark in drawn.marks] == [True, False, False, False, True, True]
    # No text runs into the next lane.
    assert lanes["b"] - lanes["a"] > pictures.LETTER * len("start   switch")
    assert drawn.width > lanes["b"] + pictures.LETTER * len("fx.trace#2   switch refused")


def test_of_a_long_stretch_the_middle_is_counted_and_no_switch_is_left_out():
    trace = [f"a:fx.trace#{n}" for n in range(1, 41)]
    trace[20] += ">b"
    drawn = pictures.lanes([*trace[:21], "b:start#1>a", *trace[21:]])

    texts = [mark.text for mark in drawn.marks]
    assert texts.count("15 more seams") == 1
    assert texts.count("14 more seams") == 1
    assert [mark.text for mark in drawn.marks if mark.note] == ["fx.trace#21", "start"]


def test_what_is_no_step_is_refused(tmp_path):
    document = recorded_run(RACE)
    document["cells"][0]["trace"] = ["nonsense"]
    with pytest.raises(ReportError, match=r"x.json: cell 1: 'nonsense' is not a step of a trace"):
        html.load(written(tmp_path / "x.json", document))


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1000, "1000 B"), (2**20, "1 MiB"), (305211113472, "284 GiB")]
)
def test_sizes(count, text):
    assert pictures.size(count) == text


# ---- the command --------------------------------------------------------------------------------------------------


def broken(**changes: Any) -> Any:
    return {**recorded_run(RACE), **changes}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "no field 'schema'"),
        (broken(schema=99), "schema 99 is not 1"),
        (broken(cells=[]), "no cell is in it, so there is nothing to report; give what matrix or run wrote"),
        ({**broken(), "cells": "x"}, "'cells' is of type str, not list"),
        (broken(cells=[3]), "no field 'race'"),
        (broken(cells=[{**recorded_run(RACE)["cells"][0], "verdict": "FINE"}]), "'FINE' is no verdict"),
        (broken(cells=[{**recorded_run(RACE)["cells"][0], "outcome": "fine"}]), "'fine' is not an outcome"),
        (broken(cells=[{**recorded_run(RACE)["cells"][0], "findings": [1]}]), "cell 1"),
        (broken(cells=[{**recorded_run(RACE)["cells"][0], "details": 1}]), "cell 1"),
        (broken(torch="zwei"), "'zwei' is not a version"),
    ],
)
def test_bad_input_is_told_in_one_line(tmp_path, capsys, document, message):
    file = written(tmp_path / "x.json", document)

    assert main(["report", file]) == 2

    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith("repro: ")
    assert message in said
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_what_cannot_be_read_or_written_is_told(tmp_path, capsys):
    file = written(tmp_path / "x.json", recorded_run(RACE))
    for arguments, message in (
        ([str(tmp_path / "none.json")], "No such file"),
        ([file, "-o", str(tmp_path / "no" / "x.html")], "give -o another file"),
        ([file, "-o", file], "written over"),
        ([file, "-o", "-", "--json", "-"], "standard output can take only one"),
        ([file, "--against", "1.0"], "nothing is recorded of torch 1.0"),
    ):
        assert main(["report", *arguments]) == 2, arguments
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(("name", "page"), [("run.json", "run.html"), ("2.13.0", "2.13.0.html")])
def test_without_a_place_the_page_is_beside_the_file(tmp_path, capsys, name, page):
    assert main(["report", written(tmp_path / name, recorded_run(RACE))]) == 0
    assert capsys.readouterr().out == f"written: {tmp_path / page}\n"
    assert (tmp_path / page).is_file()


def test_the_readme_and_the_help_name_the_commands_whose_files_a_page_is_made_of(capsys):
    main(["report", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert set(re.findall(r"\w+", told.partition("FILE what ")[2].partition(" wrote with")[0])) - {"or"} == set(
        html.WROTE
    )
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    sentence = readme.partition("what differs from what is recorded. It takes what ")[2].partition(" wrote with")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == set(html.WROTE)


def test_the_page_may_go_to_standard_output_and_its_summary_to_json(tmp_path, capsys):
    file = written(tmp_path / "x.json", recorded_run(RACE))
    assert main(["report", file, "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert main(["report", file, "--json", "-"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["command"], summary["cells"]) == ("report", 1)
    assert Path(summary["out"]).is_file()


# ---- in a browser -------------------------------------------------------------------------------------------------

_FOUND = pytest.mark.skipif(BROWSER is None, reason="no chromium and no google-chrome on the PATH")


def in_a_browser(test: Any) -> Any:
    """One browser does for all of them: they share a worker."""
    return pytest.mark.xdist_group("browser")(_FOUND(test))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(everything: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html.render(html.load(everything)), encoding="utf-8")
    return path


def visible(browser: Browser, selector: str) -> list[str]:
    items = f"[...document.querySelectorAll({json.dumps(selector)})]"
    return browser.value(f"{items}.filter(e => e.getClientRects().length).map(e => e.textContent.trim())")


@pytest.fixture
def press_until(browser: Browser) -> Callable[[str, str], None]:
    def press(key: str, condition: str) -> None:
        for _ in range(40):
            if browser.value(condition):
                return
            browser.press(key)
        raise AssertionError(f"{key} does not lead to {condition}")

    return press


@in_a_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_complains_nothing_is_loaded_and_nothing_runs_over_the_edge(browser, page, width, dark):
    browser.said.clear()
    browser.requests.clear()
    browser.open(page, width=width, dark=dark)
    browser.value("document.querySelectorAll('details').forEach(each => { each.open = true; })")

    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    assert browser.value("document.querySelectorAll('svg.lanes').length") > 30
    assert browser.said == []
    assert browser.requests == [page.as_uri()]


@in_a_browser
def test_dark_mode_is_dark_and_text_stands_out_in_both(browser, page):
    for dark in (False, True):
        browser.open(page, dark=dark)
        seen = browser.value(
            """[...document.querySelectorAll('body, .shown, .held, .unclear, .faint, a')].map(e => {
                let back = e;
                while (getComputedStyle(back).backgroundColor === 'rgba(0, 0, 0, 0)') back = back.parentElement;
                return [getComputedStyle(e).color, getComputedStyle(back).backgroundColor];
            })"""
        )
        contrasts = {pair: _contrast(*pair) for pair in {tuple(pair) for pair in seen}}
        assert min(contrasts.values()) >= 4.5, contrasts
        body = _luminance(browser.value("getComputedStyle(document.body).backgroundColor"))
        assert body < 0.05 if dark else body > 0.9


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@in_a_browser
def test_filters_work_by_keyboard(browser, page, press_until):
    browser.open(page)
    assert len(visible(browser, ".matrix tbody tr")) == len(races.names_on(["cpu"]))

    # Another release joins in, from those that are folded away.
    press_until("Tab", "document.activeElement.textContent.endsWith('recorded earlier')")
    browser.press("Enter")
    press_until("Tab", "document.activeElement.name === 'release' && document.activeElement.value.includes('2.14.1')")
    browser.press(" ")
    assert any("2.14.1" in row for row in visible(browser, ".matrix tbody tr"))

    press_until("Tab", "document.activeElement.name === 'race'")
    browser.press(*"flag-leak")
    assert [row[: len(RACE)] for row in visible(browser, ".matrix tbody th")] == [RACE, RACE]
    assert all(RACE in line for line in visible(browser, "details.cell > summary"))

    press_until("Tab", "document.activeElement.name === 'fix'")
    press_until("ArrowDown", "document.activeElement.value === 'lock'")
    assert visible(browser, ".matrix thead th") == ["race", "lock"]
    assert visible(browser, "details.cell > summary") == []
    press_until("Tab", "document.activeElement.type === 'reset'")
    browser.press("Enter")
    browser.value("new Promise(done => setTimeout(done))")
    assert len(visible(browser, ".matrix tbody tr")) == len(races.names_on(["cpu"]))


@in_a_browser
def test_a_cell_of_the_matrix_opens_its_run(browser, page, press_until):
    browser.open(page)
    press_until("Tab", "document.activeElement.name === 'race'")
    browser.press(*RACE)
    press_until("Tab", f"document.activeElement.getAttribute('href') === '#this-{RACE}-none'")
    browser.press("Enter")
    browser.value("new Promise(done => setTimeout(done))")

    assert browser.value(f"document.getElementById('this-{RACE}-none').open")
    assert browser.value("document.activeElement.tagName") == "SUMMARY"
    # The picture is drawn, and says what it shows to who cannot see it.
    assert browser.value(f"document.querySelector('#this-{RACE}-none svg.lanes use').getBBox().height") > 100
    assert "compiled:fx.trace#1>uncompiled" in browser.value(
        f"document.querySelector('#this-{RACE}-none svg.lanes').getAttribute('aria-label')"
    )


@in_a_browser
def test_it_can_be_read_without_seeing_it(browser, page):
    browser.open(page)
    assert browser.value("document.querySelectorAll('main, header, nav').length") == 3
    assert browser.value("[...document.querySelectorAll('table')].every(t => t.querySelector('th[scope=col]'))")
    unnamed = "[...document.querySelectorAll('select, input')].filter(e => !e.labels.length).length"
    assert browser.value(unnamed) == 0
    ids = "[...document.querySelectorAll('[id]')].map(e => e.id)"
    assert browser.value(f"new Set({ids}).size === {ids}.length")
    broken = (
        "[...document.querySelectorAll('a[href^=\"#\"]')].filter(a => !document.getElementById(decodeURIComponent("
    )
    assert browser.value(f"{broken}a.hash.slice(1)))).map(a => a.hash)") == []


def test_the_recorded_page_has_the_control_group_last():
    (table,) = [table for table in html.load(str(RECORDED)).tables if table.group == races.THREADS]
    assert table.columns[0] == NONE
    assert table.columns[-1] == PROCESSES
