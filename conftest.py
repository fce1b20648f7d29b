"""What all tests share: a laboratory per worker, and hypothesis profiles.

Torch never runs in a test process: each run has a process of its own in the laboratory's sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from repro.laboratory import Laboratory

_COMMON = {
    "deadline": None,  # a compile takes as long as it takes
    "derandomize": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
}
settings.register_profile("ci", max_examples=4, **_COMMON)
settings.register_profile("long", max_examples=60, **{**_COMMON, "derandomize": False})
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def laboratory() -> Iterator[Laboratory]:
    with Laboratory() as laboratory:
        yield laboratory
