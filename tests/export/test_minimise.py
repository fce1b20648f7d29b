"""Minimising: what a race does not need goes, what it needs stays, and it never gets rarer."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from repro import export
from repro.export.minimise import minimise, without_hand_overs
from repro.export.script import Script
from repro.export.trial import Trial, run
from repro.interleave.shrink import Unsteady

BUG, CLEAN = Trial(1, "BUG: it"), Trial(0, "no bug")
LEAK = export.write(export.recorded("tracing-flag-leak"))
THREE = export.write(export.recorded("first-call"))


def needs(*parts: str, without: tuple[str, ...] = ()):
    """A torch that shows its race where the script has all of ``parts``, and fails anyhow without ``without``."""

    def run(text: str) -> Trial:
        if not all(part in text for part in without):
            return BUG
        return BUG if all(part in text for part in parts) else CLEAN

    return run


def scenario(script: Script) -> str:
    return script.text.partition("HAND_OVERS =")[2].partition("def test_fn")[0]


def test_what_the_race_does_not_need_goes():
    small = minimise(LEAK, times=1, run=needs('hand_over(1, "uncompiled"', "attention(query", "uncompiled():"))

    assert scenario(small).count("hand_over(") == 1
    assert "class Mask" not in small.text
    assert "256" not in small.text
    assert "create_block_mask" not in small.text
    # What it is judged by, and the turns, are as they were.
    assert small.text.partition("def test_fn")[2] == LEAK.text.partition("def test_fn")[2]


def test_what_it_needs_stays():
    parts = ['hand_over(2, "compiled"', "class Mask", "256, 32", "def uncompiled"]
    small = minimise(LEAK, times=1, run=needs(*parts))

    assert all(part in small.text for part in parts)


def test_what_fails_without_the_hand_overs_is_not_the_race():
    # Taking out the mask is a mistake that every run shows.
    small = minimise(LEAK, times=1, run=needs("hand_over(1", without=("mask = create_block_mask",)))

    assert "mask = create_block_mask" in small.text


def test_a_third_thread_goes_with_its_hand_overs():
    small = minimise(THREE, times=1, run=needs('hand_over(1, "first", to="second"'))

    assert "run_threads(first, second)" in small.text
    assert "third" not in scenario(small)
    assert "HAND_OVERS = 1\n" in small.text


def test_it_never_gets_rare():
    seen: Counter[str] = Counter()

    def run(text: str) -> Trial:
        seen[text] += 1
        if "hand_over(1" not in text:
            return CLEAN
        # Without the third thread it shows twice of three times.
        return BUG if "third" in text or seen[text] % 3 else CLEAN

    assert "third)" in minimise(THREE, times=3, run=run).text


def test_each_step_is_a_program():
    def run(text: str) -> Trial:
        compile(text, "script.py", "exec")
        numbers = {int(number) for number in re.findall(r"hand_over\((\d+), ", text)}
        assert f"HAND_OVERS = {len(numbers)}\n" in text
        assert numbers == set(range(1, len(numbers) + 1))
        return BUG if "hand_over(1" in text else CLEAN

    minimise(LEAK, times=1, run=run)


@pytest.mark.parametrize("run", [lambda text: CLEAN, lambda text: BUG], ids=["never shows", "always shows"])
def test_what_does_not_pass_to_begin_with_is_refused(run):
    with pytest.raises(Unsteady, match="cannot be minimised"):
        minimise(LEAK, times=1, run=run)


def test_the_control_has_the_threads_and_no_hand_over():
    control = without_hand_overs(THREE.text)

    assert "HAND_OVERS = 0\n" in control
    assert "run_threads(first, second, third)" in control
    assert run(control).clean


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_a_real_race_gets_smaller_and_still_shows():
    script = export.write(export.recorded("patcher-bystander"))
    small = minimise(script, times=3)

    assert len(small.text) < len(script.text)
    assert [run(small.text).shown for _ in range(10)] == [True] * 10


def test_what_shares_a_line_is_left_there():
    text = LEAK.text.replace(
        "def compiled():\n    attention(query, key, value, mask)",
        "def compiled(): attention(query, key, value, mask)",
    )
    assert text != LEAK.text
    small = minimise(replace(LEAK, text=text), times=1, run=needs('hand_over(1, "uncompiled"', "def compiled(): att"))

    assert "def compiled(): attention(" in small.text
