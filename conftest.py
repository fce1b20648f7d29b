"""What all tests share: a laboratory per worker, and hypothesis profiles.

Torch never runs in a test process: each run has a process of its own in the laboratory's sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from packaging.version import Version

from repro import gate, preflight, results
from repro.expectations import PROCESSES
from repro.fixes import NONE
from repro.gate import Known
from repro.laboratory import Laboratory
from repro.report import document, html, terminal
from repro.results import Place, Report
from repro.verdict import Cell

# Each example is several compiles, so few are drawn in CI and a failure is reported as it was found; the long
# profile draws anew each time, and shrinks.
_COMMON = settings(deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
_CI_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
settings.register_profile("ci", _COMMON, max_examples=2, derandomize=True, phases=_CI_PHASES)
settings.register_profile("long", _COMMON, max_examples=40)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_JUDGED = pytest.StashKey[dict[str, Any]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests that take many minutes too")
    parser.addoption(
        "--torch-baseline",
        metavar="VERSION",
        help="hold the cells of tests/races against what is recorded of this release (default: the installed one, "
        "or where nothing is recorded of it, the newest)",
    )

    parser.addoption(
        "--report",
        metavar="FILE",
        type=Path,
        help="where to write the page about the judged cells, with its JSON beside it (default: in pytest's cache)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tests of one ``xdist_group`` share a worker: they never fight for a card, and what they need is made once."""
    if config.getoption("dist", "no") == "load":
        config.option.dist = "loadgroup"
    if getattr(config, "workerinput", {}).get("grouped"):
        config.option.loadgroup = True
    if version := config.getoption("--torch-baseline"):
        try:
            results.find(version)
        except results.ReportError as error:
            raise pytest.UsageError(f"--torch-baseline: {error}") from None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker reads the command line for itself, which does not say that tests are grouped."""
    node.workerinput["grouped"] = node.config.option.dist == "loadgroup"


def _yardstick(config: pytest.Config) -> Report | None:
    """The report of another release that this one is held against; ``None`` where it has one of its own."""
    here = Version(Version(preflight.torch_version()).public)
    if version := config.getoption("--torch-baseline"):
        return results.find(version)
    records = results.recorded()
    return None if results.best(records, here, results.PYTHON) else results.newest(records, here, results.PYTHON)


@pytest.fixture(scope="session")
def known(request: pytest.FixtureRequest) -> Callable[[Report, Sequence[Place]], Known]:
    """What a report is held against, given the cells that it must have."""
    version = request.config.getoption("--torch-baseline")
    if version:
        return lambda report, places: gate.other(results.find(version))
    return lambda report, places: gate.release(report, places, results.recorded())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without ``--nightly`` the slow tests are deselected, and the summary says how many."""
    on_a_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_a_gpu and not preflight.cuda_devices():
        for item in on_a_gpu:
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))
    if config.getoption("--nightly"):
        return
    slow = [item for item in items if item.get_closest_marker("nightly")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(scope="session")
def laboratory() -> Iterator[Laboratory]:
    with Laboratory() as laboratory:
        yield laboratory


@pytest.fixture(scope="session")
def cuda_laboratory() -> Iterator[Laboratory]:
    with Laboratory(devices=("cuda",)) as laboratory:
        yield laboratory


@pytest.fixture
def judged(request: pytest.FixtureRequest) -> Callable[[str, Sequence[Cell]], Report]:
    """Keeps the cells that a test judged on a torch for the summary; gives them back as a report."""

    def keep(torch: str, cells: Sequence[Cell]) -> Report:
        request.node.stash[_JUDGED] = document.of_cells("matrix", torch, cells, devices=["cpu"])
        return results.of_document(request.node.stash[_JUDGED])

    return keep


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """What a test judged goes with its report, from the worker to where the summary is made."""
    report = yield
    if call.when == "call" and _JUDGED in item.stash:
        report.judged = item.stash[_JUDGED]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What the cells that were judged come to, what the tests counted, and what an upgrade changed in torch."""
    ended = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    if parts := [report.judged for report in ended if hasattr(report, "judged")]:
        terminalreporter.section("races")
        for line in _races(parts, config):
            terminalreporter.write_line(line)
    lines = [
        f"{name}: {value}"
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
    ]
    if lines:
        terminalreporter.section("counted")
        for line in sorted(lines):
            terminalreporter.write_line(line)
    other = _yardstick(config)
    if other is not None:
        here = Version(Version(preflight.torch_version()).public)
        changed, unknown = gate.upgrade(other.version, here, here=False)
        for line in terminal.surface_lines(changed) if changed else unknown:
            terminalreporter.write_line(line)


def _races(parts: Sequence[dict[str, Any]], config: pytest.Config) -> Iterator[str]:
    """The races shown, the fixes that hold, what is inconclusive, and where the page about it is."""
    page = config.getoption("--report") or config.rootpath / ".pytest_cache" / "races.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    data = page.with_suffix(".json")
    cells = [cell for part in parts for cell in part["cells"]]
    document.write({**parts[0], "cells": cells}, str(data))
    document.write_text(html.render(html.load(str(data))), str(page))
    tried = {cell["race"] for cell in cells if cell["fix"] == NONE}
    shown = {cell["race"] for cell in cells if cell["fix"] == NONE and cell["verdict"] == "FAILS"}
    yield f"torch {parts[0]['torch']}: {len(shown)} of {len(tried)} races show without a fix"
    held: dict[str, list[bool]] = {}
    for cell in cells:
        if cell["fix"] != NONE and cell["race"] in shown:
            held.setdefault(cell["fix"], []).append(cell["verdict"] == "HOLDS")
    for fix, each in sorted(held.items(), key=lambda item: -sum(item[1])):
        holds = "in processes clean:" if fix == PROCESSES else f"{fix} holds against"
        yield f"{holds} {sum(each)} of {len(each)} of these"
    unclear = [cell for cell in cells if cell["verdict"] == "INCONCLUSIVE"]
    yield f"inconclusive: {len(unclear)} of {len(cells)} cells"
    yield from (f"  {cell['race']} / {cell['fix']}: {cell['reason']}" for cell in unclear)
    yield f"report: {os.path.relpath(page)}"
