"""A warm sandbox for tests that need torch, which never runs in a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from repro import preflight
from repro.oracles.memory import preload
from repro.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """Forks from a process that has torch and one compile behind it, and whose allocations are counted."""
    _, cache = preflight.check()
    environment = {
        **preload(cache),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    with Sandbox(warm="repro.warm:torch_and_one_compile", env=environment) as warm:
        yield warm
