"""What the source of a package says, module by module: which names a module has, and what a dotted path means there.

Nothing is imported: files are found below a folder and parsed.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef

_LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore"}
# What a call makes, by the last name of what is called.
_CONTAINERS = {
    "dict", "list", "set", "deque", "defaultdict", "Counter", "OrderedDict", "WeakKeyDictionary",
    "WeakValueDictionary", "WeakSet", "WeakIdKeyDictionary", "ChainMap",
}  # fmt: skip


@dataclass(frozen=True)
class Value:
    """What a name is bound to when its module or class is made: ``kind``, and of an instance its class as written."""

    kind: str
    made_by: str = ""


@dataclass
class Class:
    """A class: its name within the module, its bases as written, the values in its body, and its methods."""

    name: str
    bases: list[str]
    values: dict[str, Value] = field(default_factory=dict)
    methods: set[str] = field(default_factory=set)
    # the attributes that its methods bind on an instance
    own: set[str] = field(default_factory=set)


@dataclass
class Module:
    """One file: what its names are. ``imports`` maps a name to the dotted path that it stands for."""

    name: str
    package: str
    file: Path
    imports: dict[str, str] = field(default_factory=dict)
    # what ``from x import *`` takes from
    stars: list[str] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    # the function that this module hands itself to, which from then on keeps its values
    installer: str = ""


class Source:
    """The modules below the folder of one package, read when first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._modules: dict[str, Module | None] = {}
        self._find = functools.cache(self._locate)

    def modules(self, packages: list[str]) -> Iterator[Module]:
        """All modules of the ``packages`` (dotted names), in order of name."""
        names: set[str] = set()
        for package in packages:
            path = self.root.joinpath(*package.split(".")[1:])
            if path.is_dir():
                for file in path.rglob("*.py"):
                    parts = file.relative_to(self.root.parent).with_suffix("").parts
                    if "tests" not in parts:
                        names.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
            elif path.with_suffix(".py").is_file():
                names.add(package)
        for name in sorted(names):
            if (module := self.module(name)) is not None:
                yield module

    def module(self, name: str) -> Module | None:
        """The module of that dotted name; ``None`` if there is no such file, or it is not valid Python."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def find(self, dotted: str) -> tuple[Module, str] | None:
        """Where a dotted path is defined: the module, and the rest of the path within it. Follows imports."""
        return self._find(dotted)

    def canonical(self, dotted: str) -> str:
        """The dotted path by which a name is known where it is defined."""
        found = self.find(dotted)
        return dotted if found is None else ".".join(filter(None, (found[0].name, found[1])))

    def value(self, dotted: str) -> Value | None:
        """What the name at ``dotted`` is first bound to; ``None`` where the source does not say."""
        found = self.find(dotted)
        if found is None:
            return None
        module, rest = found
        if rest in module.values:
            return module.values[rest]
        owner, _, name = rest.rpartition(".")
        return module.classes[owner].values.get(name) if owner in module.classes else None

    def defines(self, dotted: str) -> bool:
        """Whether there is a name at ``dotted``."""
        found = self.find(dotted)
        return found is not None and (not found[1] or self._has(*found))

    @staticmethod
    def is_function(module: Module, rest: str) -> bool:
        owner, _, name = rest.rpartition(".")
        return rest in module.functions or (owner in module.classes and name in module.classes[owner].methods)

    def klass(self, dotted: str) -> tuple[Module, Class] | None:
        found = self.find(dotted)
        return (found[0], found[0].classes[found[1]]) if found is not None and found[1] in found[0].classes else None

    def descends(self, module: Module, klass: Class, base: str) -> bool:
        """Whether ``klass`` has ``base`` (a dotted path) among its ancestors."""
        seen: set[str] = set()
        todo = [(module, klass)]
        while todo:
            home, current = todo.pop()
            for written in current.bases:
                dotted = resolve(home, written)
                if dotted == base:
                    return True
                if dotted not in seen and (next_one := self.klass(dotted)) is not None:
                    seen.add(dotted)
                    todo.append(next_one)
        return False

    def _locate(self, dotted: str) -> tuple[Module, str] | None:
        for _ in range(8):  # a chain of re-exports, or a circle of them
            module, rest = self._split(dotted)
            if module is None:
                return None
            head, _, tail = rest.partition(".")
            if not rest or self._has(module, rest):
                return module, rest
            if head in module.imports:
                dotted = ".".join(filter(None, (module.imports[head], tail)))
                continue
            starred = (self.find(f"{star}.{rest}") for star in module.stars)
            return next((found for found in starred if found and found[1] and self._has(*found)), (module, rest))
        return None

    @staticmethod
    def _has(module: Module, rest: str) -> bool:
        head = rest.partition(".")[0]
        return head in module.values or head in module.classes or head in module.functions

    def _split(self, dotted: str) -> tuple[Module | None, str]:
        if dotted.partition(".")[0] != self.root.name:
            return None, ""
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            if (module := self.module(".".join(parts[:length]))) is not None:
                return module, ".".join(parts[length:])
        return None, ""

    def _read(self, name: str) -> Module | None:
        path = self.root.joinpath(*name.split(".")[1:])
        file = path / "__init__.py" if (path / "__init__.py").is_file() else path.with_suffix(".py")
        if not file.is_file():
            return None
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):
            return None
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        module = Module(name, package, file)
        _Definitions(module).statements(tree.body)
        return module


def resolve(module: Module, written: str) -> str:
    """The dotted path that an expression such as ``np.float32`` means at the top of ``module``."""
    head, _, tail = written.partition(".")
    target = module.imports.get(head)
    if target is None:
        known = head in module.values or head in module.classes or head in module.functions
        return f"{module.name}.{written}" if known else written
    return ".".join(filter(None, (target, tail)))


def dotted_name(node: ast.expr) -> str | None:
    """``a.b.c`` of a chain of names; ``None`` for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def imported(package: str, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """What an import statement binds: name and dotted path."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        return
    base = node.module or ""
    if node.level:
        parents = package.split(".")
        base = ".".join([*parents[: len(parents) - node.level + 1], *filter(None, [node.module])])
    for alias in node.names:
        yield alias.asname or alias.name, f"{base}.{alias.name}"


def targets(node: ast.expr) -> Iterator[ast.expr]:
    """The single targets of an assignment, out of tuples and lists."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from targets(element)
    elif isinstance(node, ast.Starred):
        yield from targets(node.value)
    else:
        yield node


def value_of(node: ast.expr | None) -> Value:
    """What an expression makes, as far as it says so itself."""
    if isinstance(node, ast.Constant):
        return Value(type(node.value).__name__)
    if isinstance(node, (ast.Dict, ast.DictComp)):
        return Value("dict")
    if isinstance(node, (ast.List, ast.ListComp)):
        return Value("list")
    if isinstance(node, (ast.Set, ast.SetComp)):
        return Value("set")
    if isinstance(node, ast.Tuple):
        return Value("tuple")
    if isinstance(node, (ast.Attribute, ast.Name)) and (name := dotted_name(node)):
        return Value("alias", name)
    if isinstance(node, ast.Call):
        function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        name = dotted_name(function) or ""
        last = name.rpartition(".")[2]
        if last in _CONTAINERS:
            return Value(last)
        if last in _LOCKS:
            return Value("lock")
        if last == "ContextVar":
            return Value("context")
        if name in ("threading.local", "local"):
            return Value("thread")
        return Value("object", name)
    return Value("object")


class _Definitions:
    """Fills in what the top of a module and the bodies of its classes define."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def statements(self, body: list[ast.stmt], owner: Class | None = None) -> None:
        for node in body:
            self._statement(node, owner)

    def _statement(self, node: ast.stmt, owner: Class | None) -> None:
        module = self._module
        if isinstance(node, (ast.Import, ast.ImportFrom)) and owner is None:
            module.imports.update(imported(module.package, node))
            if isinstance(node, ast.ImportFrom) and module.imports.pop("*", None) is not None:
                module.stars.append(dict(imported(module.package, node))["*"].removesuffix(".*"))
        elif isinstance(node, Function):
            (owner.methods if owner else module.functions).add(node.name)
            if owner is not None and node.args.args:
                owner.own |= _bound_on(node.args.args[0].arg, node)
        elif isinstance(node, ast.ClassDef):
            name = f"{owner.name}.{node.name}" if owner else node.name
            made = Class(name, [written for base in node.bases if (written := dotted_name(_bare(base)))])
            module.classes[name] = made
            self.statements(node.body, made)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for one in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for target in targets(one):
                    if isinstance(target, ast.Name) and (node.value is not None or owner is None):
                        (owner.values if owner else module.values)[target.id] = value_of(node.value)
        elif isinstance(node, ast.Expr) and owner is None:
            self._installed(node.value)
        for body in blocks(node):
            self.statements(body, owner)

    def _installed(self, node: ast.expr) -> None:
        """``install(sys.modules[__name__])``: the module hands itself over."""
        if isinstance(node, ast.Call) and any(
            isinstance(argument, ast.Subscript)
            and dotted_name(argument.value) == "sys.modules"
            and dotted_name(argument.slice) == "__name__"
            for argument in node.args
        ):
            self._module.installer = resolve(self._module, dotted_name(node.func) or "")


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The statements below a statement that run in the same scope."""
    if isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)):
        for name in ("body", "orelse", "finalbody"):
            yield getattr(node, name, [])
        for handler in getattr(node, "handlers", []):
            yield handler.body


def _bare(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node


def _bound_on(name: str, function: Function) -> set[str]:
    return {
        node.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
    }


def walk_functions(module: Module) -> Iterator[tuple[str, Function, Class | None, str]]:
    """Every function of a module: its qualified name, its class, and the name of the function around it."""

    def below(
        body: list[ast.stmt], prefix: str, owner: Class | None, outer: str
    ) -> Iterator[tuple[str, Function, Class | None, str]]:
        for node in body:
            if isinstance(node, Function):
                name = f"{prefix}{node.name}"
                yield name, node, owner, outer
                yield from below(node.body, f"{name}.", None, name)
            elif isinstance(node, ast.ClassDef):
                name = f"{prefix}{node.name}"
                yield from below(node.body, f"{name}.", module.classes.get(name), outer)
            else:
                for block in blocks(node):
                    yield from below(block, prefix, owner, outer)

    # parsed once more: to keep the trees of all modules takes gigabytes
    yield from below(ast.parse(module.file.read_bytes()).body, "", None, "")
