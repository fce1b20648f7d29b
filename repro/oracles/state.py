"""Process-global state that a run left changed.

Looks at every global of every loaded module of the compile stack, and at what else the inventory of the source says
that functions change (see ``repro/surface``), so that it finds a leak that nobody has named yet.
What changes in any run and harms nobody is listed as ``[[benign]]`` in ``torch_names.toml``, with the reason.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import inspect
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from packaging.version import Version

from repro import surface
from repro.outcome import Finding, Sight
from repro.torch_names import entries

_SIMPLE = frozenset((type(None), bool, int, float, str))
_DEPTH = 5  # of containers in containers that are looked into
_LOOKED_INTO = (ContextVar, threading.local, dict, tuple, list, set, frozenset)
# What is said of objects that nothing is known of but their type: two of three.
_named: dict[type, str] = {}
_ABSENT = "<absent>"


@dataclass(frozen=True)
class Snapshot:
    """The state of the process as the thread that took it sees it, by dotted name."""

    values: Mapping[str, Any]


class _Function:
    """A function, equal to itself alone: a patched one may go by the name of the original."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Function) and self._function is other._function

    def __hash__(self) -> int:
        return id(self._function)

    def __repr__(self) -> str:
        return f"<function {self._function.__module__}.{self._function.__qualname__}>"


@dataclass(frozen=True)
class _Path:
    """A path of this machine. Its name says nothing elsewhere; that it is gone does."""

    name: str

    def __repr__(self) -> str:
        return "<path>" if os.path.exists(self.name) else "<path that is gone>"


def snapshot() -> Snapshot:
    """What is there now: the globals of the compile stack, its config values, what else is inventoried, such as
    attributes of classes, and the variables of the environment.

    Numbers, strings, and tuples, lists, sets, dataclasses and dicts with strings for keys are kept by value,
    functions by identity, and of any other object only the type. A ``threading.local`` or ``ContextVar`` is read as
    the calling thread sees it, so take both snapshots in the same thread. Modules that are not loaded are left alone.
    Empty when torch is not loaded.
    """
    values = dict(_values())
    for name in _inventoried(sys.modules["torch"].__version__) if values else ():
        if name not in values and (now := look(name)) != _ABSENT:
            values[name] = now
    return Snapshot(values)


def judge(before: Snapshot, after: Snapshot) -> Finding:
    """``fail`` if anything but the benign differs, with each value before and after; ``blind`` if nothing was seen.

    A module that was loaded in between does not count, and neither does a submodule that became an attribute.
    """
    if not before.values or not after.values:
        return Finding("state", Sight.BLIND, "nothing of torch was loaded when the state was looked at")
    differing = {}
    for name in {**before.values, **after.values}:
        was, now = before.values.get(name, _ABSENT), after.values.get(name, _ABSENT)
        # NaN is itself, but does not equal itself
        if was is not now and (was != now or type(was) is not type(now)):
            differing[name] = was, now
    benign = _benign(sys.modules["torch"].__version__)
    modules = {name.rpartition(".")[0] for name in before.values} if differing else set()
    changed = {}
    for name, (was, now) in sorted(differing.items()):
        if benign.fullmatch(name):
            continue
        if was is _ABSENT and (name.rpartition(".")[0] not in modules or now == "<module>"):
            continue
        changed[name] = [repr(was), repr(now)]
    if changed:
        listed = "; ".join(f"{name}: {was} -> {now}" for name, (was, now) in changed.items())
        return Finding("state", Sight.FAIL, f"state left changed: {listed}", {"changed": changed})
    count = len(before.values)
    return Finding("state", Sight.PASS, f"none of {count} values changed", {"values": count})


def _values() -> Iterator[tuple[str, Any]]:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    packages = tuple(f"{entry['name']}." for entry in entries("state", torch.__version__))
    # a config module keeps its values out of its globals, and reads them by context
    read = {entry["name"]: entry["read"] for entry in entries("config", torch.__version__)}
    for name, module in sorted(sys.modules.items()):
        if name in read:
            for key, value in getattr(module, read[name])().items():
                yield f"{name}.{key}", _plain(value)
        elif f"{name}.".startswith(packages):
            for key, value in list(vars(module).items()):
                if not key.startswith("__"):
                    yield f"{name}.{key}", _plain(value)
    for key, value in os.environ.items():
        yield f"os.environ.{key}", _Path(value) if os.path.isabs(value) else value


def known_beforehand() -> None:
    """Read what snapshots of this release go by, which takes longer than to look."""
    _inventoried(sys.modules["torch"].__version__)


@functools.cache
def _inventoried(version: str) -> tuple[str, ...]:
    """What functions of this release set for the whole process, by its inventory, else by the latest one.

    A cache may grow, and what is made on first use is made.
    """
    release = Version(version).base_version
    known = surface.inventory(release if release in surface.releases() else surface.releases()[-1])
    benign = _benign(version)
    return tuple(
        one.name
        for one in known.globals.values()
        if one.home == "process" and one.danger in ("save-restore", "setting") and not benign.fullmatch(one.name)
    )


def look(name: str) -> Any:
    """The value at one dotted path now, as a snapshot keeps it, without loading a module or running a property."""
    module, _, rest = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, last = module.rpartition(".")
        rest = f"{last}.{rest}"
    found: Any = sys.modules[module] if module else _ABSENT
    for part in rest.split("."):
        found = inspect.getattr_static(found, part, _ABSENT)
    return _plain(found)


def _plain(value: Any, depth: int = _DEPTH) -> Any:
    """``value`` as data that nobody else holds and that compares; of an object that is none, its type."""
    kind = type(value)
    if kind in _SIMPLE:
        return value
    if kind is FunctionType:
        return _Function(value)
    if (named := _named.get(kind)) is not None:
        return named
    if depth and isinstance(value, ContextVar):
        return _plain(value.get(None), depth - 1)
    if depth and isinstance(value, threading.local):
        # an attribute that this thread never set, and one that it set to nothing, are the same
        return {name: plain for name, item in vars(value).items() if (plain := _plain(item, depth - 1))}
    if depth and isinstance(value, dict) and all(type(key) is str for key in list(value)):
        return {key: _plain(item, depth - 1) for key, item in list(value.items())}
    if depth and isinstance(value, (tuple, list)):
        return [_plain(item, depth - 1) for item in list(value)]
    if depth and isinstance(value, (set, frozenset)):
        return sorted((_plain(item, depth - 1) for item in list(value)), key=repr)
    if depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name, None), depth - 1) for field in dataclasses.fields(value)
        }
    named = f"<{kind.__qualname__}>"
    # Some objects say that they are of another class.
    if value.__class__ is kind and not issubclass(kind, _LOOKED_INTO) and not dataclasses.is_dataclass(kind):
        _named[kind] = named
    return named


@functools.cache
def _benign(version: str) -> re.Pattern[str]:
    patterns = [pattern for entry in entries("benign", version) for pattern in entry["patterns"]]
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
