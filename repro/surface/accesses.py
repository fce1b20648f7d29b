"""What each function does to what the whole process shares: one :class:`Access` for every place where it does.

A dotted path stands for a global of a module, an attribute of a class, or an attribute of the one instance that a
module keeps of a class. ``X.name = value``, ``global name``, ``setattr``, ``del``, methods that change a container,
``X[key] = value`` and the patching of a named attribute are all found, through imports and through local aliases.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from repro.surface.source import (
    Class,
    Function,
    Module,
    Source,
    Value,
    blocks,
    dotted_name,
    imported,
    resolve,
    targets,
    walk_functions,
)

_CHANGES = {
    "append", "appendleft", "add", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove",
    "reset", "reverse", "set", "setdefault", "sort", "update", "__setitem__", "__delitem__",
}  # fmt: skip
_TAKES_AWAY = {"clear", "discard", "pop", "popitem", "popleft", "remove", "reset", "__delitem__"}
# Context managers of the standard library that change something of the whole process for a while.
_BORROWERS = {
    "warnings.catch_warnings": "warnings.filters",
    "contextlib.redirect_stdout": "sys.stdout",
    "contextlib.redirect_stderr": "sys.stderr",
    "contextlib.chdir": "os.curdir",
}
# What is shared outside of the package too.
_OF_PYTHON = {"os.environ", "sys.path", "sys.modules", "sys.stdout", "sys.stderr", "warnings.filters"}


@dataclass(frozen=True)
class Access:
    """One place where ``function`` touches ``target``.

    ``how`` is ``read``, ``assign``, ``count`` (``+=``), ``change`` (a container), ``take`` (out of it), ``delete`` or
    ``borrow`` (a context manager that puts back what it found). ``back`` says that it stands where a function puts
    things back: in a ``finally``, after the ``yield`` of a context manager, or as an assignment from what was saved,
    and then it is ``saved`` too; ``decides`` a read in a condition, ``guarded`` a write below a
    condition that reads the same. ``argument`` is an assignment of a parameter: calling the function assigns.
    ``through`` names the function that was called to do it; ``line`` is that of the statement.
    """

    function: str
    target: str
    how: str
    back: bool = False
    saved: bool = False
    decides: bool = False
    guarded: bool = False
    argument: bool = False
    lock: str = ""
    through: str = ""
    line: int = 0


@dataclass(frozen=True)
class Call:
    """``function`` calls ``callee``, both as ``module:qualified.name``."""

    function: str
    callee: str
    back: bool = False
    decides: bool = False
    lock: str = ""
    line: int = 0


@dataclass
class Place:
    """A function as it was walked: what it touches and calls."""

    name: str
    owner: str
    accesses: list[Access]
    calls: list[Call]
    # what its return value was made of: who calls it reads that
    returns: set[str]
    # the last names of all that it mentions
    names: set[str]


@dataclass(frozen=True)
class _Where:
    back: bool = False
    decides: bool = False
    lock: str = ""
    tested: frozenset[str] = frozenset()
    entered: bool = False
    line: int = 0


def places(source: Source, module: Module, singletons: dict[str, str]) -> Iterator[Place]:
    """All functions of ``module``. ``singletons`` maps a class to the one global that holds an instance of it."""
    bindings: dict[str, _Scope] = {}
    for name, function, owner, outer in walk_functions(module):
        scope = bindings[name] = _Scope(source, module, function, owner, bindings.get(outer))
        yield _Walk(source, module, scope, f"{module.name}:{name}", owner, singletons).place()


class _Scope:
    """Which names are local in a function, and what its local names for globals and modules stand for."""

    def __init__(
        self, source: Source, module: Module, function: Function, owner: Class | None, outer: _Scope | None
    ) -> None:
        self.function, self.module, self.owner, self.outer = function, module, owner, outer
        self.parameters = {argument.arg for argument in _arguments(function)}
        self.locals = set(self.parameters)
        self.globals: set[str] = set()
        self.imports: dict[str, str] = {}
        self.first = function.args.args[0].arg if owner and function.args.args else ""
        self.stores: Counter[str] = Counter()
        self.names: set[str] = set()
        values: dict[str, ast.expr] = {}
        for node in within(function):
            if isinstance(node, ast.Global):
                self.globals.update(node.names)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imports.update(imported(module.package, node))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
                self.locals.add(node.id)
                self.stores[node.id] += 1
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)):
                self.locals.add(node.name or "")
            elif isinstance(node, ast.Attribute):
                self.names.add(node.attr)
            elif isinstance(node, ast.Name):
                self.names.add(node.id)
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                values[node.targets[0].id] = node.value
        self.locals -= self.globals
        # bound once, to something that has a name
        self.bound = {name: found for name, found in values.items() if name in self.locals and self.stores[name] == 1}

    def is_class(self, name: str) -> bool:
        """Whether ``name`` is the class itself in a class method."""
        decorators = {dotted_name(node) for node in self.function.decorator_list}
        return bool(self.first) and name == self.first and "classmethod" in decorators

    def path(self, node: ast.expr, depth: int = 4) -> str | None:
        """The dotted path that a chain of names means here; ``None`` for what is local."""
        written = dotted_name(node)
        if written is None:
            return self._of_instance(node)
        head, _, tail = written.partition(".")
        if self.owner is not None and head == self.first:
            if self.is_class(head):
                return ".".join(filter(None, (self.module.name, self.owner.name, tail)))
            if written.startswith(f"{head}.__class__."):
                return f"{self.module.name}.{self.owner.name}.{tail.removeprefix('__class__.')}"
            if tail.partition(".")[0] in self.owner.values and tail.partition(".")[0] not in self.owner.own:
                # a value of the class's body that no method binds on the instance
                return f"{self.module.name}.{self.owner.name}.{tail}"
            return None
        scope: _Scope | None = self
        while scope is not None:
            if head in scope.globals:
                break
            if head in scope.imports:
                return ".".join(filter(None, (scope.imports[head], tail)))
            if head in scope.bound and depth:
                base = scope.path(scope.bound[head], depth - 1)
                return None if base is None else ".".join(filter(None, (base, tail)))
            if head in scope.locals:
                return None
            scope = scope.outer
        return resolve(self.module, written)

    def _of_instance(self, node: ast.expr) -> str | None:
        """``type(self).name`` and ``globals()["name"]``."""
        call = node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else None
        if not isinstance(call, ast.Call):
            return None
        called = dotted_name(call.func)
        if isinstance(node, ast.Attribute) and called == "type" and self.owner and call.args:
            of_self = dotted_name(call.args[0]) == self.first
            return f"{self.module.name}.{self.owner.name}.{node.attr}" if of_self else None
        if isinstance(node, ast.Subscript) and called == "globals" and isinstance(node.slice, ast.Constant):
            return f"{self.module.name}.{node.slice.value!s}"
        return None


class _Walk:
    """Walks one function."""

    def __init__(
        self,
        source: Source,
        module: Module,
        scope: _Scope,
        name: str,
        owner: Class | None,
        singletons: dict[str, str],
    ) -> None:
        self._source, self._module, self._scope, self._name, self._owner = source, module, scope, name, owner
        self._single = singletons.get(f"{module.name}.{owner.name}") if owner and not _constructs(name) else None
        self._accesses: list[Access] = []
        self._calls: list[Call] = []
        self._returns: set[str] = set()
        self._saved: dict[str, set[str]] = {}
        self._managers: dict[str, bool] = {}
        self._yielded = False

    def place(self) -> Place:
        function = self._scope.function
        decorators = [dotted_name(_callee(node)) or "" for node in function.decorator_list]
        self._managed = any(name.endswith("contextmanager") for name in decorators)
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call):
                self._borrowed(decorator, _Where(entered=True, line=decorator.lineno))
        self._body(function.body, _Where())
        owner = f"{self._module.name}.{self._owner.name}" if self._owner else ""
        return Place(self._name, owner, self._accesses, self._calls, self._returns, self._scope.names)

    # ---- statements

    def _body(self, body: list[ast.stmt], where: _Where) -> None:
        for node in body:
            self._statement(node, where)

    def _statement(self, node: ast.stmt, where: _Where) -> None:
        where = replace(where, line=node.lineno)
        if self._managed and self._yielded and not where.back:
            where = replace(where, back=True)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        if isinstance(node, ast.Assign):
            self._expression(node.value, where)
            for one in node.targets:
                self._assign(one, node.value, where)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._expression(node.value, where)
                self._assign(node.target, node.value, where)
        elif isinstance(node, ast.AugAssign):
            self._expression(node.value, where)
            self._store(node.target, "count", where)
        elif isinstance(node, ast.Delete):
            for one in node.targets:
                self._store(one, "take" if isinstance(one, ast.Subscript) else "delete", where)
        elif isinstance(node, (ast.If, ast.While)):
            self._expression(node.test, replace(where, decides=True))
            tested = where.tested | set(self._reads(node.test))
            self._body(node.body, replace(where, tested=tested))
            self._body(node.orelse, replace(where, tested=tested))
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._expression(node.iter, where)
            self._store(node.target, "assign", where)
            self._body(node.body, where)
            self._body(node.orelse, where)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self._with(node, where)
        elif isinstance(node, ast.Try):
            self._body(node.body, where)
            # try: return CACHE[key]; except KeyError: CACHE[key] = ...
            short = node.body if len(node.body) == 1 and not list(blocks(node.body[0])) else []
            missing = where.tested | set(self._reads(*short))
            for handler in node.handlers:
                self._body(handler.body, replace(where, tested=missing))
            self._body(node.orelse, where)
            self._body(node.finalbody, replace(where, back=True))
        elif isinstance(node, ast.Return):
            if node.value is not None:
                self._expression(node.value, where)
                self._returns |= set(self._reads(node.value))
        elif isinstance(node, ast.Assert):
            self._expression(node.test, replace(where, decides=True))
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt):
                    self._statement(child, where)
                elif isinstance(child, ast.expr):
                    self._expression(child, where)
                elif isinstance(child, ast.match_case):
                    self._body(child.body, where)

    def _with(self, node: ast.With | ast.AsyncWith, where: _Where) -> None:
        inside = where
        for item in node.items:
            self._expression(item.context_expr, replace(inside, entered=True))
            if isinstance(item.optional_vars, ast.Name):
                self._managers[item.optional_vars.id] = True
            if lock := self._lock(item.context_expr):
                inside = replace(inside, lock=lock)
        self._body(node.body, inside)

    def _lock(self, node: ast.expr) -> str:
        path = self._scope.path(node) or dotted_name(node) or dotted_name(_callee(node)) or ""
        value = self._source.value(path)
        name = path.rpartition(".")[2].lower()
        if (value is not None and value.kind == "lock") or name.endswith(("lock", "mutex")):
            return self._source.canonical(path)
        return ""

    # ---- writes

    def _assign(self, target: ast.expr, value: ast.expr, where: _Where) -> None:
        pairs = [(target, value)]
        if isinstance(target, (ast.Tuple, ast.List)):
            same = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            values = value.elts if same and isinstance(value, (ast.Tuple, ast.List)) else [value] * len(target.elts)
            pairs = list(zip(target.elts, values, strict=True))
        for one, given in pairs:
            if isinstance(one, ast.Name) and one.id in self._scope.locals:
                self._saved.setdefault(one.id, set()).update(self._kept(given))
                continue
            names = {node.id for node in ast.walk(given) if isinstance(node, ast.Name)}
            came = self._saved_in(given)
            self._store(one, "assign", where, came, bool(names & self._scope.parameters))

    def _saved_in(self, node: ast.expr) -> set[str]:
        """The globals whose value a local holds that was bound once."""
        once = isinstance(node, ast.Name) and self._scope.stores[node.id] == 1
        return self._saved.get(node.id, set()) if once and isinstance(node, ast.Name) else set()

    def _kept(self, node: ast.expr) -> Iterator[str]:
        """What a local keeps of globals when ``node`` is assigned to it: a value, or by its name alone a function."""
        yield from self._reads(node)
        if isinstance(node, (ast.Name, ast.Attribute)) and (path := self._scope.path(node)) is not None:
            yield self._source.canonical(path)

    def _store(
        self, target: ast.expr, how: str, where: _Where, came: set[str] | None = None, argument: bool = False
    ) -> None:
        for one in targets(target):
            if isinstance(one, ast.Subscript):
                self._expression(one.slice, where)
                self._written(one.value, "take" if how in ("take", "delete") else "change", where, came)
            elif isinstance(one, ast.Name):
                if one.id in self._scope.globals:
                    self._add(f"{self._module.name}.{one.id}", how, where, came, argument)
            elif isinstance(one, ast.Attribute):
                self._set_attribute(one, how, where, came, argument)

    def _set_attribute(
        self, node: ast.Attribute, how: str, where: _Where, came: set[str] | None, argument: bool = False
    ) -> None:
        scope = self._scope
        if (single := self._own(node)) is not None:
            self._add(single, how, where, came, argument)
            return
        path = scope.path(node.value)
        if path is None or (isinstance(node.value, ast.Name) and node.value.id in scope.parameters):
            if (own := scope.path(node)) is not None and self._shared(own):
                self._add(own, how, where, came, argument)
            return
        path = self._source.canonical(path)
        if self._attribute_of_shared(path):
            self._add(f"{path}.{node.attr}", how, where, came, argument)

    def _written(
        self, node: ast.expr, how: str, where: _Where, came: set[str] | None = None, method: bool = False
    ) -> None:
        """A container is changed: ``node[...] = value``, or a method of it."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # current.get("custom", {}).update(...)
            self._written(node.func.value, how, where, came, method)
            return
        path = self._own(node) or self._scope.path(node)
        if path is not None and (container := self._container(path, method)) is not None:
            self._add(container, how, where, came)

    def _own(self, node: ast.expr) -> str | None:
        """``self.x`` of the one instance that the module keeps."""
        first = self._scope.first
        if not self._single or self._scope.is_class(first) or not isinstance(node, ast.Attribute):
            return None
        of_self = isinstance(node.value, ast.Name) and node.value.id == first
        return f"{self._single}.{node.attr}" if of_self else None

    def _container(self, path: str, method: bool = False, depth: int = 4) -> str | None:
        """The global at ``path`` whose content changes; ``None`` where it is a module, a class or a function."""
        path = self._source.canonical(path)
        found = self._source.find(path)
        if found is None:
            return path if path in _OF_PYTHON else None
        module, rest = found
        if not rest or rest in module.classes or rest.partition(".")[0] in module.functions:
            return None
        head, _, tail = rest.partition(".")
        value = module.values.get(head)
        if value is not None and value.kind == "alias" and depth:
            return self._container(".".join(filter(None, (resolve(module, value.made_by), tail))), method, depth - 1)
        if value is not None and value.made_by:
            made = self._source.klass(resolve(module, value.made_by))
            if made is not None and (method or tail.partition(".")[0] not in made[1].own):
                # its methods are walked themselves, and what it hands out may be anybody's: V.graph, ops.add
                return None
        return path if value is not None or head in module.classes or head in module.imports else None

    def _attribute_of_shared(self, path: str) -> bool:
        """Whether an attribute of what is at ``path`` is there for the whole process."""
        found = self._source.find(path)
        if found is None:
            return path in ("sys", "os", "warnings")
        module, rest = found
        head, dot, _ = rest.partition(".")
        return not rest or rest in module.classes or (head in module.values and not dot)

    def _shared(self, path: str) -> bool:
        return self._source.find(path) is not None

    def _add(
        self, target: str, how: str, where: _Where, came: set[str] | None = None, argument: bool = False
    ) -> None:
        # where it is bound: what a module took from another and binds anew is its own
        owner, _, name = target.rpartition(".")
        target = f"{self._source.canonical(owner)}.{name}"
        self._accesses.append(
            Access(
                self._name,
                target,
                how,
                back=where.back or target in (came or ()),
                saved=target in (came or ()),
                guarded=target in where.tested,
                argument=argument,
                lock=where.lock,
                line=where.line,
            )
        )

    # ---- expressions

    def _expression(self, node: ast.expr, where: _Where) -> None:
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            if node.value is not None:
                self._expression(node.value, where)
            self._yielded = True
            return
        if isinstance(node, ast.Call):
            self._call(node, where)
            return
        if isinstance(node, ast.IfExp):
            self._expression(node.test, replace(where, decides=True))
            self._expression(node.body, where)
            self._expression(node.orelse, where)
            return
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            self._read(node, where)
            if isinstance(node, ast.Attribute) and dotted_name(node) is None:
                self._expression(node.value, where)
            return
        where = replace(where, entered=False) if where.entered else where
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(child, where)
            elif isinstance(child, ast.comprehension):
                self._expression(child.iter, where)
                for test in child.ifs:
                    self._expression(test, replace(where, decides=True))

    def _call(self, node: ast.Call, where: _Where) -> None:
        inner = replace(where, entered=False)
        name = dotted_name(node.func)
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name or ""
        if not self._borrowed(node, where) and isinstance(node.func, ast.Attribute) and last in _CHANGES:
            self._written(node.func.value, "take" if last in _TAKES_AWAY else "change", inner, self._came(node), True)
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            owner = node.args[0]
            self._read(ast.Attribute(owner, str(node.args[1].value), ast.Load()), where)
        callee = self._callee(node.func)
        if callee:
            self._calls.append(Call(self._name, callee, where.back, where.decides, where.lock, where.line))
        if isinstance(node.func, ast.Attribute):
            self._expression(node.func.value, inner)
        elif not isinstance(node.func, ast.Name):
            self._expression(node.func, inner)
        # what stack.enter_context(...) is given is entered as by a with
        passed = replace(inner, entered=last in ("enter_context", "enter_async_context"))
        for argument in node.args:
            self._expression(argument, passed)
        for keyword in node.keywords:
            self._expression(keyword.value, inner)

    def _came(self, node: ast.Call) -> set[str]:
        return {path for argument in node.args for path in self._saved_in(argument)}

    def _callee(self, node: ast.expr) -> str:
        """``module:function`` of what is called, a method of the own class included."""
        if isinstance(node, ast.Attribute) and self._owner and dotted_name(node.value) == self._scope.first:
            return f"{self._module.name}:{self._owner.name}.{node.attr}" if node.attr in self._owner.methods else ""
        path = self._scope.path(node)
        if path is None:
            return ""
        found = self._source.find(path)
        return f"{found[0].name}:{found[1]}" if found is not None and found[1] else path

    def _borrowed(self, node: ast.Call, where: _Where) -> bool:
        """A call that replaces something named for a while, or for good: patches and ``setattr``."""
        function = self._scope.path(node.func) or ""
        how = "borrow" if where.entered else "assign"
        if function in _BORROWERS:
            self._add(_BORROWERS[function], "borrow", where)
            return True
        owner = self._scope.path(node.args[0]) if node.args else None
        name = node.args[1] if len(node.args) > 1 else None
        if (
            owner is not None
            and isinstance(name, ast.Constant)
            and isinstance(name.value, str)
            and len(node.args) > 2
        ):
            found = self._source.find(owner)
            if found is not None and (not found[1] or found[1] in found[0].classes):
                # a method of a context manager that was entered here undoes it at the end
                receiver = dotted_name(node.func.value) if isinstance(node.func, ast.Attribute) else None
                kept = where.entered or receiver in self._managers
                self._add(f"{self._source.canonical(owner)}.{name.value}", "borrow" if kept else how, where)
                return True
        if function.endswith("patch.dict") and owner is not None and (target := self._container(owner)):
            self._add(target, "borrow", where)
            return True
        if function.endswith("mock.patch") and node.args and isinstance(node.args[0], ast.Constant):
            if self._source.defines(str(node.args[0].value)):
                self._add(str(node.args[0].value), "borrow", where)
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr == "patch":
            return self._patched_config(node, where)
        return False

    def _patched_config(self, node: ast.Call, where: _Where) -> bool:
        """``config.patch(name=value)`` of a module that handed itself to an installer."""
        assert isinstance(node.func, ast.Attribute)
        base = self._scope.path(node.func.value)
        found = self._source.find(base) if base is not None else None
        if found is None or found[1] or not found[0].installer:
            return False
        keys: list[object] = [keyword.arg for keyword in node.keywords if keyword.arg]
        for argument in node.args[:1]:
            if isinstance(argument, ast.Constant):
                keys.append(argument.value)
            elif isinstance(argument, ast.Dict):
                keys += [key.value for key in argument.keys if isinstance(key, ast.Constant)]
        for key in keys:
            if isinstance(key, str):
                self._add(f"{found[0].name}.{key}", "borrow", where)
        return bool(keys)

    # ---- reads

    def _read(self, node: ast.Name | ast.Attribute, where: _Where) -> None:
        if (target := self._target(node)) is not None:
            self._accesses.append(
                Access(self._name, target, "read", decides=where.decides, lock=where.lock, line=where.line)
            )

    def _target(self, node: ast.expr) -> str | None:
        path = self._own(node) or self._scope.path(node)
        if path is None:
            return None
        found = self._source.find(path)
        if found is None:
            return path if path in _OF_PYTHON else None
        module, rest = found
        if not rest or rest in module.classes or rest in module.functions:
            return None
        return f"{module.name}.{rest}"

    def _reads(self, *nodes: ast.AST) -> Iterator[str]:
        for top in nodes:
            for node in ast.walk(top):
                if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                    if (target := self._target(node)) is not None:
                        yield target
                elif isinstance(node, ast.Call) and dotted_name(node.func) == "getattr" and len(node.args) > 1:
                    name, owner = node.args[1], self._target(node.args[0])
                    if isinstance(name, ast.Constant) and owner:
                        yield f"{owner}.{name.value!s}"


def within(function: Function) -> Iterator[ast.AST]:
    """All nodes of a function, without those of the functions and classes in it."""
    todo: list[ast.AST] = [*function.body]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            todo.extend(ast.iter_child_nodes(node))


def single_instances(source: Source, modules: list[Module]) -> dict[str, str]:
    """The classes of which the modules keep exactly one instance at their top, and where."""
    held: dict[str, list[str]] = {}
    for module in modules:
        for name, value in module.values.items():
            if value.kind == "object" and value.made_by:
                found = source.klass(resolve(module, value.made_by))
                if found is not None:
                    held.setdefault(f"{found[0].name}.{found[1].name}", []).append(f"{module.name}.{name}")
    return {made: names[0] for made, names in held.items() if len(names) == 1}


def kind_of(source: Source, target: str) -> Value:
    """What a target is: of an instance's attribute, what the instance is."""
    value, found = source.value(target), source.find(target)
    if found is not None:
        module, rest = found
        alias = value.made_by if value is not None and value.kind == "alias" else ""
        beside = f"{rest.rpartition('.')[0]}.{alias}".lstrip(".")
        if source.is_function(module, rest) or (alias and source.is_function(module, beside)):
            return Value("function")
    if value is not None:
        return Value("object") if value.kind == "alias" else value
    owner = target.rpartition(".")[0]
    return source.value(owner) or Value("unknown")


def _arguments(function: Function) -> Iterator[ast.arg]:
    arguments = function.args
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (one for one in (arguments.vararg, arguments.kwarg) if one is not None)


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _constructs(name: str) -> bool:
    return name.endswith((".__init__", ".__new__", ".__init_subclass__"))
