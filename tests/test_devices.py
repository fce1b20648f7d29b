"""Threads are dealt out to the devices of a list, here to one device that is listed several times."""

from __future__ import annotations

import pytest
from command_line import here

from repro.experiment import Experiment
from repro.laboratory import Laboratory
from repro.outcome import Sight


@pytest.mark.parametrize("count", [1, 3])
def test_each_device_of_the_list_has_a_call_of_its_own(count: int, laboratory: Laboratory) -> None:
    run = laboratory.perform(Experiment(race="first-call", fix="lock", devices=("cpu",) * count))

    sparse = [finding.message for finding in run.findings if finding.oracle == "sparsity"]
    assert all(finding.sight is Sight.PASS for finding in run.findings if finding.oracle == "sparsity")
    assert {message.partition(":")[0] for message in sparse} == {"first", "second", "third", "lone call"}
    # After the threads, one lone call on each device.
    assert sum(message.startswith("lone call") for message in sparse) == count
    assert run.outcome.kind == "ok"


def test_the_command_line_takes_a_device_as_often_as_it_is_given(laboratory: Laboratory) -> None:
    done = here("run", "first-call", "--fix", "lock", *["--device", "cpu"] * 3, laboratory=laboratory)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "first-call with fix lock: HOLDS" in done.stdout
