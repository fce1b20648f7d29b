"""Standing inside a function, on a module whose functions borrow in every form."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from packages import write

from repro.surface.accesses import Place, places
from repro.surface.inventory import take
from repro.surface.points import Points, spots
from repro.surface.source import Source

STATE = """
    from contextlib import contextmanager
    from unittest import mock

    FLAG = "before"

    class Class:
        attribute = "before"

    @contextmanager
    def managed():
        global FLAG
        old = FLAG
        FLAG = "inside"
        try:
            yield
        finally:
            FLAG = old

    def function(call):
        global FLAG
        old = FLAG
        FLAG = "inside"
        try:
            return call()
        finally:
            FLAG = old

    class Manager:
        def __enter__(self):
            global FLAG
            self.old = FLAG
            FLAG = "inside"

        def __exit__(self, *error):
            global FLAG
            FLAG = self.old

    def patched(call):
        with mock.patch.object(Class, "attribute", "inside"):
            return call()

    @mock.patch("toy.state.FLAG", "inside")
    def decorated(call):
        return call()

    def outer(call):
        def inner():
            global FLAG
            old, FLAG = FLAG, "inside"
            try:
                return call()
            finally:
                FLAG = old

        return inner()
"""


def managed(state: ModuleType) -> None:
    with state.managed():
        pass


def manager(state: ModuleType) -> None:
    with state.Manager():
        pass


RUN = {
    "managed": managed,
    "function": lambda state: state.function(int),
    "Manager": manager,
    "patched": lambda state: state.patched(int),
    "decorated": lambda state: state.decorated(int),
    "outer.inner": lambda state: state.outer(int),
}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = write(tmp_path, state=STATE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield root
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        del sys.modules[name]


def walked(root: Path) -> list[Place]:
    source = Source(root)
    module = source.module("toy.state")
    assert module is not None
    return list(places(source, module, {}))


@pytest.mark.parametrize("borrower", RUN)
def test_a_thread_stands_after_the_change_and_before_it_is_put_back(borrower: str, toy: Path) -> None:
    inventory = take(toy, ["toy"], ["entry"], "1.0")
    (name,) = [one.name for one in inventory.globals.values() if f"toy.state:{borrower}" in one.writers]
    found = spots(walked(toy), inventory.globals[name], f"toy.state:{borrower}")
    state = importlib.import_module("toy.state")
    seen: list[tuple[str, bool, str]] = []

    def value() -> str:
        return str(state.Class.attribute if name.endswith("attribute") else state.FLAG)

    points = Points({name: found}, lambda name, out: seen.append((name, out, value())))
    with points:
        RUN[borrower](state)
    RUN[borrower](state)

    assert not points.lost
    assert seen == [(name, False, "inside"), (name, True, "inside")]
    assert value() == "before"


def test_a_place_that_is_not_there_is_lost_and_said(toy: Path) -> None:
    inventory = take(toy, ["toy"], ["entry"], "1.0")
    one = inventory.globals["toy.state.FLAG"]
    found = spots(walked(toy), one, "toy.state:function")
    (toy / "state.py").write_text("def function(call): return call()\n")
    points = Points({one.name: found}, lambda name, out: None)
    with points:
        pass
    assert "was not found again" in points.lost[one.name]
