"""What all tests share: a laboratory per worker, and hypothesis profiles.

Torch never runs in a test process: each run has a process of its own in the laboratory's sandbox.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings
from packaging.version import Version

from repro import gate, preflight, results
from repro.gate import Known
from repro.laboratory import Laboratory
from repro.report import terminal
from repro.results import Place, Report

# Each example is several compiles, so few are drawn in CI and a failure is reported as it was found; the long
# profile draws anew each time, and shrinks.
_COMMON = settings(deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
_CI_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
settings.register_profile("ci", _COMMON, max_examples=2, derandomize=True, phases=_CI_PHASES)
settings.register_profile("long", _COMMON, max_examples=40)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests that take many minutes too")
    parser.addoption(
        "--torch-baseline",
        metavar="VERSION",
        help="hold the cells of tests/races against what is recorded of this release (default: the installed one, "
        "or where nothing is recorded of it, the newest)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tests of one ``xdist_group`` share a worker: those that need much of a card's memory never fight for it."""
    if config.getoption("dist", "no") == "load":
        config.option.dist = "loadgroup"
    if version := config.getoption("--torch-baseline"):
        try:
            results.find(version)
        except results.ReportError as error:
            raise pytest.UsageError(f"--torch-baseline: {error}") from None


def _yardstick(config: pytest.Config) -> Report | None:
    """The report of another release that this one is held against; ``None`` where it has one of its own."""
    here, python = Version(Version(preflight.torch_version()).public), ".".join(platform.python_version_tuple()[:2])
    if version := config.getoption("--torch-baseline"):
        return results.find(version)
    records = results.recorded()
    return None if results.best(records, here, python) else results.newest(records, here, python)


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests counted, a line each, across workers; and beside an upgrade what changed on the surface."""
    lines = [
        f"{name}: {value}"
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
    ]
    if lines:
        terminalreporter.section("counted")
        for line in sorted(lines):
            terminalreporter.write_line(line)
    other = _yardstick(terminalreporter.config)
    if other is not None:
        here = Version(Version(preflight.torch_version()).public)
        changed, unknown = gate.upgrade(other.version, here, here=False)
        for line in terminal.surface_lines(changed) if changed else unknown:
            terminalreporter.write_line(line)
