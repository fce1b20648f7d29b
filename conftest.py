"""What all tests share: a laboratory per worker, and hypothesis profiles.

Torch never runs in a test process: each run has a process of its own in the laboratory's sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

from repro.laboratory import Laboratory

# Each example is several compiles, so few are drawn in CI and a failure is reported as it was found; the long
# profile draws anew each time, and shrinks.
_COMMON = settings(deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
_CI_PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
settings.register_profile("ci", _COMMON, max_examples=2, derandomize=True, phases=_CI_PHASES)
settings.register_profile("long", _COMMON, max_examples=40)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def laboratory() -> Iterator[Laboratory]:
    with Laboratory() as laboratory:
        yield laboratory


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests counted: a line each, across workers."""
    lines = [
        f"{name}: {value}"
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
    ]
    if lines:
        terminalreporter.section("counted")
        for line in sorted(lines):
            terminalreporter.write_line(line)
