"""How many bytes a call allocates above its inputs, against the bytes of all scores.

On the CPU a small C library (``allocations.c``), preloaded into the sandbox, counts in front of the C library's
allocator. Torch's own profiler will not do: it sees only its own thread, and several at once crash torch 2.13.0.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from repro import preflight
from repro.outcome import Finding, Sight
from repro.workloads import Workload

if TYPE_CHECKING:
    import torch

_SOURCE = Path(__file__).with_name("allocations.c")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# "you tried to allocate 305194336256 bytes" on the CPU, "Tried to allocate 284.25 GiB" on CUDA
_REQUEST = re.compile(r"tried to allocate ([\d.]+) (bytes|[KMGT]iB)", re.IGNORECASE)

# Bytes of working blocks that a block-sparse call may hold besides its output and a copy of its keys and values
# (150 KB were seen); where all scores are fewer, they tell nothing.
FLOOR = 2**20
# What the compile of a backward may hold on the device (62 MB were seen), and the build of a mask for each pair of
# query and key (10 bytes were).
COMPILE = 2**27
PAIR = 16


def preload(directory: Path) -> dict[str, str]:
    """The environment with which a process starts that is to be metered; builds the counter into ``directory``.

    A value of ``LD_PRELOAD`` that is there already is kept. Raises :class:`repro.preflight.NotReady` when there is
    no compiler, or when it does not compile.
    """
    source = _SOURCE.read_bytes()
    library = directory / f"allocations-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if not library.exists():
        compiler = preflight.compiler()
        # built under another name first: somebody else may be building, or loading, the same
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            built = Path(scratch) / library.name
            command = [compiler, "-x", "c", "-O2", "-shared", "-fPIC", "-o", str(built), str(_SOURCE), "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise preflight.NotReady(f"{compiler} does not compile {_SOURCE.name}: {done.stderr.strip()}")
            built.replace(library)
    return {"LD_PRELOAD": ":".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))}


class AllocationMeter:
    """A context manager that measures its block; afterwards ``peak`` is in bytes, ``None`` if it could not be seen.

    On the CPU: what this thread has allocated for tensors less what it has freed of that since the start of the
    block, at its highest. What counts is memory asked for aligned, 64 KiB or more of it, which is how torch's CPU
    allocator asks; a compile under way does not count, nor what other threads allocate (run torch with one thread).
    On CUDA: the high-water mark of torch's allocator above the start, less what other threads did while this one was
    paused (:func:`pause`, :func:`resume`); threads that run at the same time count together.
    ``events`` are the allocations counted; zero means that nothing was seen, and then ``peak`` is ``None``.

    One at a time in a thread.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.peak: int | None = None
        self.events = 0
        name = str(device)
        self._counter = _Cuda(name) if name.startswith("cuda") else _Malloc()

    def __enter__(self) -> AllocationMeter:
        self._counter.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.events, peak = self._counter.read()
        self.peak = peak if self.events else None


class _Malloc:
    def __init__(self) -> None:
        # PyDLL keeps the GIL: a call into the library is no point at which threads switch
        library = ctypes.PyDLL(None)
        self._library = library if hasattr(library, "repro_allocations_start") else None

    def start(self) -> None:
        if self._library:
            self._library.repro_allocations_start()

    def read(self) -> tuple[int, int]:
        if not self._library:
            return 0, 0
        if self._library.repro_allocations_overflowed():
            return 0, 0
        events, peak = self._library.repro_allocations_events, self._library.repro_allocations_peak
        events.restype = peak.restype = ctypes.c_longlong
        return events(), peak()


class _Cuda:
    """Torch's allocator counts for the process; this one's part is what happened while its thread had the turn."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._runs = False

    def start(self) -> None:
        self._live = self._peak = self._events = 0
        _open[threading.current_thread().name] = self
        self.resume()

    def read(self) -> tuple[int, int]:
        self.pause()
        del _open[threading.current_thread().name]
        return self._events, self._peak

    def resume(self) -> None:
        import torch

        with _resetting:
            # What others that run at the same time have reached would be gone with the reset.
            for other in list(_open.values()):
                if other._runs:
                    other._note_peak()
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
            self._events_before = self._allocations()
            self._runs = True

    def pause(self) -> None:
        import torch

        with _resetting:
            self._note_peak()
            self._runs = False
        self._live += torch.cuda.memory_allocated(self._device) - self._before
        self._events += self._allocations() - self._events_before

    def _note_peak(self) -> None:
        import torch

        self._peak = max(self._peak, self._live + torch.cuda.max_memory_allocated(self._device) - self._before)

    def _allocations(self) -> int:
        import torch

        return int(torch.cuda.memory_stats(self._device).get("allocation.all.allocated", 0))


# The meters of devices, by the name of the thread whose block it is.
_open: dict[str, _Cuda] = {}
_resetting = threading.Lock()


def pause(thread: str) -> None:
    """The thread of that name gives up its turn: what happens from here on is not its doing."""
    if (meter := _open.get(thread)) is not None:
        meter.pause()


def resume(thread: str) -> None:
    """The thread of that name has its turn again."""
    if (meter := _open.get(thread)) is not None:
        meter.resume()


def can_tell(workload: Workload) -> bool:
    """Whether all scores are so many more bytes than a block-sparse call holds that the two cannot be confused."""
    return workload.dense_bound >= _held_besides(workload)


def _held_besides(workload: Workload) -> int:
    row = workload.batch * workload.heads * workload.head_dim * workload.torch_dtype.itemsize
    return FLOOR + 2 * row * (workload.queries + 2 * workload.keys)


def can_tell_backward(workload: Workload) -> bool:
    """As :func:`can_tell`, of a backward: its compile, and a mask that is built again in it, are metered too."""
    besides = _held_besides(workload) + COMPILE + PAIR * workload.queries * workload.keys
    return workload.dense_bound >= besides


def judge(meter: AllocationMeter, workload: Workload) -> Finding:
    """``fail`` if the metered call ever held :attr:`Workload.dense_bound` bytes or more.

    ``blind`` if nothing was counted, or if the sizes :func:`can_tell` nothing.
    """
    return _judge(meter.peak, meter.events, workload, can_tell(workload), "it")


def judge_backward(meter: AllocationMeter, workload: Workload, gradients: Sequence[torch.Tensor | None]) -> Finding:
    """As :func:`judge`, of a backward, and its compile if it is the first: what it held besides the ``gradients``.

    ``blind`` if the sizes :func:`can_tell_backward` nothing, or if it held less than the gradients that it leaves.
    """
    left = sum(gradient.nbytes for gradient in gradients if gradient is not None)
    if meter.peak is not None and meter.peak < left:
        data = {"peak": meter.peak, "bound": workload.dense_bound, "events": meter.events}
        message = f"its backward held {meter.peak} bytes, and leaves gradients of {left}: it was not seen as a whole"
        return Finding("memory", Sight.BLIND, message, data)
    peak = None if meter.peak is None else meter.peak - left
    return _judge(peak, meter.events, workload, can_tell_backward(workload), "its backward, besides the gradients,")


def _judge(peak: int | None, events: int, workload: Workload, telling: bool, what: str) -> Finding:
    bound = workload.dense_bound
    data = {"peak": peak, "bound": bound, "events": events}
    if peak is None:
        message = "no allocation was seen; start the process with the environment of memory.preload"
        return Finding("memory", Sight.BLIND, message, data)
    if not telling:
        message = f"all scores are {bound} bytes, too few to tell from a block-sparse call's; use longer lengths"
        return Finding("memory", Sight.BLIND, message, data)
    share = f"{peak} bytes, {peak / bound:.1%} of all scores"
    if peak >= bound:
        return Finding("memory", Sight.FAIL, f"dense: {what} held {share}", data)
    return Finding("memory", Sight.PASS, f"{what} held {share}", data)


def judge_mask(meter: AllocationMeter, workload: Workload) -> Finding:
    """``fail`` if a block that builds a mask, and then calls attention, held a byte for each pair of query and key.

    A block mask has a number for each pair of blocks. ``blind`` if nothing was counted, not even attention's output,
    or if that and its working blocks are as large.
    """
    bound = workload.queries * workload.keys
    held = FLOOR + workload.dense_bound // workload.keys * workload.head_dim
    data = {"peak": meter.peak, "bound": bound, "events": meter.events}
    if meter.peak is None:
        message = "no allocation was seen; start the process with the environment of memory.preload"
        return Finding("mask memory", Sight.BLIND, message, data)
    if bound < held:
        message = f"the whole mask is {bound} bytes, too few to tell from attention's own; use longer lengths"
        return Finding("mask memory", Sight.BLIND, message, data)
    share = f"{meter.peak} bytes, {meter.peak / bound:.1f} for each pair of query and key"
    if meter.peak >= bound:
        return Finding("mask memory", Sight.FAIL, f"the whole mask was there: {share}", data)
    return Finding("mask memory", Sight.PASS, f"mask and attention held {share}", data)


def requested_bytes(error: BaseException) -> int | None:
    """How many bytes a request was for that ran out of memory; ``None`` if ``error`` is not about that.

    Exact on the CPU; CUDA's message has two decimals.
    """
    found = _REQUEST.search(str(error))
    return round(float(found[1]) * _UNITS[found[2]]) if found else None


def score_sized(error: BaseException, workload: Workload) -> bool:
    """Whether memory ran out on a request for all scores, be it in the workload's own dtype, or for more."""
    requested = requested_bytes(error)
    scores = workload.dense_bound // 4 * workload.torch_dtype.itemsize
    # the message may have been rounded
    return requested is not None and requested >= 0.99 * scores
