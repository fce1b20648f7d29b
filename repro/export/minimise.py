"""Takes out of a script what its race does not need: threads, hand-overs, sizes, lines.

A step is taken only when the script then shows its race ``times`` times of ``times``, so that a race does not get
rare while it shrinks, and is clean with its hand-overs taken out: what fails without them is not the race. Candidates
come in a fixed order, larger ones first.

What is judged by stays as it is: ``test_fn``, and everything after it.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from repro.export.script import Script
from repro.export.trial import Trial, run
from repro.interleave.shrink import Unsteady

_COUNT = re.compile(r"^HAND_OVERS = \d+$", re.MULTILINE)
_NUMBER = re.compile(r"(?<=hand_over\()\d+")
_RUN = re.compile(r"run_threads\([\w, ]+\)$", re.MULTILINE)
Run = Callable[[str], Trial]
# What was taken out, and the script without it.
Candidate = tuple[str, str]


def minimise(script: Script, *, times: int, run: Run = run) -> Script:
    """The smallest script that single steps lead to.

    Raises :class:`repro.interleave.shrink.Unsteady` where the script itself does not pass.
    """
    text = script.text
    if not _passes(text, times, run):
        raise Unsteady(
            f"{script.file} cannot be minimised: it must show its race {times} times of {times} to begin with, and "
            "never without its hand-overs"
        )
    for candidates in (_fewer_threads, _fewer_hand_overs, _smaller_sizes, _fewer_lines):
        needed: set[str] = set()
        while found := next(_steps(candidates(text), needed, times, run), None):
            text = found
    return replace(script, text=text, numbers={})


def _steps(candidates: Iterator[Candidate], needed: set[str], times: int, run: Run) -> Iterator[str]:
    for part, candidate in candidates:
        if part not in needed:
            if _passes(candidate, times, run):
                yield candidate
            needed.add(part)


def _passes(text: str, times: int, run: Run) -> bool:
    return all(run(text).shown for _ in range(times)) and run(without_hand_overs(text)).clean


def without_hand_overs(text: str) -> str:
    """The control: the same threads, one after the other."""
    while found := next(iter(_hand_overs(ast.parse(text))), None):
        text = _settled(_without(text, [found]))
    return text


def _fewer_threads(text: str) -> Iterator[Candidate]:
    tree = ast.parse(text)
    call = next(node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "run_threads")
    names = [_name(argument) for argument in call.args]
    for left_out in names if len(names) > 2 else []:
        kept = ", ".join(name for name in names if name != left_out)
        hers = [node for node in _scenario(tree) if isinstance(node, ast.FunctionDef) and node.name == left_out]
        calls = [node for node in _hand_overs(tree) if repr(left_out) in ast.unparse(node)]
        # Those inside her own function go with it.
        calls = [node for node in calls if not any(each.lineno < node.lineno <= _end(each) for each in hers)]
        fewer = re.sub(
            r"run_threads\([\w, ]+\)$", f"run_threads({kept})", _without(text, [*hers, *calls]), flags=re.M
        )
        yield from _sound(left_out, fewer)


def _fewer_hand_overs(text: str) -> Iterator[Candidate]:
    for node in _hand_overs(ast.parse(text)):
        yield from _sound(_NUMBER.sub("", ast.unparse(node)), _without(text, [node]))


def _smaller_sizes(text: str) -> Iterator[Candidate]:
    """Each number halved, wherever the threads' code has it."""
    tree = ast.parse(text)
    ours = {id(constant) for node in _hand_overs(tree) for constant in ast.walk(node)}
    places = [
        node
        for statement in _scenario(tree)
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1 and id(node) not in ours
    ]
    for size in sorted({ast.unparse(node) for node in places}, key=int, reverse=True):
        lines = text.splitlines(keepends=True)
        same = [node for node in places if ast.unparse(node) == size]
        for node in sorted(same, key=lambda node: (node.lineno, node.col_offset), reverse=True):
            # Columns are counted in bytes.
            line = lines[node.lineno - 1].encode()
            half = line[: node.col_offset] + str(int(size) // 2).encode() + line[node.end_col_offset :]
            lines[node.lineno - 1] = half.decode()
        yield size, "".join(lines)


def _fewer_lines(text: str) -> Iterator[Candidate]:
    statements = [node for top in _scenario(ast.parse(text)) for node in ast.walk(top) if isinstance(node, ast.stmt)]
    for node in sorted(statements, key=lambda node: node.lineno - _end(node)):
        yield from _sound(_NUMBER.sub("", ast.unparse(node)), _without(text, [node]), than=text)


def _scenario(tree: ast.Module) -> list[ast.stmt]:
    """The statements between the constants and ``test_fn``."""
    names = [_name(node.targets[0]) if isinstance(node, ast.Assign) else _given(node) for node in tree.body]
    return tree.body[names.index("HAND_OVERS") + 1 : names.index("test_fn")]


def _hand_overs(tree: ast.Module) -> list[ast.stmt]:
    return [
        node
        for statement in _scenario(tree)
        for node in ast.walk(statement)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _name(node.value.func) == "hand_over"
    ]


def _without(text: str, nodes: list[ast.stmt]) -> str:
    """``text`` without these statements; where one is all that a block has, a ``pass`` takes its place."""
    blocks = [
        getattr(parent, name, None)
        for parent in ast.walk(ast.parse(text))
        for name in ("body", "orelse", "finalbody")
    ]
    alone = {block[0].lineno for block in blocks if isinstance(block, list) and len(block) == 1}
    lines = text.splitlines(keepends=True)
    for node in sorted(nodes, key=lambda node: node.lineno, reverse=True):
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
        instead = [f"{' ' * node.col_offset}pass\n"] if node.lineno in alone else []
        lines[first - 1 : _end(node)] = instead
    return "".join(lines)


def _sound(part: str, candidate: str, than: str | None = None) -> Iterator[Candidate]:
    """``candidate`` in order, unless it cannot work, or has as many lines as one that it must be smaller ``than``."""
    try:
        settled = _settled(candidate)
    except SyntaxError:
        # What shares a line with something else cannot be taken out by itself.
        return
    smaller = than is None or len(settled.splitlines()) < len(than.splitlines())
    if smaller and not _undefined(settled):
        yield part, settled


def _settled(text: str) -> str:
    """Hand-overs numbered and counted anew, imports that nothing uses left out, blank lines in order."""
    tree = ast.parse(text)
    olds = sorted({int(ast.unparse(node).partition("(")[2].partition(",")[0]) for node in _hand_overs(tree)})
    text = _NUMBER.sub(lambda found: str(olds.index(int(found[0])) + 1), text)
    text = _COUNT.sub(f"HAND_OVERS = {len(olds)}", text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    lines = text.splitlines(keepends=True)
    for node in reversed(tree.body):
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            node.names = [alias for alias in node.names if (alias.asname or alias.name) in used]
            lines[node.lineno - 1 : _end(node)] = [f"{ast.unparse(node)}\n"] if node.names else []
    return re.sub(r"\n{4,}", "\n\n\n", "".join(lines))


def _undefined(text: str) -> set[str]:
    """Names that are read and that nothing gives a value: no run is needed to see that this fails."""
    tree = ast.parse(text)
    known = {*dir(builtins), "__name__", "__file__"}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs)):
            known.add(node.name or "")
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            known.add(node.id)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - known


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _given(node: ast.stmt) -> str:
    return str(getattr(node, "name", ""))


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
