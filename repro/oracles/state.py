"""Process-global state that a run left changed.

Looks at every module of the compile stack that is loaded, so that it finds a leak that nobody has named yet. What
changes in any run and harms nobody is listed as ``[[benign]]`` in ``torch_names.toml``, each with its reason.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import sys
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from repro.outcome import Finding, Sight
from repro.torch_names import entries

_SIMPLE = (type(None), bool, int, float, str)
_OPAQUE = object()


@dataclass(frozen=True)
class Snapshot:
    """The state of the process as the calling thread sees it, by dotted name."""

    values: Mapping[str, Any]


class _Same:
    """A function, equal to itself alone: a patched method differs though it may have the name of the original."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._function is other._function

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self._function.__module__}.{self._function.__qualname__}"


def snapshot() -> Snapshot:
    """What is there now: plain-valued globals of the compile stack, its config, and the methods of ``nn.Module``.

    Plain are None, bool, int, float, str and what is built of these: tuples, lists, sets, dicts, dataclasses and a
    ``threading.local`` or ``ContextVar`` as this thread sees it. A global that holds anything else is not looked at.
    Modules that are not loaded are not either. Call it in the main thread, before and after.
    """
    return Snapshot(dict(_values()))


def _values() -> Iterator[tuple[str, Any]]:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    version = torch.__version__
    for entry in entries("state", version):
        for name, module in sorted(sys.modules.items()):
            if name == entry["name"] or name.startswith(entry["name"] + "."):
                yield from _globals(name, module)
    for entry in entries("config", version):
        if config := sys.modules.get(entry["name"]):
            for name, value in getattr(config, entry["read"])().items():
                if (plain := _plain(value)) is not _OPAQUE:
                    yield f"{entry['name']}.{name}", plain
    for method in ("__call__", "__getattr__"):
        yield f"torch.nn.Module.{method}", _Same(getattr(torch.nn.Module, method))


def _globals(name: str, module: ModuleType) -> Iterator[tuple[str, Any]]:
    for attribute, value in list(vars(module).items()):
        if not attribute.startswith("__") and (plain := _plain(value)) is not _OPAQUE:
            yield f"{name}.{attribute}", plain


def _plain(value: Any) -> Any:
    """``value`` as plain data of its own, or ``_OPAQUE``."""
    if type(value) in _SIMPLE:
        return value
    if isinstance(value, threading.local):
        return _plain(vars(value))
    if isinstance(value, ContextVar):
        return _plain(value.get(None))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain({field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)})
    if isinstance(value, dict):
        parts = {_plain(key): _plain(item) for key, item in list(value.items()) if type(key) in _SIMPLE}
        return _OPAQUE if len(parts) < len(value) or _OPAQUE in parts.values() else parts
    if isinstance(value, (tuple, list, set, frozenset)):
        items = [_plain(item) for item in list(value)]
        return _OPAQUE if any(item is _OPAQUE for item in items) else items
    return _OPAQUE
