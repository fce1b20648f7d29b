from __future__ import annotations

import json

import programs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.interleave import Schedule, ScheduleError, Switch, point
from repro.interleave.recorded import Recorded
from repro.interleave.replay import Replay

LINE = "a:start#1>b, b:set#1>a, a:saved#1>b"

name = st.from_regex(r"[\w.-]+", fullmatch=True)
seam = st.from_regex(r"[^#>,\s]+", fullmatch=True)
switches = st.builds(Switch, name, seam, st.integers(min_value=1), name)


@given(st.lists(switches).map(lambda some: Schedule(tuple(some))))
def test_the_one_line_form_round_trips(schedule):
    assert Schedule.parse(str(schedule)) == schedule


@pytest.mark.parametrize("line", ["", "a", "a:x>b", "a:x#0>b", "a:x#1>", "a:x#1>b,", "a:x#1>b c:x#1>d", "a b:x#1>c"])
def test_what_cannot_be_read_says_how_to_write_it(line):
    with pytest.raises(ScheduleError, match="write THREAD:SEAM#VISIT>THREAD"):
        Schedule.parse(line)


def recorded():
    tried = programs.replay(programs.three_switches, LINE)
    return Recorded.of(tried.steps, seams=["set", "saved"], versions={"python": "3.12.1"}, seed=7)


def test_json_round_trips(tmp_path):
    was = recorded()
    assert str(was.schedule) == LINE
    assert Recorded.from_json(json.loads(json.dumps(was.to_json())), "x.json") == was
    was.save(tmp_path / "x.json")
    assert Recorded.load(tmp_path / "x.json") == was


@given(
    st.builds(
        Recorded,
        st.lists(switches).map(lambda some: Schedule(tuple(some))),
        st.lists(st.text()).map(tuple),
        st.lists(st.text()).map(tuple),
        st.dictionaries(st.text(), st.text()),
        st.none() | st.integers(),
    )
)
def test_any_json_round_trips(was):
    assert Recorded.from_json(json.loads(json.dumps(was.to_json())), "x.json") == was


def test_fields_of_a_later_release_are_ignored():
    assert Recorded.from_json({**recorded().to_json(), "weather": "fine"}, "x.json") == recorded()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, r"x.json: 'schema' is 2, this release reads 1"),
        ({"schema": "1"}, r"x.json: 'schema' must be a int, not str"),
        ({"schedule": "a>b"}, r"x.json: 'schedule': 'a>b' is not a switch"),
        ({"schedule": None}, r"x.json: 'schedule' must be a str, not NoneType"),
        ({"trace": "a:start#1"}, r"x.json: 'trace' must be a list, not str"),
        ({"trace": ["a:start#1", 3]}, r"x.json: 'trace\[1\]' must be a str, not int"),
        ({"seams": [None]}, r"x.json: 'seams\[0\]' must be a str, not NoneType"),
        ({"versions": {"torch": 2}}, r"x.json: 'versions' must hold strings only"),
        ({"seed": "7"}, r"x.json: 'seed' must be an int or null, not str"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(change, message):
    with pytest.raises(ScheduleError, match=message):
        Recorded.from_json({**recorded().to_json(), **change}, "x.json")


@pytest.mark.parametrize("field", ["schema", "schedule", "trace", "seams", "versions"])
def test_a_missing_field_is_named_with_its_file(field):
    data = recorded().to_json()
    del data[field]
    with pytest.raises(ScheduleError, match=f"x.json: no field '{field}'"):
        Recorded.from_json(data, "x.json")


@pytest.mark.parametrize("content", ["", "{", "[]", "\xff"])
def test_a_file_that_is_something_else_is_named(tmp_path, content):
    path = tmp_path / "x.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ScheduleError, match=r"x\.json: "):
        Recorded.load(path)
    with pytest.raises(ScheduleError, match=r"missing\.json: "):
        Recorded.load(tmp_path / "missing.json")


def with_more_seams():
    """The same program in a later release, with a seam that nobody had then."""
    program = programs.three_switches()

    def more(body):
        def wrapped():
            point("new")
            body()
            point("new")

        return wrapped

    return programs.Program({name: more(body) for name, body in program.bodies.items()}, program.broken)


def test_an_unrelated_new_seam_does_not_break_an_old_schedule():
    was = recorded()
    now = programs.attempt(with_more_seams, Replay(was.schedule))
    assert now.signature == "broken"
    assert len(now.steps) == len(was.trace) + 4
    assert was.divergence(now.steps) is None


def test_an_unrelated_new_lock_does_not_break_an_old_schedule():
    steps = programs.replay(programs.with_lock, "a:write#1>b").steps
    assert any(step.seam == "wait:lock" for step in steps)
    old = [step for step in steps if "lock" not in step.seam]
    assert Recorded.of(old, seams=["read", "write"], versions={}).divergence(steps) is None
    knows = Recorded.of(old, seams=["read", "write", "lock"], versions={})
    assert knows.divergence(steps) == "step 2: recorded a:read#1, now a:lock.acquire#1"


def test_the_first_divergence_is_told():
    was = recorded()
    other = programs.replay(programs.three_switches, "a:start#1>b").steps
    assert was.divergence(other) == "step 3: recorded b:set#1>a, now b:set#1"
    assert was.divergence(other[:2]) == "step 3: only recorded goes on, with b:set#1>a"
