"""How many frames, or graphs, Dynamo compiled, against what was promised."""

from __future__ import annotations

import importlib

from repro.outcome import Finding, Sight
from repro.torch_names import entries


def compiled_frames() -> int | None:
    """Frames that Dynamo has compiled so far with success, in any thread; ``None`` if this torch has no such count.

    Functions compiled with ``fullgraph=True`` are not in it, nor is what an uncompiled flex_attention compiles for
    itself. Take it before and after, and judge the difference.
    """
    return counted("frames")


def compiled_graphs() -> int | None:
    """Graphs that Dynamo has handed to a backend so far, in any thread; ``None`` if this torch has no such count.

    Those of ``fullgraph=True`` are in it, and what an uncompiled flex_attention compiles for itself.
    """
    return counted("graphs")


def counted(name: str) -> int | None:
    """What torch has counted so far under ``name`` of ``torch_names.toml``; ``None`` if it has no such count."""
    import torch

    for entry in entries("counter", torch.__version__):
        if entry["name"] != name:
            continue
        try:
            counter = importlib.import_module(entry["module"])
            for step in entry["path"]:
                counter = counter[step] if isinstance(counter, dict) else getattr(counter, step)
        except (ImportError, AttributeError, KeyError):
            continue
        if isinstance(counter, int):
            return counter
    return None


def judge(compiled: int | None, promised: int, *, at_least: int = 0, what: str = "frames") -> Finding:
    """``fail`` if more than ``promised`` frames, or graphs, were compiled in between.

    ``blind`` without a count, or if it is below ``at_least``: a compile that is known to have happened was not seen.
    """
    data = {"compiled": compiled, "promised": promised}
    if compiled is None:
        return Finding("recompiles", Sight.BLIND, f"this torch has no count of compiled {what}", data)
    if compiled < at_least:
        message = f"{compiled} {what} were counted where {at_least} must have been compiled"
        return Finding("recompiles", Sight.BLIND, message, data)
    counts = f"{compiled} {what} compiled, {promised} promised"
    return Finding("recompiles", Sight.FAIL if compiled > promised else Sight.PASS, counts, data)
