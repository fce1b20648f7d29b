"""The pair sweep: it runs what it says, on a toy; and its data is whole. The sweep itself is ``pairs.py``."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pairs
import pytest

from repro import races
from repro.expectations import fixtures
from repro.experiment import Observation
from repro.interleave import Schedule, Scheduler, point
from repro.interleave.scheduler import Strategy
from repro.outcome import Kind, Outcome

PAIR = ("mask", "patch")
FILES = sorted((fixtures() / "pairs").glob("*.json"))


class Toy:
    """Two threads of three points each; it fails where ``bad`` says so of the order in which the points came."""

    def __init__(self, bad: Callable[[str], bool]) -> None:
        self.orders: list[str] = []
        self._bad = bad

    def __call__(self, strategy: Strategy) -> Observation:
        order: list[str] = []

        def body(letter: str) -> Callable[[], None]:
            def visit() -> None:
                for number in "123":
                    point(number)
                    order.append(letter)

            return visit

        run = Scheduler(strategy).run({"mask": body("m"), "patch": body("p")})
        self.orders.append("".join(order))
        kind = Kind.ERROR if self._bad(self.orders[-1]) else Kind.OK
        return Observation(Outcome(kind, "a toy"), str(run.schedule), run.steps)


def sweep(toy: Toy, switches: int, written: dict[str, str]) -> dict[str, object]:
    places = {
        api: {"places": "start#1 1#1 2#1 3#1", "changed": {"x": written[api]} if api in written else {}}
        for api in PAIR
    }
    return pairs.Sweep(PAIR, toy, places, budget=1000).sweep(switches)


def preempted(order: str) -> int:
    return len(list(itertools.groupby(order))) - 2


def orders(preemptions: int) -> set[str]:
    every = {"".join(order) for order in itertools.permutations("mmmppp")}
    return {order for order in every if preempted(order) <= preemptions}


@pytest.mark.parametrize("switches", [1, 2])
def test_every_order_of_so_many_preemptions_is_run(switches: int) -> None:
    toy = Toy(lambda order: False)
    entry = sweep(toy, switches, {"mask": "start#1 1#1 2#1 3#1", "patch": "start#1 1#1 2#1 3#1"})

    assert set(toy.orders) == orders(switches)
    assert entry["exhausted"]
    assert entry["outcomes"] == {"ok": entry["schedules"]["one switch"] + entry["schedules"].get("two switches", 0)}
    # At depth 2 PCT draws nothing that one preemption does not.
    assert entry["schedules"]["pct not known before"] == 0


def test_two_preemptions_are_run_only_where_something_is_written() -> None:
    toy = Toy(lambda order: False)
    entry = sweep(toy, 2, {"patch": "2#1"})

    assert orders(1) < set(toy.orders) < orders(2)
    assert entry["schedules"]["two switches, nothing written"] > 0
    # Between its first step and its second patch stands where it has written.
    assert "mpmmpp" in toy.orders
    assert "mppmmp" not in toy.orders


def test_the_smallest_schedule_of_a_failure_is_kept_and_replayed() -> None:
    entry = sweep(Toy(lambda order: "pmmp" in order), 2, {"mask": "1#1 2#1 3#1", "patch": "1#1 2#1 3#1"})
    [failure] = entry["failures"]

    assert failure["outcome"] == "error"
    assert failure["runs"] > 1
    assert failure["replays"] == "5 of 5"
    assert len(Schedule.parse(failure["schedule"])) == 2


def test_a_pair_on_torch(tmp_path: Path) -> None:
    file = tmp_path / "pairs.json"
    ended = subprocess.run(
        [sys.executable, pairs.__file__, "-o", file, "--only", "patch", "mark-dynamic", "--switches", "1"],
        env={**os.environ, "PYTHONPATH": str(fixtures().parent)},
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    data = json.loads(file.read_text(encoding="utf-8"))
    assert set(data["writes"]) == {"patch", "mark-dynamic"}
    [entry] = data["pairs"].values()
    assert entry["exhausted"]
    assert entry["schedules"]["one switch"] > 2
    assert entry["outcomes"] == {"ok": entry["schedules"]["one switch"]}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_data_is_whole(file: Path) -> None:
    data = json.loads(file.read_text(encoding="utf-8"))

    assert data["schema"] == pairs.SCHEMA
    assert set(data["writes"]) == set(pairs.APIS)
    assert set(data["pairs"]) <= {"+".join(pair) for pair in pairs.PAIRS}
    for name, entry in data["pairs"].items():
        assert sum(failure["runs"] for failure in entry["failures"]) + entry["outcomes"].get("ok", 0) == sum(
            entry["outcomes"].values()
        ), name
        for failure in entry["failures"]:
            # A crash under PCT leaves none.
            if failure["schedule"] is not None or failure["outcome"] != "crash":
                Schedule.parse(failure["schedule"])
            assert set(failure["races"]) <= set(races.names()), name


def test_every_sign_belongs_to_a_race_of_the_catalogue() -> None:
    assert set(pairs.SIGNS.values()) <= set(races.names())
