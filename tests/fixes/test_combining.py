"""Fixes joined by ``+``: what each part does is done, in the order of the names; what cannot go together is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.fixes import COMBINED, THREADS, UnknownFix, apart, check, load, names, suits, summary

NOTING = """
from repro import fixes

SEEN = []

def guard(function):
    return lambda *args: ["{name}", *function(*args)]

def thread(body):
    return lambda: ["{name}", *body()]

def before_threads(attention, examples):
    attention("{name}", len(list(examples)))
"""


@pytest.fixture
def noting(tmp_path: Path) -> str:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(NOTING.format(name=name), encoding="utf-8")
    return f"{tmp_path / 'one.py'}+{tmp_path / 'two.py'}"


def test_the_first_guard_is_outermost(noting: str) -> None:
    fix = load(noting)

    assert fix.guard(lambda: ["inside"])() == ["one", "two", "inside"]
    assert fix.guard_attention(lambda: ["inside"])() == ["one", "two", "inside"]
    assert fix.thread(lambda: ["inside"])() == ["one", "two", "inside"]


def test_every_part_prepares_with_all_examples(noting: str) -> None:
    calls: list[tuple[str, int]] = []

    load(noting).before_threads(lambda name, count: calls.append((name, count)), iter([(1,), (2,)]))

    assert calls == [("one", 2), ("two", 2)]


def test_attention_has_a_guard_of_its_own_only_where_a_fix_has_one(noting: str, tmp_path: Path) -> None:
    special = tmp_path / "special.py"
    special.write_text("def guard_attention(function):\n    return lambda: ['special', *function()]\n")
    fix = load(f"{noting}+{special}")

    assert fix.guard_attention(list)() == ["one", "two", "special"]
    assert fix.guard(list)() == ["one", "two"]


def test_a_combination_promises_what_its_best_part_promises() -> None:
    assert load("lock+warmup+dynamic").promised_compiles(3) == 0
    assert load("lock+dynamic").promised_compiles(3) == 1
    assert load("lock").promised_compiles(3) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lock+lock", "lock+lock has lock twice: once will do"),
        ("none+lock", "none is no fix at all, and goes with none: leave it out"),
        ("lock+", "no fix is called ''; there are: none, "),
        ("lock+loch", "no fix is called 'loch'; did you mean lock"),
        ("dynamic+own-code", "dynamic and own-code each say how attention is compiled: take one of them"),
        ("lock+file-lock", "lock+file-lock is no fix for races of threads; those are: context, "),
        ("lock+missing.py", "no such fix file: missing.py"),
    ],
)
def test_what_cannot_be_combined_is_said_in_a_line(name: str, message: str) -> None:
    with pytest.raises(UnknownFix) as refused:
        check(name, THREADS)

    assert str(refused.value).startswith(message)


def test_a_file_whose_name_has_a_plus_is_one_file(tmp_path: Path) -> None:
    file = tmp_path / "a+b.py"
    file.write_text("def thread(body):\n    return body\n")

    check(str(file), THREADS)


@pytest.mark.parametrize("name", [*COMBINED, *apart()])
def test_everything_that_is_measured_can_be_loaded_by_name(name: str) -> None:
    check(name, THREADS)
    assert suits(name, THREADS)
    assert summary(name).endswith(".")
    assert (name in names()) is (name in COMBINED)
