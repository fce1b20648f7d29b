"""What changed between two packages whose difference is known."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from packages import inventory
from test_inventory import BORROWED, OTHERS

from repro.surface.diff import between

FLAG = dedent(BORROWED["saved, in a try and a finally"])
READ = FLAG + "def told():\n    return FLAG\n"
SET = FLAG + "def other():\n    global FLAG\n    FLAG = 1\n"
SETTING = dedent(OTHERS["setting"]).replace("LEVEL", "FLAG")
OWN = """
import threading
OWN = threading.local()
def told():
    return OWN.flag
def entry(call):
    OWN.flag = True
"""


@pytest.mark.parametrize(
    ("old", "new", "kind", "words"),
    [
        ("", FLAG, "new", "save-restore by toy.state:entry"),
        (FLAG, "", "gone", "was save-restore by toy.state:entry"),
        (READ, OWN, "moved", "now a thread's: toy.state.OWN.flag"),
        (FLAG, READ, "reader", "read by toy.state:told"),
        (FLAG, SET, "writer", "toy.state:other (set)"),
        (SETTING, FLAG, "worse", "was setting by toy.state:entry, now save-restore"),
        (FLAG, SETTING, "better", "now setting"),
    ],
)
def test_each_kind_of_change_is_told(old: str, new: str, kind: str, words: str, tmp_path: Path) -> None:
    found = between(inventory(tmp_path / "old", state=old), inventory(tmp_path / "new", state=new))
    (change,) = found.changes
    assert (change.kind, change.name) == (kind, "toy.state.FLAG")
    assert words in change.what
    assert change.suspect


def test_what_was_a_thread_s_and_is_shared_again_is_told(tmp_path: Path) -> None:
    shared = OWN.replace("threading.local()", "object()").replace("import threading", "")
    old, new = inventory(tmp_path / "old", state=OWN), inventory(tmp_path / "new", state=shared)
    assert "shared" in {change.kind for change in between(old, new).changes}
