"""How often a process found its graph in the cache, by torch's own count."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from repro.outcome import Finding, Sight
from repro.torch_names import entries


def counts() -> Mapping[str, int]:
    """Lookups of this process so far, by what they came to: hit, miss, ...; empty where this torch has no count."""
    import torch

    found: dict[str, int] = {}
    for entry in entries("cache_counter", torch.__version__):
        try:
            counters = importlib.import_module(entry["module"]).counters
        except (ImportError, AttributeError):
            continue
        for name, what in entry["counts"].items():
            found[what] = found.get(what, 0) + counters[entry["group"]][name]
    return found


def finding(process: str, before: Mapping[str, int], after: Mapping[str, int]) -> Finding:
    """What was counted in between; nobody is judged by it here."""
    counted = {what: number - before.get(what, 0) for what, number in after.items()}
    listed = ", ".join(f"{number} {what}" for what, number in counted.items() if number) or "no lookup"
    return Finding("cache", Sight.PASS, f"{process}: {listed}", counted)
