"""Fixes: what a user would change in their own code, one pasteable file each.

A fix file imports torch and the standard library only and defines one or more of

``compile_attention(flex_attention)``
    how the operator is compiled; without it, ``torch.compile(flex_attention)``;
``guard(function)``
    what is put around each piece of the user's own code that compiles, traces or calls attention;
``before_threads(attention, examples)``
    what runs once, before any thread starts or process is forked; ``attention(query, key, value, mask_mod)`` is the
    user's own function and ``examples`` the argument tuples to prepare for;
``thread(body)``
    what a thread of the user's is started with, in place of ``body``; called by the thread that starts it;
``in_each_process()``
    what each of the user's processes runs first, where there are several; ``LOCAL_RANK`` is in its environment, as
    launchers set it.

Foreign code, another library that compiles or traces, is out of reach of all five. Fixes for races of processes are
in ``processes/``: a lock between threads is nothing to another process, so each group of races has its own.
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

FOLDER = Path(__file__).parent
THREADS, PROCESSES = "threads", "processes"
_FOLDERS = {THREADS: FOLDER, PROCESSES: FOLDER / PROCESSES}
NONE = "none"
_HOOKS = {"compile_attention", "guard", "before_threads", "thread", "in_each_process"}

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
    """A fix by ``name``. ``hooks`` is its module, ``None`` for no fix at all."""

    name: str
    hooks: ModuleType | None

    def compile_attention(self, flex_attention: Callable[..., Any]) -> Callable[..., Any]:
        if hasattr(self.hooks, "compile_attention"):
            return self.hooks.compile_attention(flex_attention)  # type: ignore[no-any-return, union-attr]
        import torch

        return torch.compile(flex_attention)

    def guard(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if hasattr(self.hooks, "guard"):
            return self.hooks.guard(function)  # type: ignore[no-any-return, union-attr]
        return function

    def before_threads(self, attention: Callable[..., Any], examples: Iterable[tuple[Any, ...]]) -> None:
        if hasattr(self.hooks, "before_threads"):
            self.hooks.before_threads(attention, examples)  # type: ignore[union-attr]

    def in_each_process(self) -> None:
        if hasattr(self.hooks, "in_each_process"):
            self.hooks.in_each_process()  # type: ignore[union-attr]

    def thread(self, body: Callable[[], Any]) -> Callable[[], Any]:
        if hasattr(self.hooks, "thread"):
            return self.hooks.thread(body)  # type: ignore[no-any-return, union-attr]
        return body

    def promised_compiles(self, shapes: int, *, waiting: int = 0) -> int:
        """The most frames that Dynamo may compile for ``shapes`` calls that differ in their lengths only.

        ``waiting`` threads came while a compile was under way: each looked for a compiled frame before it waited, and
        compiles again. No two sizes may coincide (queries and keys, blocks and heads): torch takes what is equal once
        for equal always, and compiles anew when it is not.
        """
        return waiting + (_COMPILES[self.name](shapes) if self.name in _COMPILES else shapes)


def names(group: str | None = None) -> list[str]:
    """The fixes that there are, or those for one group of races, by file name, without importing any.

    ``none`` is not one of them.
    """
    # Threads on a device are threads.
    folders = _FOLDERS.values() if group is None else [_FOLDERS.get(group, FOLDER)]
    files = {path.stem for folder in folders for path in folder.glob("*.py")}
    return sorted(stem.replace("_", "-") for stem in files if not stem.startswith("_"))


def suits(name: str, group: str) -> bool:
    """Whether a fix is one for races of ``group``. No fix at all, and a fix of the user's own, suit any race."""
    return name == NONE or name.endswith(".py") or name in names(group)


def summary(name: str) -> str:
    """The first line of a fix's docstring, without importing it."""
    text = ast.get_docstring(ast.parse(path(name).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def path(name: str) -> Path:
    """The file of the fix called ``name``."""
    file = f"{name.replace('-', '_')}.py"
    return next(folder / file for folder in _FOLDERS.values() if (folder / file).is_file())


def load(name: str) -> Fix:
    """The fix called ``name``, or the one in the file ``name`` if that ends in ``.py``.

    Raises :class:`UnknownFix`.
    """
    check(name)
    if name == NONE:
        return Fix(NONE, None)
    if name.endswith(".py"):
        return _from_file(Path(name))
    package = __name__ if path(name).parent == FOLDER else f"{__name__}.{PROCESSES}"
    return Fix(name, importlib.import_module(f"{package}.{path(name).stem}"))


def check(name: str, group: str | None = None) -> None:
    """Raises :class:`UnknownFix` when there is no such fix for races of ``group``, or its file is none.

    Imports nothing.
    """
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise UnknownFix(f"no such fix file: {name}")
        _check_source(name)
    elif name not in [NONE, *names()]:
        near = get_close_matches(name, [NONE, *names()], n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join([NONE, *names()])}"
        raise UnknownFix(f"no fix is called {name!r}; {hint}")
    if group is not None and not suits(name, group):
        raise UnknownFix(f"{name} is no fix for races of {group}; those are: {', '.join(names(group))}")


def _check_source(name: str) -> None:
    try:
        code = compile(Path(name).read_bytes(), name, "exec")
    except OSError as error:
        raise UnknownFix(f"cannot read {name}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise UnknownFix(f"{name} is not valid Python: {error}") from None
    if not _HOOKS.intersection(code.co_names):
        raise UnknownFix(f"{name} is no fix: it defines none of {', '.join(sorted(_HOOKS))}")


def _from_file(path: Path) -> Fix:
    spec = importlib.util.spec_from_file_location(f"fix_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return Fix(path.stem, module)
