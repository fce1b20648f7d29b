"""Points inside a function of torch, at exactly the places where it borrows a global: after it has changed it
(``in``), and before it puts it back (``out``).

A seam stands around a function; here a thread must hand over within one. So the function is compiled once more from
its own source, with a call at each of the two places, and gets the new code in place: whoever holds the function, by
whatever name, runs it. Lines and file stay as they were.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, TracebackType
from typing import Any

from repro.interleave.patches import Patches
from repro.surface.accesses import Place
from repro.surface.inventory import Global
from repro.surface.source import Function

_HOOK = "__repro_point__"


class NoPoint(Exception):
    """There is no place to stand in this function; the message says why."""


@dataclass(frozen=True)
class Spot:
    """A statement of ``function``, counted by its ``line``: where it stands ``in`` or ``out``.

    ``around`` is a ``with``, a decorator or an ``enter_context`` that borrows: then what follows is in.
    """

    function: str
    line: int
    out: bool
    around: bool = False


def spots(walked: Iterable[Place], one: Global, borrower: str) -> list[Spot]:
    """Where ``borrower`` borrows, given the functions of its module. Raises :class:`NoPoint`."""
    found: list[Spot] = []
    for place in walked:
        method = place.name.rpartition(".")[2]
        if place.name != borrower and not (
            place.name.rpartition(".")[0] == borrower and method in ("__enter__", "__init__", "__exit__")
        ):
            continue
        leaving = method == "__exit__" and place.name != borrower
        for access in place.accesses:
            if access.target == one.name and access.how != "read":
                out = leaving or access.back
                found.append(Spot(place.name, access.line, out, access.how == "borrow"))
        for call in place.calls:
            # a setter, or what the class does through another of its methods
            writes = call.callee in one.writers or (leaving and call.callee.startswith(f"{borrower}."))
            if writes and call.callee != borrower:
                found.append(Spot(place.name, call.line, leaving or call.back))
    if not any(spot.around for spot in found):
        entered = {spot.function for spot in found if spot.function.endswith(".__enter__")}
        if entered:
            # made is not entered: the window of an object opens with its with
            found = [spot for spot in found if not spot.function.endswith(".__init__")]
        if not any(spot.out for spot in found) or all(spot.out for spot in found):
            raise NoPoint(f"{borrower}: no place after a change and before it is put back")
    return found


class Points:
    """A context manager: while it lasts, ``reach(name, out)`` is called at the spots of each of ``borrowed``.

    ``borrowed`` maps a name to spots. Must be entered before the functions run.
    """

    def __init__(self, borrowed: dict[str, list[Spot]], reach: Callable[[str, bool], None]) -> None:
        self._borrowed, self._reach = borrowed, reach
        self._patches = Patches()
        self.lost: dict[str, str] = {}

    def __enter__(self) -> Points:
        by_module: dict[str, dict[str, list[tuple[str, Spot]]]] = {}
        for name, found in self._borrowed.items():
            for spot in found:
                module = spot.function.partition(":")[0]
                by_module.setdefault(module, {}).setdefault(spot.function, []).append((name, spot))
        for module, wanted in by_module.items():
            try:
                self._instrument(importlib.import_module(module), wanted)
            except (ImportError, OSError, TypeError, ValueError) as error:
                for marks in wanted.values():
                    self.lost |= {name: f"{module}: {type(error).__name__}: {error}" for name, _ in marks}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.__exit__(kind, error, trace)

    def _instrument(self, module: ModuleType, wanted: dict[str, list[tuple[str, Spot]]]) -> None:
        tree = ast.parse(Path(inspect.getfile(module)).read_bytes())
        functions: dict[str, FunctionType] = {}
        for dotted, marks in wanted.items():
            try:
                function = _function(module, dotted.partition(":")[2])
                outer = _named(tree, function.__qualname__.split("."))
                for name, spot in marks:
                    if not _Mark(name, spot).put(outer):
                        raise NoPoint(f"{dotted}: line {spot.line} was not found again")
            except NoPoint as error:
                self.lost |= dict.fromkeys((name for name, _ in marks), str(error))
            else:
                functions[dotted] = function
        ast.fix_missing_locations(tree)
        codes = list(_codes(compile(tree, inspect.getfile(module), "exec", dont_inherit=True)))
        vars(module)[_HOOK] = self._reach
        for dotted, function in functions.items():
            new = next((code for code in codes if _same(code, function.__code__)), None)
            if new is None:
                self.lost |= dict.fromkeys(
                    (name for name, _ in wanted[dotted]), f"{dotted}: its code is not the file's"
                )
            else:
                self._replace(dotted, function, new.replace(co_filename=function.__code__.co_filename))

    def _replace(self, dotted: str, function: FunctionType, new: CodeType) -> None:
        def put(code: Any) -> None:
            function.__code__ = code

        self._patches.put(f"{dotted}.__code__", lambda: function.__code__, put, new)


def _function(module: ModuleType, path: str) -> FunctionType:
    """The function at ``path``; of one within a function the one around it, whose code holds it."""
    found: Any = module
    for part in path.split("."):
        try:
            found = inspect.getattr_static(found, part)
        except AttributeError:
            break
    if isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    # what decorators put around it: the generator of a context manager, what compatibility() marks
    found = inspect.unwrap(found)
    if not isinstance(found, FunctionType):
        raise NoPoint(f"{path} is no Python function")
    if found.__module__ != module.__name__:
        raise NoPoint(f"{path} is hidden by a decorator")
    return found


def _named(tree: ast.AST, path: list[str]) -> ast.AST:
    for part in path:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == part:
                tree = node
                break
    return tree


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _same(code: CodeType, old: CodeType) -> bool:
    return (code.co_name, code.co_firstlineno, code.co_freevars) == (
        old.co_name,
        old.co_firstlineno,
        old.co_freevars,
    )


class _Mark:
    """Puts the calls at one spot."""

    def __init__(self, name: str, spot: Spot) -> None:
        self._name, self._spot = name, spot
        self._done = False

    def put(self, tree: ast.AST) -> bool:
        for node in ast.walk(tree):
            decorators = node.decorator_list if isinstance(node, Function) and self._spot.around else []
            if isinstance(node, Function) and self._spot.line in [one.lineno for one in decorators]:
                self._wrap(node)
                break
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt) and self._in(block):
                    return True
        return self._done

    def _in(self, block: list[ast.stmt]) -> bool:
        for index, statement in enumerate(block):
            if statement.lineno != self._spot.line:
                continue
            if self._spot.around and isinstance(statement, (ast.With, ast.AsyncWith)):
                self._wrap(statement)
                return True
            block.insert(index if self._spot.out else index + 1, self._call(self._spot.out, statement))
            self._done = True
            return True
        return False

    def _wrap(self, node: ast.With | ast.AsyncWith | Function) -> None:
        """The whole body: in at its beginning, out at its end, however it ends."""
        out = ast.Try(body=node.body, handlers=[], orelse=[], finalbody=[self._call(True, node)])
        node.body = [self._call(False, node), ast.copy_location(out, node.body[0])]
        self._done = True

    def _call(self, out: bool, near: ast.stmt) -> ast.stmt:
        arguments: list[ast.expr] = [ast.Constant(self._name), ast.Constant(out)]
        call = ast.Expr(ast.Call(ast.Name(_HOOK, ast.Load()), arguments, []))
        return ast.copy_location(call, near)
