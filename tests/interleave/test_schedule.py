from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.interleave import Schedule, ScheduleError, Switch

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
