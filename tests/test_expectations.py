"""Expectation files: which entry counts for a release, and what a broken file says."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import tomlkit
from command_line import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from repro import races, results
from repro.expectations import ExpectationError, Expected, expected, fixtures, update
from repro.outcome import Kind

LINK = "https://example.org/1"
TWO_RANGES = f"""
[[release]]
torch = ">=2.9,<2.14"
upstream = "{LINK}"
[release.outcomes]
none = "poisoned"
lock = "ok"

[[release]]
torch = ">=2.14"
[release.outcomes]
none = "ok"
"""


def written(folder, text):
    (folder / "race.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("fix", "torch", "known"),
    [
        ("none", "2.9.1", Expected(Kind.POISONED, LINK)),
        ("none", "2.13.0+cpu", Expected(Kind.POISONED, LINK)),
        ("lock", "2.13.0", Expected(Kind.OK, LINK)),
        # A build before the release belongs to it, and the last range to all that is to come.
        ("none", "2.14.0.dev20260101+cu130", Expected(Kind.OK, None)),
        ("none", "2.99.0", Expected(Kind.OK, None)),
        ("lock", "2.14.0", None),
        ("none", "2.8.0", None),
    ],
)
def test_the_first_range_that_holds_the_release_counts(tmp_path, fix, torch, known):
    assert expected("race", fix, torch, written(tmp_path, TWO_RANGES)) == known


def test_a_race_without_a_file_has_no_expectation(tmp_path):
    assert expected("race", "none", "2.13.0", tmp_path) is None


def test_the_fixtures_of_a_checkout_are_those_beside_the_package():
    assert fixtures() == ROOT / "fixtures"
    assert sorted(path.stem for path in (fixtures() / "expectations").iterdir()) == races.names()


ENTRY = f'[[release]]\ntorch = ">=2.9"\nupstream = "{LINK}"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[release", ": not valid TOML: "),
        ("", ":1: expected a list of [[release]] tables and nothing else"),
        ("release = []", ":1: expected a list of [[release]] tables and nothing else"),
        ("release = 'x'", ":1: expected a list of [[release]] tables and nothing else"),
        (f"more = 1\n{TWO_RANGES}", ":1: expected a list of [[release]] tables and nothing else"),
        ("release = [1]", ":1: [[release]] number 1: 1 is not a table"),
        (
            f"{TWO_RANGES}[[release]]\ntorhc = '>=2'",
            ":14: [[release]] number 3: unknown key 'torhc'; known are",
        ),
        ("[[release]]", ":1: [[release]] number 1: no torch range, such as"),
        ("[[release]]\ntorch = 'new'", ":2: [[release]] number 1: 'new' is not a version range (PEP 440)"),
        ("[[release]]\ntorch = 2.9", ":2: [[release]] number 1: 2.9 is not a version range (PEP 440)"),
        (ENTRY, ":1: [[release]] number 1: no [release.outcomes] table"),
        (f"{ENTRY}outcomes = 'ok'", ":4: [[release]] number 1: no [release.outcomes] table"),
        (f"{ENTRY}[release.outcomes]", ":1: [[release]] number 1: no [release.outcomes] table"),
        (
            f"{ENTRY}[release.outcomes]\nlock = 'fine'",
            ":5: [[release]] number 1: lock = 'fine' is not an outcome; those are ok, error, poisoned, dense,",
        ),
        (f"{ENTRY}[release.outcomes]\nlock = ['ok']", ":5: [[release]] number 1: lock = ['ok'] is not an outcome"),
        (
            "[[release]]\ntorch = '>=2.9'\n[release.outcomes]\nnone = 'error'",
            ":1: [[release]] number 1: something is expected to fail, so the upstream link is needed",
        ),
        (
            "[[release]]\ntorch = '>=2.9'\nupstream = 126024\n[release.outcomes]\nnone = 'error'",
            ":3: [[release]] number 1: upstream = 126024 is not a link",
        ),
    ],
)
def test_a_broken_file_is_named_with_the_place(tmp_path, text, message):
    with pytest.raises(ExpectationError, match=re.escape(f"{tmp_path / 'race.toml'}{message}")):
        expected("race", "none", "2.13.0", written(tmp_path, text))


def test_a_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "race.toml").write_bytes(b"\xff")
    with pytest.raises(ExpectationError, match=r"race\.toml: not valid TOML: "):
        expected("race", "none", "2.13.0", tmp_path)


# ---- writing -----------------------------------------------------------------------------------------------------

COMMENTED = f"""# Why it is so.

# up to the mend
[[release]]
torch = ">=2.9,<2.14"  # two years
upstream = "{LINK}"
[release.outcomes]
none = "poisoned" # the mark
lock = "ok"
# more of the old

# since the mend
[[release]]
torch = ">=2.14"
[release.outcomes]
none = "ok"
lock = "ok"
"""
OTHER = "https://example.org/2"


def ranges(folder) -> list[tuple[str, dict[str, str]]]:
    tables = tomlkit.parse((folder / "race.toml").read_text(encoding="utf-8")).unwrap()["release"]
    return [(table["torch"], table["outcomes"]) for table in tables]


def comments(text: str) -> list[str]:
    return sorted(re.findall(r"#.*", text))


def test_what_is_as_expected_changes_no_byte(tmp_path):
    written(tmp_path, COMMENTED)
    seen = {"none": Kind.POISONED, "lock": Kind.OK}
    assert not update("race", "2.13.0+cpu", seen, link=lambda: OTHER, recorded=["2.13.0"], folder=tmp_path)
    assert (tmp_path / "race.toml").read_text(encoding="utf-8") == COMMENTED


def test_another_outcome_takes_effect_from_its_release_up_to_the_next_recorded_one(tmp_path):
    written(tmp_path, COMMENTED)
    recorded = ["2.9.1", "2.11.0", "2.12.1", "2.14.1"]
    assert update("race", "2.11.0", {"none": Kind.DENSE}, link=lambda: OTHER, recorded=recorded, folder=tmp_path)
    assert ranges(tmp_path) == [
        (">=2.9,<2.11.0", {"none": "poisoned", "lock": "ok"}),
        (">=2.11.0,<2.12.1", {"none": "dense", "lock": "ok"}),
        (">=2.12.1,<2.14", {"none": "poisoned", "lock": "ok"}),
        (">=2.14", {"none": "ok", "lock": "ok"}),
    ]
    # The link of the range that it came from, and every comment.
    assert expected("race", "none", "2.11.0", tmp_path) == Expected(Kind.DENSE, LINK)
    assert comments((tmp_path / "race.toml").read_text(encoding="utf-8")) == comments(COMMENTED)


def test_taking_it_back_joins_the_ranges_again(tmp_path):
    written(tmp_path, COMMENTED)
    recorded = ["2.9.1", "2.11.0", "2.12.1", "2.14.1"]
    for kind in (Kind.DENSE, Kind.POISONED):
        update("race", "2.11.0", {"none": kind}, link=lambda: OTHER, recorded=recorded, folder=tmp_path)
    assert (tmp_path / "race.toml").read_text(encoding="utf-8") == COMMENTED


def test_the_last_range_stays_open_and_a_failure_there_gets_the_link_of_the_race(tmp_path):
    written(tmp_path, COMMENTED)
    update("race", "2.15.0", {"lock": Kind.HANG}, link=lambda: OTHER, recorded=["2.14.1"], folder=tmp_path)
    assert ranges(tmp_path)[1:] == [
        (">=2.14,<2.15.0", {"none": "ok", "lock": "ok"}),
        (">=2.15.0", {"none": "ok", "lock": "hang"}),
    ]
    assert expected("race", "lock", "2.99", tmp_path) == Expected(Kind.HANG, OTHER)


def test_a_release_that_is_like_the_range_before_it_joins_that(tmp_path):
    written(tmp_path, COMMENTED)
    update("race", "2.14.0", {"none": Kind.POISONED}, link=lambda: OTHER, recorded=["2.14.1"], folder=tmp_path)
    assert [torch for torch, _ in ranges(tmp_path)] == [">=2.9,<2.14.1", ">=2.14.1"]
    assert comments((tmp_path / "race.toml").read_text(encoding="utf-8")) == comments(COMMENTED)


def test_the_comments_of_a_table_that_is_joined_to_another_stay(tmp_path):
    written(tmp_path, COMMENTED)
    update("race", "2.13.0", {"none": Kind.OK}, link=lambda: None, folder=tmp_path)
    update("race", "2.9", {"none": Kind.OK}, link=lambda: None, folder=tmp_path)
    assert [torch for torch, _ in ranges(tmp_path)] == [">=2.9"]
    assert comments((tmp_path / "race.toml").read_text(encoding="utf-8")) == comments(COMMENTED)


def test_a_fix_that_is_new_is_added_and_nothing_is_lost(tmp_path):
    written(tmp_path, COMMENTED)
    update("race", "2.13.0", {"spawn": Kind.OK}, link=lambda: None, recorded=["2.13.0", "2.14.1"], folder=tmp_path)
    assert ranges(tmp_path)[0] == (">=2.9,<2.14", {"none": "poisoned", "lock": "ok", "spawn": "ok"})
    update("race", "2.14.1", {"spawn": Kind.OK}, link=lambda: None, recorded=["2.13.0", "2.14.1"], folder=tmp_path)
    assert ranges(tmp_path)[1] == (">=2.14", {"none": "ok", "lock": "ok", "spawn": "ok"})


def test_a_race_without_a_file_gets_one(tmp_path):
    assert update("race", "2.13.0", {"none": Kind.ERROR}, link=lambda: OTHER, folder=tmp_path)
    update("race", "2.11.0", {"none": Kind.OK}, link=lambda: OTHER, recorded=["2.13.0"], folder=tmp_path)
    assert ranges(tmp_path) == [(">=2.11.0,<2.13.0", {"none": "ok"}), (">=2.13.0", {"none": "error"})]


def test_ranges_of_another_form_are_left_alone_and_the_release_goes_before_them(tmp_path):
    text = COMMENTED.replace(">=2.9,<2.14", "~=2.9,!=2.12.*,<2.14")
    written(tmp_path, text)
    update("race", "2.13.0", {"none": Kind.HANG}, link=lambda: OTHER, folder=tmp_path)
    assert [torch for torch, _ in ranges(tmp_path)] == ["==2.13.0", "~=2.9,!=2.12.*,<2.14", ">=2.14"]
    update("race", "2.13.0", {"none": Kind.ERROR}, link=lambda: OTHER, folder=tmp_path)
    assert expected("race", "none", "2.13.0", tmp_path) == Expected(Kind.ERROR, LINK)
    assert expected("race", "none", "2.11.0", tmp_path) == Expected(Kind.POISONED, LINK)
    assert comments((tmp_path / "race.toml").read_text(encoding="utf-8")) == comments(text)


def test_a_failure_without_any_link_is_refused_and_nothing_is_written(tmp_path):
    text = TWO_RANGES[TWO_RANGES.rindex("[[release]]") :]
    written(tmp_path, text)
    with pytest.raises(ExpectationError, match=r"race\.toml: fails on 2\.14\.1, and the race has no upstream link"):
        update("race", "2.14.1", {"none": Kind.ERROR}, link=lambda: None, folder=tmp_path)
    assert (tmp_path / "race.toml").read_text(encoding="utf-8") == text


def test_tables_that_are_written_in_one_line_cannot_be_updated(tmp_path):
    written(tmp_path, 'release = [{torch = ">=2.9", outcomes = {none = "ok"}}]\n')
    with pytest.raises(ExpectationError, match=r"race\.toml:1: write each release as a \[\[release\]\] table"):
        update("race", "2.14.1", {"none": Kind.OK}, link=lambda: None, folder=tmp_path)


def test_the_files_of_the_project_are_rewritten_without_a_change():
    folder = fixtures() / "expectations"
    for race in races.names_on(["cpu"]):
        for torch in sorted({str(record.version) for record in results.recorded()}):
            known = expected(race, "none", torch)
            assert known is not None
            assert not update(race, torch, {"none": known.outcome}, link=lambda: None, folder=folder)


RELEASES = ["2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0"]
FIXES = ["none", "lock", "warmup"]
KINDS = st.sampled_from([Kind.OK, Kind.ERROR, Kind.DENSE])


@settings(max_examples=50)
@given(
    start=st.sampled_from(["", COMMENTED, COMMENTED.replace("\n[[release]]", "\n\n\n[[release]]")]),
    steps=st.lists(
        st.tuples(st.sampled_from(RELEASES), st.dictionaries(st.sampled_from(FIXES), KINDS, min_size=1)), max_size=12
    ),
)
def test_every_recorded_release_keeps_what_was_last_said_of_it(tmp_path_factory, start, steps):
    folder: Path = tmp_path_factory.mktemp("expectations")
    if start:
        written(folder, start)
    said: dict[str, dict[str, Kind]] = {}
    for release, seen in steps:
        update("race", release, seen, link=lambda: OTHER, recorded=[*said], folder=folder)
        said.setdefault(release, {}).update(seen)
        for torch, outcomes in said.items():
            for fix, kind in outcomes.items():
                known = expected("race", fix, torch, folder)
                assert known is not None
                assert known.outcome is kind, (torch, fix)
    if steps:
        text = (folder / "race.toml").read_text(encoding="utf-8")
        assert comments(text) == comments(start)
        found = ranges(folder)
        # The newest is open, and no two neighbours say the same.
        assert "<" not in found[-1][0]
        neighbours = [a for a, b in itertools.pairwise(found) if a[1] == b[1]]
        assert not (start == "" and neighbours)
