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
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from packaging.version import Version

from repro import surface
from repro.outcome import Finding, Sight
from repro.torch_names import entries

_DEPTH = 5  # of containers in containers that are looked into
_LOOKED_INTO = (ContextVar, threading.local, dict, tuple, list, set, frozenset)
_ITSELF = object()
# What a snapshot keeps of objects whose type says it all, nine of ten: themselves, or the type's name.
_kept: dict[type, Any] = dict.fromkeys((type(None), bool, int, float, str, FunctionType), _ITSELF)
_ABSENT = "<absent>"


@dataclass(frozen=True)
class Snapshot:
    """The state of the process as the thread that took it sees it: by module, or what else holds it, then by name."""

    values: Mapping[str, Mapping[str, Any]]


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
    torch = sys.modules.get("torch")
    if torch is None:
        return Snapshot({})
    packages = tuple(f"{entry['name']}." for entry in entries("state", torch.__version__))
    # a config module keeps its values out of its globals, and reads them by context
    read = {entry["name"]: entry["read"] for entry in entries("config", torch.__version__)}
    values: dict[str, dict[str, Any]] = {}
    for name, module in sorted(sys.modules.items()):
        if name in read:
            values[name] = _mapped(list(getattr(module, read[name])().items()), _DEPTH)
        elif f"{name}.".startswith(packages):
            values[name] = _mapped([pair for pair in list(vars(module).items()) if pair[0][:2] != "__"], _DEPTH)
    values["os.environ"] = {key: _Path(value) if os.path.isabs(value) else value for key, value in os.environ.items()}
    for holder, name in _inventoried(torch.__version__):
        if name not in values.get(holder, ()) and (now := look(f"{holder}.{name}")) != _ABSENT:
            values.setdefault(holder, {})[name] = now
    return Snapshot(values)


def judge(before: Snapshot, after: Snapshot) -> Finding:
    """``fail`` if anything but the benign differs, with each value before and after; ``blind`` if nothing was seen.

    A module that was loaded in between does not count, and neither does a submodule that became an attribute.
    """
    if not before.values or not after.values:
        return Finding("state", Sight.BLIND, "nothing of torch was loaded when the state was looked at")
    benign = _benign(sys.modules["torch"].__version__)
    changed = {}
    for holder in {**before.values, **after.values}:
        was_there, now_there = before.values.get(holder, {}), after.values.get(holder, {})
        if was_there == now_there and [*map(type, was_there.values())] == [*map(type, now_there.values())]:
            continue
        for name in {**was_there, **now_there}:
            was, now = was_there.get(name, _ABSENT), now_there.get(name, _ABSENT)
            # NaN is itself, but does not equal itself
            if was is now or (was == now and type(was) is type(now)) or benign.fullmatch(f"{holder}.{name}"):
                continue
            if was is _ABSENT and (not was_there or now == "<module>"):
                continue
            changed[f"{holder}.{name}"] = [text(was), text(now)]
    if changed:
        changed = dict(sorted(changed.items()))
        listed = "; ".join(f"{name}: {was} -> {now}" for name, (was, now) in changed.items())
        return Finding("state", Sight.FAIL, f"state left changed: {listed}", {"changed": changed})
    count = sum(map(len, before.values.values()))
    return Finding("state", Sight.PASS, f"none of {count} values changed", {"values": count})


def known_beforehand() -> None:
    """Read what snapshots of this release go by, which takes longer than to look."""
    snapshot()


@functools.cache
def _inventoried(version: str) -> tuple[tuple[str, str], ...]:
    """What functions of this release set for the whole process, by its inventory, else by the latest one: what holds
    it, and its name there.

    A cache may grow, and what is made on first use is made.
    """
    release = Version(version).base_version
    known = surface.inventory(release if release in surface.releases() else surface.releases()[-1])
    benign = _benign(version)
    return tuple(
        (one.name.rpartition(".")[0], one.name.rpartition(".")[2])
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


def text(value: Any) -> str:
    """What a snapshot keeps, in words that are the same in every process."""
    kind = type(value)
    if kind is FunctionType:
        return f"<function {value.__module__}.{value.__qualname__}>"
    if kind is list:
        return f"[{', '.join(map(text, value))}]"
    if kind is dict:
        return f"{{{', '.join(f'{name!r}: {text(item)}' for name, item in value.items())}}}"
    return repr(value)


def _plain(value: Any, depth: int = _DEPTH) -> Any:
    """``value`` as data that nobody else holds and that compares; of an object that is none, its type."""
    return _each([value], depth)[0]


def _mapped(pairs: list[tuple[str, Any]], depth: int) -> dict[str, Any]:
    return dict(zip([name for name, _ in pairs], _each([value for _, value in pairs], depth), strict=True))


def _each(values: list[Any], depth: int) -> list[Any]:
    # Forty thousand in a snapshot, and most are known by their type: not worth a call each.
    return [
        item if (kept := _kept.get(type(item))) is _ITSELF else kept or _taken_apart(item, depth) for item in values
    ]


def _taken_apart(value: Any, depth: int) -> Any:
    kind = type(value)
    if depth and isinstance(value, ContextVar):
        return _plain(value.get(None), depth - 1)
    if depth and isinstance(value, threading.local):
        # an attribute that this thread never set, and one that it set to nothing, are the same
        return {name: plain for name, plain in _mapped(list(vars(value).items()), depth - 1).items() if plain}
    if depth and isinstance(value, dict) and all(type(key) is str for key in list(value)):
        return _mapped(list(value.items()), depth - 1)
    if depth and isinstance(value, (tuple, list)):
        return _each(list(value), depth - 1)
    if depth and isinstance(value, (set, frozenset)):
        return sorted(_each(list(value), depth - 1), key=text)
    if depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return _mapped([(name, getattr(value, name, None)) for name in names], depth - 1)
    named = f"<{kind.__qualname__}>"
    # Some objects say that they are of another class.
    if value.__class__ is kind and not issubclass(kind, _LOOKED_INTO) and not dataclasses.is_dataclass(kind):
        _kept[kind] = named
    return named


@functools.cache
def _benign(version: str) -> re.Pattern[str]:
    patterns = [pattern for entry in entries("benign", version) for pattern in entry["patterns"]]
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
