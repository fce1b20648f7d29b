"""What changed on the surface between two releases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from repro.surface.inventory import Global, Inventory

# The kinds of change, in the order in which they deserve a look.
KINDS = {
    "new": "was not there, or not as the process's",
    "shared": "belonged to a thread or a context, and belongs to the process now",
    "worse": "is changed in a more dangerous way: for a while and put back, or by more functions",
    "writer": "one more function writes it",
    "reader": "one more function reads it",
    "moved": "belonged to the process, and belongs to a thread or a context now",
    "better": "is changed in a less dangerous way",
    "gone": "is not there any more",
}


@dataclass(frozen=True)
class Change:
    """One change of one global: ``what`` says it in words; ``suspect`` whether it is one, before or after."""

    kind: str
    name: str
    what: str
    suspect: bool


@dataclass(frozen=True)
class Difference:
    """All changes from one release to another, the suspects first."""

    old: str
    new: str
    changes: tuple[Change, ...]

    @property
    def suspects(self) -> list[Change]:
        return [change for change in self.changes if change.suspect]

    @property
    def turns(self) -> list[Change]:
        """The suspects that came, went, or became somebody else's: where a race may have come or gone."""
        return [change for change in self.suspects if change.kind not in ("writer", "reader")]

    @property
    def counts(self) -> Mapping[str, int]:
        """How many changes there are of each kind."""
        found = Counter(change.kind for change in self.changes)
        return {kind: found[kind] for kind in KINDS if kind in found}


def between(old: Inventory, new: Inventory) -> Difference:
    order = [*KINDS]
    found = sorted(
        _changes(old, new),
        key=lambda change: (not change.suspect, order.index(change.kind), change.name, change.what),
    )
    return Difference(old.torch, new.torch, tuple(found))


def _changes(old: Inventory, new: Inventory) -> Iterator[Change]:
    for name in sorted({*old.globals, *new.globals}):
        was, now = old.globals.get(name), new.globals.get(name)
        if was is None and now is not None:
            if not (now.home != "process" and _was(now, old, new)):
                yield Change("new", name, _in_words(now), now.suspect)
        elif now is None and was is not None:
            heir = _heir(was, old, new)
            if heir is not None:
                yield Change("moved", name, f"now {_whose(heir)}: {heir.name}", was.suspect)
            else:
                yield Change("gone", name, f"was {_in_words(was)}", was.suspect)
        elif was is not None and now is not None:
            yield from _changed(was, now)


def _changed(was: Global, now: Global) -> Iterator[Change]:
    suspect = was.suspect or now.suspect
    if was.home != now.home:
        kind = "shared" if now.home == "process" else "moved"
        yield Change(kind, now.name, f"was {_whose(was)}, now {_whose(now)}", suspect)
    if now.home != "process":
        return
    if was.suspect != now.suspect or was.danger != now.danger:
        kind = "worse" if now.rank < was.rank else "better"
        yield Change(kind, now.name, f"was {_in_words(was)}, now {_in_words(now)}", suspect)
    for function in sorted({*now.writers} - {*was.writers}):
        yield Change("writer", now.name, f"written by {function} ({now.writers[function]})", suspect)
    if was.borrowers and now.borrowers:
        known = {*was.readers, *was.deciders, *was.writers}
        for function in sorted({*now.readers, *now.deciders} - known):
            yield Change("reader", now.name, f"read by {function}", suspect)


def _heir(gone: Global, old: Inventory, new: Inventory) -> Global | None:
    """What took the place of a global that is gone: new, of a thread or a context, with a function in common."""
    if gone.home != "process":
        return None
    for one in new.globals.values():
        new_here = one.home != "process" and one.name not in old.globals
        if new_here and _module(one) == _module(gone) and _functions(one) & _functions(gone):
            return one
    return None


def _was(heir: Global, old: Inventory, new: Inventory) -> bool:
    return any(
        name not in new.globals and (found := _heir(one, old, new)) is not None and found.name == heir.name
        for name, one in old.globals.items()
    )


def _module(one: Global) -> str:
    """The module of what belongs to it: by where its writers say that they are, else all but the last name."""
    own = [
        module
        for module in (function.partition(":")[0] for function in one.writers)
        if one.name.startswith(f"{module}.")
    ]
    return max(own, key=len, default=one.name.rpartition(".")[0])


def _functions(one: Global) -> set[str]:
    return {*one.writers, *one.readers, *one.deciders}


def _whose(one: Global) -> str:
    return {"process": "the process's", "thread": "a thread's", "context": "a context's"}[one.home]


def _in_words(one: Global) -> str:
    words = [one.danger if one.home == "process" else f"{one.danger} of {_whose(one).removesuffix(chr(39) + 's')}"]
    if one.lock:
        words.append(f"under {one.lock.rpartition('.')[2]}")
    by = one.borrowers or sorted(one.writers)
    words.append(f"by {by[0]}" + (f" and {len(by) - 1} more" if len(by) > 1 else ""))
    return " ".join(words)
