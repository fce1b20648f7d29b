"""Expectation files: which entry counts for a release, and what a broken file says."""

from __future__ import annotations

import re

import pytest
from command_line import ROOT

from repro import races
from repro.expectations import ExpectationError, Expected, expected, fixtures
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
        ("", ": expected a list of [[release]] tables and nothing else"),
        ("release = []", ": expected a list of [[release]] tables and nothing else"),
        ("release = 'x'", ": expected a list of [[release]] tables and nothing else"),
        (f"more = 1\n{TWO_RANGES}", ": expected a list of [[release]] tables and nothing else"),
        ("release = [1]", ": [[release]] number 1: 1 is not a table"),
        (f"{TWO_RANGES}[[release]]\ntorhc = '>=2'", ": [[release]] number 3: unknown key 'torhc'; known are torch,"),
        ("[[release]]", ": [[release]] number 1: no torch range, such as"),
        ("[[release]]\ntorch = 'new'", ": [[release]] number 1: 'new' is not a version range (PEP 440)"),
        ("[[release]]\ntorch = 2.9", ": [[release]] number 1: 2.9 is not a version range (PEP 440)"),
        (ENTRY, ": [[release]] number 1: no [release.outcomes] table"),
        (f"{ENTRY}outcomes = 'ok'", ": [[release]] number 1: no [release.outcomes] table"),
        (f"{ENTRY}[release.outcomes]", ": [[release]] number 1: no [release.outcomes] table"),
        (
            f"{ENTRY}[release.outcomes]\nlock = 'fine'",
            ": [[release]] number 1: lock = 'fine' is not an outcome; those are ok, error, poisoned, dense,",
        ),
        (f"{ENTRY}[release.outcomes]\nlock = ['ok']", ": [[release]] number 1: lock = ['ok'] is not an outcome"),
        (
            "[[release]]\ntorch = '>=2.9'\n[release.outcomes]\nnone = 'error'",
            ": [[release]] number 1: something is expected to fail, so the upstream link is needed",
        ),
        (
            "[[release]]\ntorch = '>=2.9'\nupstream = 126024\n[release.outcomes]\nnone = 'error'",
            ": [[release]] number 1: upstream = 126024 is not a link",
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
