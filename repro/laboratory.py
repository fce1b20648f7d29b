"""Performs experiments in warm sandboxes, several side by side."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import psutil

from repro import fixes, preflight, races
from repro.experiment import Experiment, Observation
from repro.oracles.memory import preload
from repro.outcome import Kind, Outcome
from repro.sandbox import Ended, Sandbox

# Seconds that one run may take; a usual one takes one or two. It bounds a hang; no verdict depends on its value.
BOUND = 180.0
# Bytes that a sandbox and the compiler below it may need.
LANE = 2 * 2**30
# Warming a sandbox up takes as long as so many usual runs.
_WARMTH = 4
WARM = "repro.warm:torch_and_one_compile"
WARM_FOR_CUDA = "repro.warm:torch_imported"


def lanes(runs: int | None = None) -> int:
    """How many sandboxes this machine can run side by side: by its processors, and by the memory that is free.

    Of these, how many are worth it for so many ``runs``.
    """
    here = max(1, min(len(os.sched_getaffinity(0)), psutil.virtual_memory().available // LANE))
    return here if runs is None else max(1, min(here, runs // _WARMTH))


class Laboratory:
    """A context manager with ``lanes`` warm sandboxes, for experiments on ``devices``.

    ``warm`` is what each does once, see :class:`repro.sandbox.Sandbox`; by default what the devices allow. Raises
    :class:`repro.preflight.NotReady`.
    """

    def __init__(
        self, *, lanes: int = 1, bound: float = BOUND, devices: Sequence[str] = ("cpu",), warm: str | None = None
    ) -> None:
        self.torch, self.cache = preflight.check()
        preflight.check_devices(devices)
        cuda = any(device.startswith("cuda") for device in devices)
        warm = warm or (WARM_FOR_CUDA if cuda else WARM)
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
            # Whether there is a device is asked of NVML, or no process that has asked could fork.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        }
        if not cuda:
            # Compiling for the CPU initialises the devices that it sees, and then no child could use torch any more.
            environment["CUDA_VISIBLE_DEVICES"] = ""
        # Compiled graphs are kept where it is the cache that processes share. Threads must compile anew: as in
        # repro.warm, for those that do not see what is set there.
        kept = {races.THREADS: "0", races.PROCESSES: "1"}
        # A sandbox starts when it is first used.
        self._sandboxes: list[Sandbox] = []
        self._free: dict[str, SimpleQueue[Sandbox]] = {}
        for group, graphs in kept.items():
            caches = {"TORCHINDUCTOR_FX_GRAPH_CACHE": graphs, "TORCHINDUCTOR_AUTOGRAD_CACHE": graphs}
            self._free[group] = SimpleQueue()
            for _ in range(lanes):
                sandbox = Sandbox(warm=warm, env={**environment, **caches})
                self._sandboxes.append(sandbox)
                self._free[group].put(sandbox)

    def __enter__(self) -> Laboratory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sandbox in self._sandboxes:
            sandbox.close()

    def perform(self, experiment: Experiment) -> Observation:
        """Perform one experiment; whatever happens to the process becomes its outcome."""
        seen = self._performed(experiment)
        if seen.failed and preflight.full(self.cache):
            why = f"the disk of {self.cache} is full, so what failed says nothing: {seen.outcome.reason}"
            return replace(seen, outcome=Outcome(Kind.INCONCLUSIVE, why))
        return seen

    def _performed(self, experiment: Experiment) -> Observation:
        if races.group(experiment.race) == races.PROCESSES:
            # What the processes of a run share is gone with it, however they end.
            with tempfile.TemporaryDirectory(prefix="run-", dir=self.cache) as folder:
                ended = self.run(
                    "repro.perform_processes:perform", experiment, folder, group=races.PROCESSES, timeout=self._bound
                )
        else:
            ended = self.run("repro.perform:perform", experiment, timeout=self._bound)
        if isinstance(ended.value, Observation):
            return replace(ended.value, output=ended.output)
        # Nobody is left to say what schedule was followed: note what was asked for, so that it can be replayed.
        asked = self.run("repro.perform:asked", experiment, timeout=self._bound).value or Observation.schedule
        outcome = ended.outcome
        if outcome.kind is Kind.ERROR:
            # What threads raise is in an observation; this was raised around them, and says nothing about the race.
            outcome = replace(outcome, kind=Kind.INCONCLUSIVE, reason=f"the run could not be made: {outcome.reason}")
        return Observation(outcome, schedule=asked, output=ended.output)

    def check(self, race: str, fix: str) -> None:
        """Import, alone, what a run takes from the user: a fix file, or a callable. In a run it would be no verdict.

        Raises :class:`repro.fixes.UnknownFix` and :class:`repro.audit.BadTarget`.
        """
        if not races.is_audit(race) and not any(map(fixes.is_file, fixes.parts(fix))):
            return
        ended = self.run("repro.perform:refusal", race, fix, timeout=self._bound, group=races.group(race))
        if isinstance(ended.value, ValueError):
            raise ended.value
        if ended.outcome.kind in (Kind.CRASH, Kind.HANG):
            what = race if races.is_audit(race) else fix
            raise fixes.UnknownFix(f"{what} cannot be imported: {ended.outcome.reason}; mend it")

    def run(self, job: str, *arguments: Any, timeout: float, group: str = races.THREADS) -> Ended:
        """Run any job in a free sandbox for races of ``group``; see :meth:`repro.sandbox.Sandbox.run`."""
        sandbox = self._free[group].get()
        try:
            return sandbox.run(job, *arguments, timeout=timeout)
        finally:
            self._free[group].put(sandbox)

    def perform_all(self, experiments: Iterable[Experiment]) -> Iterator[Observation]:
        """Perform many, as many at a time as there are lanes; results come in order."""
        pool = ThreadPoolExecutor(self.lanes)
        try:
            yield from pool.map(self.perform, experiments)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
