"""Performs experiments in warm sandboxes, several side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from repro import preflight
from repro.experiment import Experiment, Observation
from repro.oracles.memory import preload
from repro.sandbox import Ended, Sandbox

# Seconds that one run may take; a usual one takes one or two. It bounds a hang; no verdict depends on its value.
BOUND = 180.0
WARM = "repro.warm:torch_and_one_compile"


class Laboratory:
    """A context manager with ``lanes`` warm sandboxes. Raises :class:`repro.preflight.NotReady`.

    ``warm`` is what each does once, see :class:`repro.sandbox.Sandbox`.
    """

    def __init__(self, *, lanes: int = 1, bound: float = BOUND, warm: str = WARM) -> None:
        self.torch, self.cache = preflight.check()
        self.lanes = lanes
        self._bound = bound
        # Inductor keeps precompiled headers below the temporary directory, each some seconds of work: that must
        # outlive the laboratory, and what a killed compiler leaves there must not be in the user's own.
        scratch = self.cache / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = {
            **preload(self.cache),
            "CXX": preflight.compiler(),
            "TMPDIR": str(scratch),
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache),
            # One compile thread: no pool of workers that a fork would have to live with.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            # As in repro.warm, for threads that do not see what is set there: no cached graph.
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        }
        self._sandboxes = [Sandbox(warm=warm, env=environment) for _ in range(lanes)]
        self._free: SimpleQueue[Sandbox] = SimpleQueue()
        for sandbox in self._sandboxes:
            self._free.put(sandbox)

    def __enter__(self) -> Laboratory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sandbox in self._sandboxes:
            sandbox.close()

    def perform(self, experiment: Experiment) -> Observation:
        """Perform one experiment; whatever happens to the process becomes its outcome."""
        ended = self.run("repro.perform:perform", experiment, timeout=self._bound)
        if isinstance(ended.value, Observation):
            return replace(ended.value, output=ended.output)
        return Observation(ended.outcome, output=ended.output)

    def run(self, job: str, *arguments: Any, timeout: float) -> Ended:
        """Run any job in a free sandbox; see :meth:`repro.sandbox.Sandbox.run`."""
        sandbox = self._free.get()
        try:
            return sandbox.run(job, *arguments, timeout=timeout)
        finally:
            self._free.put(sandbox)

    def perform_all(self, experiments: Iterable[Experiment]) -> Iterator[Observation]:
        """Perform many, as many at a time as there are lanes; results come in order."""
        pool = ThreadPoolExecutor(len(self._sandboxes))
        try:
            yield from pool.map(self.perform, experiments)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
