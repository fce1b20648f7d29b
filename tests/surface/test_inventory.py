"""Each form in which code changes what the process shares, on packages whose answer is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from packages import inventory, only, write

from repro.surface.inventory import Nothing, dumps, loads, take

BORROWED = {
    "saved, around a yield": """
        from contextlib import contextmanager
        FLAG = False
        @contextmanager
        def entry():
            global FLAG
            old = FLAG
            FLAG = True
            yield
            FLAG = old
    """,
    "saved, in a try and a finally": """
        FLAG = False
        def entry(call):
            global FLAG
            old = FLAG
            FLAG = True
            try:
                return call()
            finally:
                FLAG = old
    """,
    "saved, and put back without a finally": """
        FLAG = False
        def entry(call):
            global FLAG
            old, FLAG = FLAG, True
            call()
            FLAG = old
    """,
    "by enter and exit": """
        FLAG = False
        class entry:
            def __enter__(self):
                global FLAG
                self.old = FLAG
                FLAG = True
            def __exit__(self, *error):
                global FLAG
                FLAG = self.old
    """,
    "by a setter that tells the old value": """
        FLAG = False
        def _set(value):
            global FLAG
            prior = FLAG
            FLAG = value
            return prior
        class entry:
            def __init__(self, value):
                self.old = _set(value)
            def __exit__(self, *error):
                _set(self.old)
    """,
    "by a setter, in a finally": """
        FLAG = False
        def _set(value):
            global FLAG
            FLAG = value
        def _get():
            return FLAG
        def entry(call):
            old = _get()
            _set(True)
            try:
                call()
            finally:
                _set(old)
    """,
    "an item of a dict": """
        FLAG = {}
        from contextlib import contextmanager
        @contextmanager
        def entry(key):
            had = FLAG.get(key)
            FLAG[key] = True
            try:
                yield
            finally:
                FLAG[key] = had
    """,
}


@pytest.mark.parametrize("source", BORROWED.values(), ids=BORROWED)
def test_what_is_put_back_is_borrowed(source: str, tmp_path: Path) -> None:
    found = only(tmp_path, source)

    assert (found.name, found.danger, found.home) == ("toy.state.FLAG", "save-restore", "process")
    assert found.writers["toy.state:entry"] == "swap"
    assert found.suspect


def test_what_is_put_back_to_something_fixed_is_a_bracket(tmp_path: Path) -> None:
    found = only(
        tmp_path,
        """
        BUSY = False
        def entry(call):
            global BUSY
            BUSY = True
            try:
                call()
            finally:
                BUSY = False
        """,
    )
    assert (found.danger, dict(found.writers)) == ("save-restore", {"toy.state:entry": "bracket"})


OTHERS = {
    "counter": """
        COUNT = 0
        def entry():
            global COUNT
            COUNT += 1
    """,
    "lazy": """
        MADE = None
        def entry():
            global MADE
            if MADE is None:
                MADE = object()
            return MADE
    """,
    "cache": """
        CACHE = {}
        def entry(key):
            try:
                return CACHE[key]
            except KeyError:
                CACHE[key] = key
    """,
    "setting": """
        LEVEL = 0
        def entry(level):
            global LEVEL
            LEVEL = level
    """,
}


@pytest.mark.parametrize("danger", OTHERS)
def test_what_is_not_put_back_has_a_class_of_its_own(danger: str, tmp_path: Path) -> None:
    found = only(tmp_path, OTHERS[danger])
    assert found.danger == danger
    assert not found.suspect


WRITES = {
    "another module's, by its path": """
        import toy.other
        def entry():
            toy.other.VALUE = 1
    """,
    "another module's, imported": """
        from toy import other
        def entry():
            other.VALUE = 1
    """,
    "another module's, imported relatively": """
        from . import other as alias
        def entry():
            alias.VALUE = 1
    """,
    "imported within the function": """
        def entry():
            import toy.other as here
            here.VALUE = 1
    """,
    "by setattr": """
        from toy import other
        def entry():
            setattr(other, "VALUE", 1)
    """,
    "by a local alias": """
        import toy.other
        def entry():
            module = toy.other
            module.VALUE = 1
    """,
    "deleted": """
        from toy import other
        def entry():
            del other.VALUE
    """,
}


@pytest.mark.parametrize("source", WRITES.values(), ids=WRITES)
def test_a_write_is_found_wherever_it_stands(source: str, tmp_path: Path) -> None:
    found = inventory(tmp_path, state=source, other="VALUE = 0")
    assert list(found.globals) == ["toy.other.VALUE"]
    assert list(found.globals["toy.other.VALUE"].writers) == ["toy.state:entry"]


CHANGES = {
    "a method": "ITEMS.append(1)",
    "an item": "ITEMS[0] = 1",
    "an item taken out": "del ITEMS[0]",
    "a part of it": "ITEMS[0].update({})",
    "through a local": "local = ITEMS; local.clear()",
    "through what get returns": "ITEMS.get(0).update({})",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_container_is_found(change: str, tmp_path: Path) -> None:
    found = only(tmp_path, f"ITEMS = {{}}\ndef entry():\n    {change}\n")
    assert (found.name, found.danger) == ("toy.state.ITEMS", "cache")


@pytest.mark.parametrize(
    "method",
    [
        "@classmethod\n    def entry(cls): cls.COUNT = 1",
        "def entry(self): type(self).COUNT = 1",
        "def entry(self): self.__class__.COUNT = 1",
        "def entry(self): Kept.COUNT = 1",
    ],
)
def test_an_attribute_of_a_class_is_shared(method: str, tmp_path: Path) -> None:
    source = f"class Kept:\n    COUNT = 0\n    {method}\n"
    assert only(tmp_path, source).name == "toy.state.Kept.COUNT"


def test_an_attribute_of_an_instance_is_not_unless_there_is_one_instance(tmp_path: Path) -> None:
    source = "class Kept:\n    def __init__(self):\n        self.x = 0\n    def entry(self):\n        self.x = 1\n"
    assert not inventory(tmp_path / "many", state=source).globals
    assert only(tmp_path / "one", source + "THE_ONE = Kept()\n").name == "toy.state.THE_ONE.x"


def test_a_method_that_is_replaced_for_a_while_is_borrowed(tmp_path: Path) -> None:
    found = inventory(
        tmp_path,
        state="""
        class Module:
            def call(self): ...
        """,
        other="""
        from toy.state import Module
        class Patcher:
            def __enter__(self): ...
            def __exit__(self, *error): ...
        def entry(new):
            with Patcher() as patcher:
                patcher.patch_method(Module, "call", new)
        """,
    )
    one = found.globals["toy.state.Module.call"]
    assert (one.kind, one.danger, one.suspect) == ("function", "save-restore", True)


@pytest.mark.parametrize(
    ("home", "made"),
    [
        ("thread", "import threading\nOWN = threading.local()"),
        ("thread", "import threading\nclass Mine(threading.local):\n    x = 0\nOWN = Mine()"),
        ("process", "class Mine:\n    x = 0\nOWN = Mine()"),
    ],
)
def test_what_a_thread_has_for_itself_is_told_apart(home: str, made: str, tmp_path: Path) -> None:
    found = only(tmp_path, f"{made}\ndef entry():\n    OWN.x = 1\n")
    assert (found.name, found.home) == ("toy.state.OWN.x", home)


def test_a_context_variable_belongs_to_a_context(tmp_path: Path) -> None:
    source = "from contextvars import ContextVar\nOWN = ContextVar('OWN')\ndef entry():\n    OWN.set(1)\n"
    assert only(tmp_path, source).home == "context"


@pytest.mark.parametrize(("home", "line"), [("context", "from contextvars import ContextVar"), ("process", "")])
def test_a_module_that_hands_itself_over_is_kept_where_the_installer_keeps_it(
    home: str, line: str, tmp_path: Path
) -> None:
    found = inventory(
        tmp_path,
        installer=f"{line}\ndef install(module): ...",
        config="import sys\nfrom toy.installer import install\nlimit = 8\ninstall(sys.modules[__name__])",
        state="from toy import config\ndef entry():\n    with config.patch(limit=64):\n        pass\n",
    )
    one = found.globals["toy.config.limit"]
    assert (one.home, dict(one.writers)) == (home, {"toy.state:entry": "swap"})


LOCKED = """
import threading
GUARD = threading.Lock()
FLAG = False
def entry(call):
    global FLAG
    with GUARD:
        old, FLAG = FLAG, True
        try:
            call()
        finally:
            FLAG = old
"""


def test_a_lock_that_every_writer_holds_is_told_and_clears(tmp_path: Path) -> None:
    found = only(tmp_path / "all", LOCKED)
    assert (found.danger, found.lock, found.suspect) == ("save-restore", "toy.state.GUARD", False)
    found = only(tmp_path / "not all", LOCKED + "def other():\n    global FLAG\n    FLAG = None\n")
    assert (found.lock, found.suspect) == ("", True)


def test_readers_are_told_from_those_who_decide_and_through_what_tells(tmp_path: Path) -> None:
    found = only(
        tmp_path,
        BORROWED["saved, in a try and a finally"]
        + """
        def told():
            return FLAG
        def prints():
            print(FLAG)
        def decides():
            if told():
                return 1
        """,
    )
    assert found.readers == ("toy.state:prints", "toy.state:told")
    assert found.deciders == ("toy.state:decides",)


def test_what_no_entry_may_call_is_no_suspect(tmp_path: Path) -> None:
    source = BORROWED["saved, around a yield"]
    assert inventory(tmp_path / "a", state=source, entries=("entry",)).globals["toy.state.FLAG"].suspect
    assert not inventory(tmp_path / "b", state=source, entries=("nobody",)).globals["toy.state.FLAG"].suspect
    called = "from toy import state\ndef outer():\n    with state.entry():\n        pass\n"
    found = inventory(tmp_path / "c", state=source, other=called, entries=("outer",))
    assert found.globals["toy.state.FLAG"].suspect


def test_python_s_own_state_is_seen_too(tmp_path: Path) -> None:
    found = only(tmp_path, "import warnings\ndef entry():\n    with warnings.catch_warnings():\n        pass\n")
    assert (found.name, found.danger) == ("warnings.filters", "save-restore")


def test_a_local_of_the_same_name_is_none(tmp_path: Path) -> None:
    source = "FLAG = False\ndef entry(FLAG):\n    FLAG = True\ndef other():\n    FLAG = 1\n    FLAG += 1\n"
    assert not inventory(tmp_path, state=source).globals


def test_the_most_dangerous_come_first(tmp_path: Path) -> None:
    modules = {**OTHERS} | {"borrowed": BORROWED["saved, around a yield"]}
    ranked = inventory(tmp_path, **modules).ranked()
    assert [one.danger for one in ranked] == ["save-restore", "setting", "cache", "lazy", "counter"]


def test_a_file_that_is_not_python_is_passed_over(tmp_path: Path) -> None:
    found = inventory(tmp_path, state=OTHERS["counter"], broken="def")
    assert list(found.globals) == ["toy.state.COUNT"]


def test_an_inventory_is_the_same_when_read_again_and_has_a_line_a_global(tmp_path: Path) -> None:
    found = inventory(tmp_path, state=BORROWED["an item of a dict"], other=OTHERS["counter"])
    head = {"schema": 1, "seeds": []}
    text = dumps(found, head)
    assert dumps(loads(text), head) == text
    assert text.count("\n") == len(found.globals) + 2


def test_nothing_is_loud(tmp_path: Path) -> None:
    with pytest.raises(Nothing, match="holds none of"):
        take(write(tmp_path), ["toy.absent"], (), "1.0")
