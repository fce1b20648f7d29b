"""A user's own callable in a script: the module that has it, as it stands there, and what it is called on.

A reader of the script has torch and nothing else, so a module that imports more is refused, and so is one that gives
a name to something which the script needs for itself.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from repro import audit
from repro.interleave.schedule import ScheduleError
from repro.outcome import Kind
from repro.recording import Recording
from repro.workloads import Workload

_SHOWS = {
    Kind.ERROR: "a call fails",
    Kind.POISONED: "calls fail from then on",
    Kind.DENSE: "a call computes every score",
    Kind.WASTEFUL: "a call takes memory for every score",
    Kind.WRONG: "a call gives wrong values",
    Kind.CRASH: "the process dies",
    Kind.HANG: "they wait for each other",
}


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


def of(recording: Recording) -> Audited:
    """Read the module of what was audited, without importing it.

    Raises :class:`repro.interleave.ScheduleError` where no script can be made of it, and
    :class:`repro.audit.BadTarget` where it is not there.
    """
    target = audit.parse(recording.race)
    if target.foreign:
        raise ScheduleError(
            f"{recording.race}: export the race that audit --foreign names; it needs no code of yours"
        )
    if recording.outcome not in _SHOWS:
        raise ScheduleError(f"nothing breaks {target.name} in what was recorded, so there is nothing to report")
    sizes = recording.workloads or ()
    if not sizes or {size.mask for size in sizes} != {"causal"}:
        raise ScheduleError(f"{recording.race} was called on what no script can give it; audit it again")
    if {size.device for size in sizes} != set(recording.devices) or not re.fullmatch(
        r"cpu|cuda(:\d+)?", sizes[0].device
    ):
        raise ScheduleError(
            f"{recording.race} was called on {', '.join(recording.devices)}: a script needs one device"
        )
    future, source = _source(target.module)
    return Audited(
        module=target.module,
        path=target.path,
        future=future,
        source=source,
        workload=sizes[0],
        keys={name: size.keys for name, size in zip(audit.NAMES, sizes, strict=False)},
        trains=audit.BACKWARD in target.extras,
        hangs=recording.outcome is Kind.HANG,
        shows=_SHOWS[recording.outcome],
    )


def check_names(source: str, script: str) -> None:
    """That ``source`` and the ``script`` around it mean the same by each name that both have."""
    mine, scripts = dict(_named(ast.parse(source))), dict(_named(ast.parse(script)))
    twice = sorted(name for name, meaning in mine.items() if scripts.get(name, meaning) != meaning)
    if twice:
        raise ScheduleError(f"a script has a {twice[0]!r} of its own: call yours something else to export it")


def _source(module: str) -> tuple[tuple[str, ...], str]:
    """What ``module`` asks of Python's future, and its text without that, its docstring and its main."""
    file = _file(module)
    try:
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError) as error:
        raise ScheduleError(f"{module} cannot be read: {error}") from None
    future: list[str] = []
    lines = text.splitlines()
    for number, node in enumerate(tree.body):
        asks = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if asks:
            future += [alias.name for alias in node.names]  # type: ignore[attr-defined]
        if asks or (number == 0 and ast.get_docstring(tree) is not None) or _runs_it(node):
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    for part in ast.walk(tree):
        if missing := next((name for name in _imported(part) if not _everybody_has(name)), None):
            raise ScheduleError(
                f"{module} imports {missing}, which a reader of the script has not: put the callable into a module "
                "that imports torch and the standard library only, and audit that"
            )
    return tuple(future), "\n".join(lines).strip()


def _file(module: str) -> Path:
    """Where it is, found as an import would find it, but importing none of the packages that it is in."""
    folders: Sequence[str] | None = [os.getcwd(), *sys.path]
    name, origin = "", None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = None if folders is None else PathFinder.find_spec(name, folders)
        if spec is None:
            raise ScheduleError(f"there is no module {name}; run this in the folder that it was audited in")
        folders, origin = spec.submodule_search_locations, spec.origin
    if origin is None or not origin.endswith(".py"):
        raise ScheduleError(f"{module} has no Python file that could be put into a script")
    return Path(origin)


def _runs_it(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield "." * node.level + (node.module or "")


def _everybody_has(module: str) -> bool:
    package = module.partition(".")[0]
    return package == "torch" or package in sys.stdlib_module_names


def _named(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that stand at the top of a module, and what gives each of them its meaning."""
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                # "import torch.fx" is "torch" too.
                whole = source + alias.name
                yield alias.asname or alias.name.partition(".")[0], whole if source or alias.asname else "module"
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, f"line {node.lineno}"
        else:
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    yield part.id, f"line {part.lineno}"
