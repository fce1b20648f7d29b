from __future__ import annotations

import inspect

import pytest
import subject

from repro.interleave import LostSeam, Schedule, Scheduler, Seam, Seams
from repro.interleave.locks import ModelledLock
from repro.interleave.patches import NotRestored
from repro.interleave.replay import Replay


@pytest.fixture(autouse=True)
def _fresh_log():
    subject.log.clear()


def seam(path, where, name="here", **more):
    return Seam(name, f"subject:{path}", where, **more)


def trace(seams, body):
    """What was logged and which seams were reached, in order; and the value."""

    class Watching:
        def choose(self, thread, name, visit, ready):
            if thread == "a" and name not in ("start", "end"):
                subject.log.append(f"<{name}>")
            return "a" if "a" in ready else ready[0]

        def __deepcopy__(self, memo):
            return self

    with Seams(seams) as standing:
        ran = Scheduler(Watching()).run({"a": body, "b": lambda: None})
    if ran.errors:
        raise ran.errors["a"]
    return list(subject.log), ran.values["a"], standing


def use_managed():
    with subject.managed() as value:
        subject.log.append("body")
    return value


@pytest.mark.parametrize(
    ("where", "log"),
    [
        ("entering", ["<here>", "enter", "body", "exit"]),
        ("entered", ["enter", "<here>", "body", "exit"]),
        ("exiting", ["enter", "body", "<here>", "exit"]),
        ("exited", ["enter", "body", "exit", "<here>"]),
    ],
)
def test_around_a_context_manager(where, log):
    seen, value, standing = trace([seam("managed", where)], use_managed)
    assert (seen, value) == (log, "value")
    assert standing.visits == {"here": 1}


@pytest.mark.parametrize(
    ("where", "log"),
    [
        ("entering", []),
        ("entered", ["enter", "exit"]),
        ("exiting", ["enter", "body", "exit"]),
        ("exited", ["enter", "body", "exit"]),
    ],
)
def test_who_is_interrupted_at_a_context_manager_leaves_it(where, log, monkeypatch):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("repro.interleave.seams.point", interrupted)
    # As long as the traceback is held, nothing inside is closed for being collected.
    with Seams([seam("managed", where)]), pytest.raises(KeyboardInterrupt) as held:
        use_managed()

    assert (subject.log, held.type) == (log, KeyboardInterrupt)


@pytest.mark.parametrize(("where", "log"), [("before", ["<here>", "plain"]), ("after", ["plain", "<here>"])])
def test_around_a_function(where, log):
    assert trace([seam("plain", where)], lambda: subject.plain(4))[:2] == (log, 5)


def test_several_at_one_function():
    seams = [seam("plain", "before", "first"), seam("plain", "after", "second")]
    assert trace(seams, subject.caller)[:2] == (["<first>", "plain", "<second>"], 1)


def test_within_a_caller_only():
    inside = seam("plain", "before", within="subject:caller")
    assert trace([inside], lambda: subject.plain())[0] == ["plain"]
    subject.log.clear()
    assert trace([inside], lambda: subject.caller())[0] == ["<here>", "plain"]
    subject.log.clear()
    assert trace([inside], lambda: (subject.caller(), subject.plain()))[0] == ["<here>", "plain", "plain"]


@pytest.mark.parametrize(
    ("path", "call", "value"),
    [
        ("Thing.method", lambda: subject.Thing().method("x"), "inherited x"),
        ("Thing.static", lambda: subject.Thing().static("x"), "static x"),
        ("Thing.static", lambda: subject.Thing.static("x"), "static x"),
        ("Thing.of_class", lambda: subject.Thing.of_class("x"), "Thing x"),
        ("Thing.inherited", lambda: subject.Thing().inherited(), "inherited"),
    ],
)
def test_methods_of_all_kinds(path, call, value):
    name = path.partition(".")[2]
    before = dict(vars(subject.Thing)), inspect.getattr_static(subject.Thing, name)
    log, seen, _ = trace([seam(path, "before")], call)
    assert (log, seen) == (["<here>"], value)
    assert (dict(vars(subject.Thing)), inspect.getattr_static(subject.Thing, name)) == before


def test_a_lock_is_modelled():
    was = subject.lock
    with Seams([seam("lock", "lock", "the lock")]) as standing:
        assert isinstance(subject.lock, ModelledLock)
        assert standing.locks == ["the_lock"]
    assert subject.lock is was


def test_threads_that_nobody_drives_pass():
    with Seams([seam("plain", "before")]):
        assert subject.plain() == 1


def test_everything_is_put_back():
    before = dict(vars(subject)), dict(vars(subject.Thing))
    seams = [
        seam("plain", "before", within="subject:caller"),
        seam("plain", "after"),
        seam("managed", "entered"),
        seam("managed", "exiting"),
        seam("Thing.static", "before"),
        seam("lock", "lock"),
    ]
    with Seams(seams):
        assert vars(subject) != before[0]
    assert (dict(vars(subject)), dict(vars(subject.Thing))) == before


LOST = [
    Seam("gone", "subject:nowhere", "before"),
    Seam("gone", "subject:Nobody.nowhere", "after"),
    Seam("gone", "no_such_module:plain", "entered"),
    Seam("gone", "subject:plain", "before", within="subject:nowhere"),
    Seam("gone", "subject:no_lock", "lock"),
]


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_required_seam_is_loud(lost):
    before = dict(vars(subject))
    with pytest.raises(LostSeam, match="seam lost: gone"), Seams([seam("caller", "before"), lost]):
        pass
    assert dict(vars(subject)) == before


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_optional_seam_is_listed(lost):
    optional = Seam(lost.name, lost.target, lost.where, required=False, within=lost.within)
    with Seams([optional, seam("plain", "before")]) as standing:
        assert standing.lost == ["gone"]
        assert subject.plain() == 1
        assert standing.visits == {"here": 1}


def test_what_somebody_else_changed_is_told():
    was = subject.plain
    with pytest.raises(NotRestored, match=r"subject\.plain held 'changed'"), Seams([seam("plain", "before")]):
        subject.plain = "changed"
    assert subject.plain is was


def test_what_somebody_else_changed_does_not_hide_a_failure():
    was = subject.plain

    def fails():
        with Seams([seam("plain", "before")]):
            subject.plain = "changed"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert subject.plain is was


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"target": "subject:plain", "where": "beside"}, "where must be one of before, after"),
        ({"target": "subject.plain", "where": "before"}, "target must be module:attribute"),
    ],
)
def test_a_seam_that_makes_no_sense_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Seam("x", **wrong)


def test_a_function_that_raises_has_no_after():
    def body():
        with pytest.raises(TypeError):
            subject.plain("x")

    with Seams([seam("plain", "after")]) as standing:
        ran = Scheduler(Replay(Schedule())).run({"a": body})
    assert not ran.errors
    assert standing.visits == {}


def test_a_seam_in_code_that_is_read_and_not_run_hands_nothing_over():
    read = [True, False]
    with Seams([seam("plain", "before")], unseen=lambda: read.pop(0)) as standing:
        ran = Scheduler(Replay(Schedule())).run({"a": lambda: [subject.plain(), subject.plain()]})
    assert not ran.errors
    assert standing.visits == {"here": 1}
    assert [step.seam for step in ran.steps] == ["start", "here", "end"]
