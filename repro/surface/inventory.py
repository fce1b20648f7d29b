"""The inventory: what functions of the compile stack change for the whole process, and how dangerous that is.

A global is *borrowed* by a function that changes it for a while and puts it back: around a ``yield``, in a
``try``/``finally``, in ``__enter__`` and ``__exit__``, or by handing an old value to a setter. Two threads that
borrow at once can lose it (one puts back while the other is inside) or leave it changed (one saves what the other
has put there). What else is written is only counted up, made on first use, kept in a container, or set for good.
"""

from __future__ import annotations

import gc
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from repro.recording import SCHEMA
from repro.surface.accesses import Access, Call, Place, kind_of, places, single_instances
from repro.surface.source import Module, Source, resolve

# How a function changes a global, the most dangerous first. ``swap`` puts back what it found, ``bracket`` puts
# something fixed; the rest leaves what it wrote.
FORMS = ("swap", "bracket", "set", "drop", "keep", "count", "fill")
# What a global is, by its writers.
DANGERS = ("save-restore", "setting", "cache", "lazy", "counter")
# Whose it is.
HOMES = ("process", "context", "thread")


@dataclass(frozen=True)
class Global:
    """One entry: ``kind`` is what it is bound to at first, ``writers`` maps a function to its form.

    ``reached`` says that a borrower of it may be called, by name, from the entries that the inventory was taken for.
    ``readers`` are the functions that read it and do not write it, or what a function returns that reads it;
    ``deciders`` those of them that branch on it. ``lock`` is set where every writer holds the same one.
    """

    name: str
    kind: str
    home: str
    danger: str
    writers: Mapping[str, str]
    readers: tuple[str, ...] = ()
    deciders: tuple[str, ...] = ()
    lock: str = ""
    reached: bool = False

    @property
    def borrowers(self) -> list[str]:
        """The functions that change it for a while."""
        return [name for name, form in self.writers.items() if form in ("swap", "bracket")]

    @property
    def suspect(self) -> bool:
        """Borrowed from the process without a lock, by what the entries may come to: to be probed."""
        return self.home == "process" and bool(self.borrowers) and not self.lock and self.reached

    @property
    def rank(self) -> tuple[int, ...]:
        """What sorts the most dangerous first.

        Only what the process shares can race; of that, suspects come first. Then: whether what was found is put back,
        which can leave it changed for good; how many functions borrow it; and how many see it, above all to decide
        something. A function that is replaced is seen by whoever calls it.
        """
        seen = 99 if self.kind == "function" else len(self.deciders) * 2 + len(self.readers)
        return (
            HOMES.index(self.home),
            not self.suspect,
            DANGERS.index(self.danger),
            bool(self.lock),
            "swap" not in self.writers.values(),
            -min(len(self.borrowers), 2),
            -seen,
        )


@dataclass(frozen=True)
class Inventory:
    """All globals of one release, by name."""

    torch: str
    globals: Mapping[str, Global] = field(default_factory=dict)

    def ranked(self) -> list[Global]:
        return sorted(self.globals.values(), key=lambda one: (one.rank, one.name))


class Nothing(Exception):
    """Nothing could be inventoried: the folder holds none of the packages."""


def take(root: Path, packages: Iterable[str], entries: Iterable[str], torch: str) -> Inventory:
    """The inventory of the ``packages`` in the folder ``root``. Raises :class:`Nothing`.

    ``entries`` are the last names of the functions that a user calls.
    """
    source = Source(root)
    # millions of nodes, none of them garbage before its module is done
    collecting = gc.isenabled()
    gc.disable()
    try:
        modules = list(source.modules(list(packages)))
        if not modules:
            raise Nothing(f"{root} holds none of {', '.join(packages)}")
        singletons = single_instances(source, modules)
        walked = [place for module in modules for place in places(source, module, singletons)]
        return Inventory(torch, {one.name: one for one in _Judge(source, walked, set(entries)).globals()})
    finally:
        if collecting:
            gc.enable()


class _Judge:
    """From what each function does to what each global is."""

    def __init__(self, source: Source, walked: list[Place], entries: set[str]) -> None:
        self._source = source
        self._walked = walked
        self._by_target: dict[str, dict[str, list[Access]]] = defaultdict(lambda: defaultdict(list))
        self._calls: dict[str, list[Call]] = defaultdict(list)
        for place in walked:
            for call in place.calls:
                self._calls[call.callee].append(call)
            for access in place.accesses:
                if access.how != "read":
                    self._by_target[access.target][access.function].append(access)
        self._through_setters()
        self._through_classes()
        self._readers()
        self._reached = _reach(walked, entries)

    def globals(self) -> Iterator[Global]:
        for target in sorted(self._by_target):
            writers = self._writers(target)
            if not writers:
                continue
            home = self._home(target)
            if home is None:
                continue
            locks = {access.lock for accesses in self._by_target[target].values() for access in accesses}
            reading = {name for name in self._reading[target] if name not in writers}
            deciding = {name for name in self._deciding[target] if name not in writers}
            yield Global(
                name=target,
                kind=kind_of(self._source, target).kind,
                home=home,
                danger=_danger(writers),
                writers=dict(sorted(writers.items())),
                readers=tuple(sorted(reading - deciding)),
                deciders=tuple(sorted(deciding)),
                lock=next(iter(locks)) if len(locks) == 1 else "",
                reached=any(
                    form in ("swap", "bracket") and _named(name) & self._reached for name, form in writers.items()
                ),
            )

    # ---- writers

    def _writers(self, target: str) -> dict[str, str]:
        forms = {}
        reads = self._saved_reads[target]
        for function, accesses in self._by_target[target].items():
            form = _form(accesses, function in reads)
            if form:
                forms[function] = form
        return forms

    def _through_setters(self) -> None:
        """A function that assigns a global from its parameter: who calls it, writes."""
        for target, writers in list(self._by_target.items()):
            for setter in [name for name, accesses in writers.items() if any(a.argument for a in accesses)]:
                for caller, calls in _by_caller(self._calls[setter]).items():
                    written = [
                        Access(caller, target, "assign", back=call.back, lock=call.lock, through=setter)
                        for call in calls
                    ]
                    # who only sets, sets through the setter; who puts back borrows
                    if caller not in writers and (any(a.back for a in written) or _of_context_manager(caller)):
                        writers[caller] = written

    def _through_classes(self) -> None:
        """A context manager's ``__enter__`` (or ``__init__``) writes and its ``__exit__`` puts back."""
        owners = {place.name: place.owner for place in self._walked}
        calls = {place.name: {call.callee for call in place.calls} for place in self._walked}
        for target, writers in list(self._by_target.items()):
            parts: dict[str, dict[str, list[Access]]] = defaultdict(dict)
            for function, accesses in writers.items():
                owner = owners.get(function, "")
                if owner and target.rpartition(".")[0] != owner:
                    parts[function.rpartition(".")[0]][function.rpartition(".")[2]] = accesses
            for owner, methods in parts.items():
                for method in ("__enter__", "__init__", "__exit__"):
                    # what a method does through another of the same class
                    for callee in calls.get(f"{owner}.{method}", ()):
                        if callee.rpartition(".")[0] == owner and callee.rpartition(".")[2] in methods:
                            methods = {**methods, method: methods[callee.rpartition(".")[2]]}
                entering = [a for name in ("__enter__", "__init__") for a in methods.get(name, ())]
                leaving = [replace(a, back=True) for a in methods.get("__exit__", ())]
                if entering and leaving:
                    for name in ("__enter__", "__init__", "__exit__"):
                        writers.pop(f"{owner}.{name}", None)
                    writers[owner] = [replace(a, function=owner) for a in (*entering, *leaving)]

    # ---- readers

    def _readers(self) -> None:
        self._reading: dict[str, set[str]] = defaultdict(set)
        self._deciding: dict[str, set[str]] = defaultdict(set)
        self._saved_reads: dict[str, set[str]] = defaultdict(set)
        tellers: dict[str, set[str]] = defaultdict(set)
        for place in self._walked:
            for access in place.accesses:
                if access.how == "read" and (target := self._known(access.target)):
                    self._saved_reads[target].add(place.name)
                    (self._deciding if access.decides else self._reading)[target].add(place.name)
            for path in place.returns:
                if target := self._known(path):
                    tellers[place.name].add(target)
        for teller, told in tellers.items():
            for call in self._calls.get(teller, ()):
                for target in told:
                    self._saved_reads[target].add(call.function)
                    (self._deciding if call.decides else self._reading)[target].add(call.function)
        for functions in self._saved_reads.values():
            functions |= {name.rpartition(".")[0] for name in functions if name.endswith(("__enter__", "__init__"))}

    def _known(self, path: str) -> str | None:
        """The written target that a read of ``path`` reads: that, or what it is an attribute of."""
        while path not in self._by_target:
            path, dot, _ = path.rpartition(".")
            if not dot:
                return None
        return path

    # ---- what it is

    def _home(self, target: str) -> str | None:
        """Whose the value is; ``None`` for what is no state, such as a lock."""
        path = target
        while path:
            value = self._source.value(path)
            if value is not None:
                if value.kind == "lock":
                    return None
                if value.kind in ("thread", "context"):
                    return value.kind
                if value.made_by and (found := self._source.find(path)) is not None:
                    made = self._source.klass(resolve(found[0], value.made_by))
                    if made is not None and self._source.descends(*made, "threading.local"):
                        return "thread"
            path = path.rpartition(".")[0]
        found = self._source.find(target)
        if found is not None and found[0].installer:
            return self._installed_home(found[0])
        return "process"

    def _installed_home(self, module: Module) -> str:
        """Where an installer keeps a module's values: it is known to use context variables, or not."""
        installer = self._source.find(module.installer)
        contextual = installer is not None and "ContextVar" in installer[0].imports
        return "context" if contextual else "process"


def _form(accesses: list[Access], reads: bool) -> str:
    """How one function changes one global."""
    if any(access.how == "borrow" for access in accesses):
        return "swap"
    back = [access for access in accesses if access.back]
    there = [access for access in accesses if not access.back]
    if back and there:
        if all(access.how == "count" for access in accesses):
            return "bracket"
        return "swap" if reads or any(access.through or access.saved for access in back) else "bracket"
    hows = {access.how for access in accesses}
    if hows == {"count"}:
        return "count"
    if "assign" in hows or "delete" in hows:
        return "fill" if all(access.guarded for access in accesses) else "set"
    if "change" in hows:
        return "keep"
    return "count" if "count" in hows else "drop"


def _danger(writers: Mapping[str, str]) -> str:
    forms = set(writers.values())
    if forms & {"swap", "bracket"}:
        return "save-restore"
    if forms <= {"count"}:
        return "counter"
    if "fill" in forms and forms <= {"fill", "keep", "drop"}:
        return "lazy"
    if forms <= {"keep", "drop", "count"}:
        return "cache"
    return "setting"


def _reach(walked: list[Place], entries: set[str]) -> set[str]:
    """The last names of all that may be called from functions named ``entries``; more rather than less."""
    by_name: dict[str, set[str]] = defaultdict(set)
    for place in walked:
        *around, last = place.name.partition(":")[2].split(".")
        by_name[last] |= place.names
        if last.startswith("__") and around:
            by_name[around[-1]] |= place.names
        elif around and not place.owner:
            # a function within a function is made when that one runs
            by_name[around[-1]] |= place.names
    reached, todo = set(entries), list(entries)
    while todo:
        new = by_name[todo.pop()] - reached
        reached |= new
        todo.extend(new)
    return reached


def _named(function: str) -> set[str]:
    """The names by which a function may be called: its own, its class's for what runs unnamed, the one around it."""
    *around, last = function.partition(":")[2].split(".")
    return {last, *around[-1:]} if last.startswith("__") else {last}


def _by_caller(calls: list[Call]) -> Mapping[str, list[Call]]:
    found: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        found[call.function].append(call)
    return found


def _of_context_manager(function: str) -> bool:
    return function.rpartition(".")[2] in ("__enter__", "__init__", "__exit__", "__call__")


def counts(inventory: Inventory) -> dict[str, int]:
    """How many globals of the process there are of each danger, and how many are a thread's or a context's."""
    found = Counter(one.danger if one.home == "process" else one.home for one in inventory.globals.values())
    return {name: found[name] for name in (*DANGERS, *HOMES[1:])}


# ---- in a file: one line a global, in order of name


def dumps(inventory: Inventory, head: Mapping[str, Any]) -> str:
    """As text: JSON, the ``head`` on one line and then each global. Who reads is named for what is borrowed from the
    process only.
    """
    lines = []
    for name in sorted(inventory.globals):
        one = inventory.globals[name]
        entry: dict[str, Any] = {"is": one.kind, "home": one.home, "danger": one.danger}
        if one.lock:
            entry["lock"] = one.lock
        if one.reached:
            entry["reached"] = True
        entry["writers"] = dict(sorted(one.writers.items()))
        if one.home == "process" and one.borrowers:
            entry["readers"], entry["deciders"] = list(one.readers), list(one.deciders)
        lines.append(f"{json.dumps(name)}:{json.dumps(entry, separators=(',', ':'))}")
    body = ",\n".join(lines)
    first = json.dumps({**head, "torch": inventory.torch}, separators=(",", ":"))
    return f'{first[:-1]},"globals":{{\n{body}\n}}}}\n'


def loads(text: str) -> Inventory:
    """From text. Raises :class:`ValueError` with what is wrong."""
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']} is not {SCHEMA}, the one this version reads")
        found = {
            name: Global(
                name=name,
                kind=entry["is"],
                home=entry["home"],
                danger=entry["danger"],
                writers=dict(entry["writers"]),
                readers=tuple(entry.get("readers", ())),
                deciders=tuple(entry.get("deciders", ())),
                lock=entry.get("lock", ""),
                reached=entry.get("reached", False),
            )
            for name, entry in document["globals"].items()
        }
        if any(one.home not in HOMES or one.danger not in DANGERS for one in found.values()):
            raise ValueError("an unknown home or danger")
        return Inventory(document["torch"], found)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an inventory: {type(error).__name__}: {error}") from None
