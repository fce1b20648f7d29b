"""A user's own callable in a script: the module that has it, as it stands there, and what it is called on.

A reader of the script has torch and nothing else, so a module that imports more is refused, and so is one that gives
a name to something which the script needs for itself.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
import re
import symtable
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

from repro import audit
from repro.interleave.schedule import ScheduleError
from repro.outcome import Kind
from repro.recording import Recording
from repro.workloads import Workload

# What a script can look at: errors, values, and keys that nobody may read.
_SHOWS = {
    Kind.ERROR: "a call fails",
    Kind.POISONED: "calls fail from then on",
    Kind.DENSE: "a call computes every score",
    Kind.WRONG: "a call gives wrong values",
    Kind.CRASH: "the process dies",
    Kind.HANG: "they wait for each other",
}
# What comes with torch.
_EVERYBODYS = {"torch", "typing_extensions", *sys.stdlib_module_names}


@dataclass(frozen=True)
class Audited:
    """What a script is made of, beside the schedule: ``future`` are the features that ``source`` asks of Python.

    ``keys`` are those of each thread's call, ``shows`` says in words what an audit saw.
    """

    module: str
    path: str
    future: tuple[str, ...]
    source: str
    workload: Workload
    keys: dict[str, int]
    trains: bool
    hangs: bool
    shows: str

    @property
    def title(self) -> str:
        return f"Threads that call compiled flex_attention at the same time: {self.shows}."

    def check_names(self, script: str) -> None:
        """That the ``script`` around it means the same by each name that both have.

        Raises :class:`repro.interleave.ScheduleError`.
        """
        mine, scripts = _bound(self.source), _bound(script)
        used = {node.id for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Name)}
        needed = {*scripts, *(used & set(dir(builtins)))}
        same = {name for name, meaning in mine.items() if meaning and scripts.get(name) == meaning}
        if twice := sorted(set(mine) & needed - same):
            raise ScheduleError(
                f"a script has a {twice[0]!r} of its own: call that of {self.module} something else, and audit it"
            )
        if self.path.partition(".")[0] not in mine:
            raise ScheduleError(f"{self.module} has no {self.path.partition('.')[0]!r} any more: audit it again")


def of(recording: Recording) -> Audited:
    """Read the module of what was audited, without importing it.

    Raises :class:`repro.interleave.ScheduleError` where no script can be made of it.
    """
    target = audit.parse(recording.race)
    if target.foreign:
        raise ScheduleError(
            f"{recording.race}: export the race that audit --foreign names; it needs no code of yours"
        )
    if recording.outcome in (Kind.OK, Kind.INCONCLUSIVE):
        raise ScheduleError(f"nothing breaks {target.name} in what was recorded, so there is nothing to report")
    if recording.outcome not in _SHOWS:
        raise ScheduleError(
            f"{target.name} came to {recording.outcome}, and a script looks at errors and values alone: attach what "
            "audit wrote"
        )
    sizes = recording.workloads or ()
    names = audit.NAMES[: len(sizes)]
    (device,) = recording.devices if len(recording.devices) == 1 else ("",)
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ScheduleError(
            f"{recording.race} was called on {', '.join(recording.devices)}: a script needs one device"
        )
    if len(sizes) < 2 or sizes != tuple(replace(size, device=device) for size in audit.workloads(len(names))):
        raise ScheduleError(f"{recording.race} was called on what no script can give it; audit it again")
    if absent := {name for switch in recording.asked.switches for name in (switch.thread, switch.to)} - {*names}:
        raise ScheduleError(f"{recording.race}: no thread is called {min(absent)}; those are {', '.join(names)}")
    future, source = _source(target.module)
    return Audited(
        module=target.module,
        path=target.path,
        future=future,
        source=source,
        workload=sizes[0],
        keys={name: size.keys for name, size in zip(names, sizes, strict=True)},
        trains=audit.BACKWARD in target.extras,
        hangs=recording.outcome is Kind.HANG,
        shows=_SHOWS[recording.outcome],
    )


def _source(module: str) -> tuple[tuple[str, ...], str]:
    """What ``module`` asks of Python's future, and its text without that: a script has only one beginning."""
    file = _file(module)
    try:
        text = importlib.util.decode_source(file.read_bytes())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ScheduleError(f"{module} cannot be read: {str(error) or type(error).__name__}") from None
    # Not splitlines, which takes more for the end of a line than Python does.
    lines = text.split("\n")
    future: list[str] = []
    asking = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    for node in reversed(asking):
        end = node.end_lineno or node.lineno
        beside = lines[node.lineno - 1].encode()[: node.col_offset], lines[end - 1].encode()[node.end_col_offset :]
        if beside[0].strip() or not re.fullmatch(rb"\s*(#.*)?", beside[1]):
            raise ScheduleError(f"{module}: give what is imported from __future__ a line of its own")
        del lines[node.lineno - 1 : end]
        future[:0] = [alias.name for alias in node.names]
    for name in _imported(tree):
        if name == "*":
            raise ScheduleError(f"{module} imports *: name what it needs, and audit that")
        if name.partition(".")[0] not in _EVERYBODYS:
            raise ScheduleError(
                f"{module} imports {name}, which a reader of the script has not: put the callable into a module that "
                "imports torch and the standard library only, and audit that"
            )
    return tuple(future), "\n".join(lines).strip("\n")


def _file(module: str) -> Path:
    """Where it is, found as an import would find it, but importing none of the packages that it is in."""
    name, *below = module.split(".")
    spec = PathFinder.find_spec(name, [os.getcwd()]) or importlib.util.find_spec(name)
    for part in below:
        if spec is not None:
            name, folders = f"{name}.{part}", spec.submodule_search_locations
            spec = None if folders is None else PathFinder.find_spec(name, folders)
    if spec is None:
        raise ScheduleError(f"there is no module {name}; run this in the folder that it was audited in")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise ScheduleError(f"{module} has no Python file that could be put into a script")
    return Path(spec.origin)


def _imported(node: ast.AST) -> Iterator[str]:
    """The modules that have to be there, ``*`` for all that one of them has."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        inside: Sequence[ast.AST] = node.orelse
    elif isinstance(node, ast.Try) and any("Import" in ast.unparse(one.type) for one in node.handlers if one.type):
        inside = [*node.handlers, *node.orelse, *node.finalbody]
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    elif isinstance(node, ast.ImportFrom):
        yield "." * node.level + (node.module or "")
        yield from (alias.name for alias in node.names if alias.name == "*")
        return
    else:
        inside = list(ast.iter_child_nodes(node))
    for each in inside:
        yield from _imported(each)


def _bound(text: str) -> dict[str, str]:
    """The names of a module, and of those that an import at its top gives a meaning, what that is."""
    imported: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            # "import torch.fx" is "torch" too.
            imported |= {
                alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else "module"
                for alias in node.names
            }
        elif isinstance(node, ast.ImportFrom):
            imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    tables = [symtable.symtable(text, "script", "exec")]
    names = {
        symbol.get_name()
        for symbol in tables[0].get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    while tables:
        table = tables.pop()
        names |= {one.get_name() for one in table.get_symbols() if one.is_declared_global() and one.is_assigned()}
        tables += table.get_children()
    return {name: imported.get(name, "") for name in names}
