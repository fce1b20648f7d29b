"""Fixes: what a user would change in their own code, one pasteable file each.

A fix file imports torch and the standard library only and defines one or more of

``compile_attention(flex_attention)``
    how the operator is compiled; without it, ``torch.compile(flex_attention)``;
``compile_mask(create_block_mask)``
    how block masks are built; without it, by ``create_block_mask`` as it is;
``guard(function)``
    what is put around each piece of the user's own code that compiles, traces or calls attention;
``guard_attention(function)``
    the same for compiled attention alone, where that is another thing; without it, ``guard``;
``before_threads(attention, examples)``
    what runs once, before any thread starts or process is forked; ``attention(query, key, value, mask_mod)`` is the
    user's own function and ``examples`` the argument tuples to prepare for;
``thread(body)``
    what a thread of the user's is started with, in place of ``body``; called by the thread that starts it;
``in_each_process()``
    what each of the user's processes runs first, where there are several; ``LOCAL_RANK`` is in its environment, as
    launchers set it.

Foreign code, another library that compiles or traces, is out of reach of them all. Fixes for races of processes are
in ``processes/``: a lock between threads is nothing to another process, so each group of races has its own.

What looks like a fix and is none is in ``traps/``.

Fixes are combined with ``+``, as in ``lock+isolate``: all guards, the first one outermost, and everything else in the
order of their names. Only one of them can say how the operator is compiled, and one how masks are built.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from repro.outcome import error_outcome

FOLDER = Path(__file__).parent
THREADS, PROCESSES = "threads", "processes"
_FOLDERS = {THREADS: FOLDER, PROCESSES: FOLDER / PROCESSES}
_TRAPS = FOLDER / "traps"
_PLACES = (*_FOLDERS.values(), _TRAPS)
NONE = "none"
COMPILES = "compile_attention"
BUILDS = "compile_mask"
_HOOKS = {COMPILES, BUILDS, "guard", "guard_attention", "before_threads", "thread", "in_each_process"}
# Combinations that are columns of the matrix, as most fixes themselves are, and what is measured apart.
COMBINED = ("side-by-side+isolate",)
_APART = (
    "compiled-mask",
    "compiled-mask+dynamic",
    "lock+dynamic",
    "lock+isolate",
    "lock+isolate+context+fullgraph",
    "lock+isolate+own-code",
    "lock+warmup+dynamic",
    "warmup+dynamic",
)

# Traps that can be told on CUDA alone.
ON_CUDA = ("warmup-other-device",)

# How many frames Dynamo may compile for a user's own calls under a fix, given the number of distinct shapes: a
# promise that the recompile oracle checks.
_COMPILES: dict[str, Callable[[int], int]] = {
    # All of them were compiled before the threads started.
    "warmup": lambda shapes: 0,
    "dynamic": lambda shapes: 1,
}


class UnknownFix(ValueError):
    """No fix of that name, or a file that is none; the message says what to do."""


@dataclass(frozen=True)
class Fix:
    """A fix by ``name``: the modules of which it is made, none for no fix at all."""

    name: str
    parts: tuple[ModuleType, ...] = ()

    def compile_attention(self, flex_attention: Callable[..., Any]) -> Callable[..., Any]:
        for part in self._with(COMPILES):
            return part.compile_attention(flex_attention)  # type: ignore[no-any-return]
        import torch

        return torch.compile(flex_attention)

    def compile_mask(self, create_block_mask: Callable[..., Any]) -> Callable[..., Any]:
        for part in self._with(BUILDS):
            return part.compile_mask(create_block_mask)  # type: ignore[no-any-return]
        return create_block_mask

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        for part in reversed(self._with("guard")):
            function = part.guard(function)
        return function

    def guard_attention(self, function: Callable[..., Any]) -> Callable[..., Any]:
        for part in reversed(self.parts):
            around = getattr(part, "guard_attention", getattr(part, "guard", None))
            function = around(function) if around else function
        return function

    def before_threads(self, attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
        examples = list(examples)
        for part in self._with("before_threads"):
            part.before_threads(attention, examples)

    def in_each_process(self) -> None:
        for part in self._with("in_each_process"):
            part.in_each_process()

    def thread(self, body: Callable[[], Any]) -> Callable[[], Any]:
        for part in reversed(self._with("thread")):
            body = part.thread(body)
        return body

    def _with(self, hook: str) -> list[ModuleType]:
        return [part for part in self.parts if hasattr(part, hook)]

    def promised_compiles(self, shapes: int, *, waiting: int = 0) -> int:
        """The most frames that Dynamo may compile for ``shapes`` calls that differ in their lengths only.

        ``waiting`` threads came while a compile was under way: each looked for a compiled frame before it waited, and
        compiles again. No two sizes may coincide (queries and keys, blocks and heads): torch takes what is equal once
        for equal always, and compiles anew when it is not.
        """
        promises = [_COMPILES[part](shapes) for part in parts(self.name) if part in _COMPILES]
        return waiting + min(promises, default=shapes)


def names(group: str | None = None) -> list[str]:
    """The columns of the matrix, or those for one group of races, without importing any.

    Each fix by its file name, then combinations. ``none`` is not one of them, nor is what :func:`apart` names.
    """
    # Threads on a device are threads.
    folders = _FOLDERS.values() if group is None else [_FOLDERS.get(group, FOLDER)]
    return [*(name for name in _in(folders) if name not in _APART), *(COMBINED if FOLDER in folders else ())]


def traps() -> list[str]:
    """What does not hold, by file name."""
    return [name for name in _in([_TRAPS]) if name not in ON_CUDA]


def beside() -> list[str]:
    """The fixes with a file of their own that are no column of the matrix."""
    return [name for name in _APART if len(parts(name)) == 1]


def apart() -> list[str]:
    """What is measured against every race between threads on the CPU, but is no column of the matrix."""
    return [*_APART, *traps()]


def _in(folders: Iterable[Path]) -> list[str]:
    files = {path.stem for folder in folders for path in folder.glob("*.py")}
    return sorted(stem.replace("_", "-") for stem in files if not stem.startswith("_"))


def parts(name: str) -> list[str]:
    """The fixes that ``name`` combines; often it is one alone."""
    return [name] if is_file(name) else name.split("+")


def is_file(name: str) -> bool:
    """Whether ``name`` is a file of the user's, whose name may hold a ``+``."""
    return name.endswith(".py") and ("+" not in name or Path(name).is_file())


def suits(name: str, group: str) -> bool:
    """Whether a fix is one for races of ``group``. No fix at all, and a fix of the user's own, suit any race."""
    here = _in([_FOLDERS[PROCESSES]] if group == PROCESSES else [FOLDER, _TRAPS])
    return name == NONE or all(is_file(part) or part in here for part in parts(name))


def summary(name: str) -> str:
    """The first line of a fix's docstring, without importing it; of a combination what it combines."""
    if len(parts(name)) > 1:
        return f"{' and '.join(parts(name))} together."
    text = ast.get_docstring(ast.parse(path(name).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def path(name: str) -> Path:
    """The file of one fix, of the user's own too."""
    if is_file(name):
        return Path(name)
    file = f"{name.replace('-', '_')}.py"
    return next(folder / file for folder in _PLACES if (folder / file).is_file())


def load(name: str) -> Fix:
    """The fix called ``name``, the one in the file ``name`` if that ends in ``.py``, or several joined by ``+``.

    Raises :class:`UnknownFix`.
    """
    check(name)
    if name == NONE:
        return Fix(NONE)
    return Fix(Path(name).stem if is_file(name) else name, tuple(map(_module, parts(name))))


def _module(name: str) -> ModuleType:
    if is_file(name):
        return _from_file(Path(name))
    package = ".".join([__name__, *path(name).parent.relative_to(FOLDER).parts])
    return importlib.import_module(f"{package}.{path(name).stem}")


def check(name: str, group: str | None = None) -> None:
    """Raises :class:`UnknownFix` when there is no such fix for races of ``group``, or its file is none.

    Imports nothing.
    """
    combined = parts(name)
    for part in combined:
        _check_one(part, combined)
    if len(combined) > 1:
        if twice := next((part for part in combined if combined.count(part) > 1), None):
            raise UnknownFix(f"{name} has {twice} twice: once will do")
        for hook, what in ((COMPILES, "attention is compiled"), (BUILDS, "masks are built")):
            saying = [part for part in combined if hook in _defined(path(part))]
            if len(saying) > 1:
                raise UnknownFix(f"{' and '.join(saying)} each say how {what}: take one of them")
    if group is not None and not suits(name, group):
        raise UnknownFix(f"{name} is no fix for races of {group}; those are: {', '.join(names(group))}")


def _check_one(name: str, combined: list[str]) -> None:
    known = [NONE, *_in(_FOLDERS.values())]
    if is_file(name):
        if not Path(name).is_file():
            raise UnknownFix(f"no such fix file: {name}")
        if not _HOOKS.intersection(_defined(Path(name))):
            raise UnknownFix(f"{name} is no fix: it defines none of {', '.join(sorted(_HOOKS))}")
    elif name == NONE and len(combined) > 1:
        raise UnknownFix(f"{NONE} is no fix at all, and goes with none: leave it out")
    elif name not in [*known, *traps(), *ON_CUDA]:
        # Few names of fixes are as far from "none" as what is meant for one of them.
        meant = get_close_matches(name.lower(), [NONE], cutoff=0.8)
        near = meant or get_close_matches(name, known[1:], n=3, cutoff=0.4)
        near += [f"the trap {trap}" for trap in get_close_matches(name, [*traps(), *ON_CUDA], n=1, cutoff=0.85)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join([NONE, *names()])}"
        raise UnknownFix(f"no fix is called {name!r}; {hint}")


def _defined(file: Path) -> tuple[str, ...]:
    """The global names that a fix file binds or uses."""
    try:
        return compile(file.read_bytes(), str(file), "exec").co_names
    except OSError as error:
        raise UnknownFix(f"cannot read {file}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise UnknownFix(f"{file} is not valid Python: {error}") from None


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fix_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UnknownFix(f"{path} cannot be imported: {error_outcome(error).reason}; mend it") from None
    return module
