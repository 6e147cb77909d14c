"""Finds the source code that a builder's data depends on: what its class uses, name by name.

Only modules of the builder's own package count. Starting from the class, each name is followed to
its definition, in the same module or in others: functions, classes and values, however they were
imported. A module counts in full if the names used from it cannot be determined.
"""

import ast
import builtins
import functools
import hashlib
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

# This package's own layers make the same data from the same builder; its tests guarantee that.
_FRAMEWORK = "my_datasets"
_FRAMEWORKS_DATASETS = "my_datasets.datasets"
# Functions that look up names at run time.
_DYNAMIC = frozenset({"globals", "locals", "vars", "eval", "exec"})
# A file modified more recently may change again without a new modification time.
_SETTLED_NS = 2_000_000_000
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try)

# A module and a name in it; None for the whole module, "" for its import-time side effects.
Target = tuple[str, str | None]
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class ModulePart:
    """The part of a module that counts."""

    module: str
    file: str
    names: tuple[str, ...]  # that count, sorted; all of them if `is_whole`
    left_out: tuple[str, ...]  # the names that do not count
    is_whole: bool
    sha256: str  # of what counts


class _Statement:
    """A top-level statement of a module other than an import.

    Attributes:
      names: The names it defines or may change.
      uses: The names it uses, each with the attributes that follow: `a.b.c` as `("a", "b", "c")`.
      imports: The imports inside it, with the names they bind.
      is_definition: Whether it is a function or a class, whose position in the module does not
        matter.
      always: Whether it has an effect when the module is imported, such as registering something.
    """

    def __init__(self, node: ast.stmt, module: "Module") -> None:
        self._node = node
        self.is_definition = isinstance(node, _DEFINITIONS)
        self.names = {node.name} if isinstance(node, _DEFINITIONS) else _changed(node)
        self.uses = frozenset(_uses(node))
        self.imports: list[tuple[str, Target]] = []
        if isinstance(node, _DEFINITIONS):
            inner = [one for one in ast.walk(node) if isinstance(one, _IMPORTS)]
            self.imports = [found for one in inner for found in module.loads(one)]
            self.always = any(map(module.is_own, node.decorator_list))
        else:
            inside = ast.walk(node) if isinstance(node, _COMPOUND) else ()
            self.always = not self.names or any(
                isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) for one in inside
            )

    @functools.cached_property
    def text(self) -> str:
        """The statement's syntax tree as text, without comments and formatting."""
        return _dumped(self._node)

    @property
    def literals(self) -> Iterator[str]:
        """Its string literals, which may name modules."""
        for one in ast.walk(self._node):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value

    @property
    def is_dynamic(self) -> bool:
        """Whether it uses names that are only known at run time."""
        looks_up = any(
            "__subclasses__" in chain or (len(chain) == 1 and chain[0] in _DYNAMIC)
            for chain in self.uses
        )
        return looks_up or any(
            isinstance(one, ast.FunctionDef) and one.name == "__init_subclass__"
            for one in ast.walk(self._node)
        )


class Module:
    """The statements and imports of a module, indexed by name."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path
        self.code = _parsed(path.read_text("utf-8"))
        self.bindings: dict[str, set[Target]] = {}
        self.statements: list[_Statement] = []
        self.by_name: dict[str, list[int]] = {}
        if isinstance(self.code, str):
            return
        for node in ast.walk(self.code):
            for local, target in self.loads(node):
                # `import a.b` binds `a`.
                binds_outermost = target[1] is None and local == target[0].partition(".")[0]
                stands_for = (local, None) if binds_outermost else target
                self.bindings.setdefault(local, set()).add(stands_for)
        self.statements = [_Statement(node, self) for node in _top_level(self.code.body)]
        for number, statement in enumerate(self.statements):
            for one in statement.names:
                self.by_name.setdefault(one, []).append(number)

    def loads(self, node: ast.AST) -> Iterator[tuple[str, Target]]:
        """Yields the targets of an import statement, each with the name it binds."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], (alias.name, None)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, self.name, self.path)
            for alias in node.names if base else ():
                yield alias.asname or alias.name, (base, alias.name)

    def for_its_effects(self) -> Iterator[Target]:
        """Yields imports whose names are never used, so they were made for their side effects."""
        if self.path.name == "__init__.py" or isinstance(self.code, str):
            return  # re-exports names for other modules
        used = {node.id for node in ast.walk(self.code) if isinstance(node, ast.Name)}
        used |= {
            text for i in self.by_name.get("__all__", ()) for text in self.statements[i].literals
        }
        for statement in self.code.body:
            if isinstance(statement, _DEFINITIONS):
                continue
            for node in ast.walk(statement):
                for local, target in self.loads(node):
                    if local not in used:
                        yield target

    def is_own(self, decorator: ast.expr) -> bool:
        """Returns whether a decorator is from this package: it may register what it decorates."""
        root: ast.expr = decorator.func if isinstance(decorator, ast.Call) else decorator
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name):
            return True
        if root.id not in self.bindings:
            return not hasattr(builtins, root.id)
        package = self.name.partition(".")[0]
        return any(
            name.partition(".")[0] == package and not is_framework(name)
            for name, _ in self.bindings[root.id]
        )


class SourceCode:
    """The source code that a builder's data depends on, read from the current files."""

    def __init__(self, package: str, start: Mapping[str, Path]) -> None:
        """Modules of the outermost package count, and the files in which the classes are."""
        self._package = package
        self._start = start
        self._find = functools.cache(lambda name: start.get(name) or _file_of(name))
        self._modules: dict[str, Module] = {}
        self._whole: set[str] = set()
        self._reached: dict[str, set[int]] = {}
        self._bound: dict[str, set[str]] = {}
        self._seen: set[Target] = set()
        self._waiting: list[Target] = []

    def add_class(self, module: str, name: str) -> None:
        """Adds a class, or the function it is defined in, and everything it leads to.

        The whole module counts if it has no such name.
        """
        found = self._module(module)
        is_known = found is not None and name in found.by_name
        self._waiting.append((module, name if is_known else None))
        while self._waiting:
            target = self._waiting.pop()
            if target in self._seen:
                continue
            self._seen.add(target)
            found = self._module(target[0])
            if found is None:
                continue
            if target[1] is None:
                self._add_whole(found)
            elif target[1] in ("", "*"):  # names that `*` brings are followed where they are used
                self._add_effects(found)
            else:
                self._add_name(found, target[1])

    def parts(self) -> list[ModulePart]:
        """Returns what counts, sorted by module name."""
        found = []
        for name, module in sorted(self._modules.items()):
            is_whole = name in self._whole
            numbers = self._reached.get(name, set())
            bound = sorted(self._bound.get(name, ()))
            if not (is_whole or numbers or bound):
                continue
            known = set(module.by_name)
            if is_whole:
                names, text = known, _text_of(module.code)
            else:
                names = {one for number in numbers for one in module.statements[number].names}
                text = _counted(module, numbers, bound)
            found.append(
                ModulePart(
                    name, os.fspath(module.path), tuple(sorted(names)),
                    tuple(sorted(known - names)), is_whole, sha256_of(text),
                )
            )  # fmt: skip
        return found

    def files(self) -> list[Path]:
        """Returns the files that were read."""
        return [module.path for module in self._modules.values()]

    def _is_own(self, name: str) -> bool:
        own = name == self._package or name.startswith(self._package + ".")
        return name in self._start or (own and not is_framework(name))

    def _module(self, name: str) -> Module | None:
        if name in self._modules:
            return self._modules[name]
        path = self._find(name) if self._is_own(name) else None
        if path is None:
            return None
        module = self._modules[name] = Module(name, path)
        if isinstance(module.code, str):
            self._whole.add(name)
        self._waiting.append((name, ""))
        parent = name.rpartition(".")[0]
        if parent:  # which is imported first
            self._waiting.append((parent, ""))
        return module

    def _add_effects(self, module: Module) -> None:
        self._waiting += module.for_its_effects()
        for number, statement in enumerate(module.statements):
            if statement.always:
                self._add_statement(module, number)

    def _add_whole(self, module: Module) -> None:
        self._whole.add(module.name)
        for number in range(len(module.statements)):
            self._add_statement(module, number)
        for targets in module.bindings.values():
            self._waiting += targets

    def _add_name(self, module: Module, name: str) -> None:
        known = module.by_name.get(name, [])
        for number in known:
            self._add_statement(module, number)
        imported = module.bindings.get(name, set())
        for target in imported:
            self._bind(module, name, target)
        self._waiting += imported
        inner = f"{module.name}.{name}"
        if not imported and self._is_own(inner) and self._find(inner) is not None:
            self._waiting.append((inner, None))
        elif not known and not imported:
            self._waiting += [(base, name) for base, _ in module.bindings.get("*", ())]
            if "__getattr__" in module.by_name:
                self._waiting.append((module.name, None))

    def _add_statement(self, module: Module, number: int) -> None:
        reached = self._reached.setdefault(module.name, set())
        if number in reached:
            return
        reached.add(number)
        statement = module.statements[number]
        if statement.is_dynamic:
            self._waiting.append((module.name, None))
        used = {chain[0] for chain in statement.uses}
        # If the names used from a module imported in a function cannot be followed, all of it
        # counts.
        self._waiting += [
            target
            for local, target in statement.imports
            if target[1] is not None or local not in used
        ]
        for text in statement.literals:
            name = text.partition(":")[0]
            is_path = name.startswith(f"{self._package}.") and name.replace(".", "_").isidentifier()
            if is_path and self._find(name) is not None:
                self._waiting.append((name, None))
        for chain in statement.uses:
            self._add_chain(module, chain)

    def _add_chain(self, module: Module, chain: tuple[str, ...]) -> None:
        root, *rest = chain
        if root in module.by_name:
            self._waiting.append((module.name, root))
        for target in module.bindings.get(root, ()):
            self._bind(module, root, target)
            self._follow(target, rest)
        if root and root not in module.by_name and root not in module.bindings:
            self._waiting += [(base, root) for base, _ in module.bindings.get("*", ())]

    def _bind(self, module: Module, name: str, target: Target) -> None:
        """Records an imported name's target: importing it from elsewhere is a change."""
        self._bound.setdefault(module.name, set()).add(f"{name}: {target[0]} {target[1] or ''}")

    def _follow(self, target: Target, rest: list[str]) -> None:
        """Adds what a name and its attributes lead to, as far as they are modules."""
        base, name = target
        if not self._is_own(base):
            return
        if name is None and not rest:
            self._waiting.append((base, None))  # used as a value
            return
        name, rest = (rest[0], rest[1:]) if name is None else (name, rest)
        inner = f"{base}.{name}"
        is_module = self._is_own(inner) and self._find(inner) is not None
        module = self._module(base)
        if not is_module or (module and name in module.by_name):
            self._waiting.append((base, name))
        if is_module:
            self._waiting.append((base, ""))
            self._follow((inner, None), rest)


def source_file(cls: type) -> Path | None:
    """Returns the file that defines a class; None for one typed into an interpreter."""
    try:
        return Path(inspect.getfile(cls)).resolve()
    except (TypeError, OSError):
        return None


def is_framework(name: str) -> bool:
    """Returns whether a module belongs to this package's own layers."""
    return name.partition(".")[0] == _FRAMEWORK and not name.startswith(_FRAMEWORKS_DATASETS)


def whole_modules(start: Mapping[str, Path], package: str) -> tuple[dict[str, str], list[Path]]:
    """Hashes modules and all modules of their package that they import, as rule 1 does.

    Returns the SHA-256 of each module's code, and the files of the modules.
    """
    waiting = list(start.items())
    found: dict[str, str] = {}
    files = []
    while waiting:
        name, path = waiting.pop()
        if name in found or path.suffix != ".py":
            continue
        code = _parsed(path.read_text("utf-8"))
        found[name] = sha256_of(_text_of(code))
        files.append(path)
        for node in ast.walk(code) if isinstance(code, ast.Module) else ():
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (base := _base(node, name, path)):
                names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
            for one in names:
                own = one == package or one.startswith(package + ".")
                file = _file_of(one) if own and not is_framework(one) else None
                if file is not None:
                    waiting.append((one, file))
    return found, files


def meaning(source: str) -> str:
    """Returns code as a normalized text that ignores comments, formatting and docstrings."""
    return _text_of(_parsed(source))


def _text_of(code: ast.Module | str) -> str:
    return code if isinstance(code, str) else _dumped(code)


_cached: dict[Hashable, tuple[dict[Path, tuple[int, ...]], Any]] = {}


def cached(key: Hashable, compute: Callable[[], tuple[_Value, Collection[Path]]]) -> _Value:
    """Returns a value computed from files, recomputing it only if one of them has changed.

    `compute` returns the value and the files it was computed from.
    """
    known = _cached.get(key)
    if known is not None and _states(known[0]) == known[0]:
        found: _Value = known[1]
        return found
    begun = time.time_ns()
    value, files = compute()
    states = _states(files)
    # A recently modified file may change again without a new modification time.
    if all(state and begun - max(state[:2]) > _SETTLED_NS for state in states.values()):
        _cached[key] = (states, value)
    return value


def _states(files: Iterable[Path]) -> dict[Path, tuple[int, ...]]:
    """Returns a tuple for each file that changes when the file does: times, size and inode."""
    found: dict[Path, tuple[int, ...]] = {}
    for path in files:
        try:
            stat = path.stat()
        except OSError:
            found[path] = ()
        else:
            found[path] = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
    return found


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements of a module that count: no imports, docstrings or `__main__` blocks."""
    for node in body:
        if isinstance(node, _IMPORTS) or _is_text(node):
            continue
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            continue
        yield node


def _changed(node: ast.stmt) -> set[str]:
    """Returns the names that a statement other than a definition binds or may change."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store | ast.Del):
            found.add(one.id)
        elif isinstance(one, _DEFINITIONS):
            found.add(one.name)
        elif isinstance(one, ast.Attribute | ast.Subscript) and isinstance(
            one.ctx, ast.Store | ast.Del
        ):
            root: ast.expr = one
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name):
                found.add(root.id)
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
            receiver = one.func.value
            if isinstance(receiver, ast.Name) and not isinstance(node, ast.Expr):
                found.add(receiver.id)  # as in `first = TABLE.pop()`
    return found


def _uses(node: ast.AST) -> Iterator[tuple[str, ...]]:
    """Yields the names that code uses, each with the attributes that follow it."""
    waiting: list[ast.AST] = [node]
    while waiting:
        root = waiting.pop()
        chain: list[str] = []
        while isinstance(root, ast.Attribute):
            chain.append(root.attr)
            root = root.value
        if isinstance(root, ast.Name):
            yield (root.id, *reversed(chain))
            continue
        if chain:
            yield ("", *reversed(chain))  # of a value
        waiting += [
            inner
            for inner in ast.iter_child_nodes(root)
            # Function annotations do not affect the data.
            if not (isinstance(root, _FUNCTIONS) and inner is root.returns)
            and not (isinstance(root, ast.arg) and inner is root.annotation)
        ]


def _counted(module: Module, numbers: set[int], bound: Iterable[str]) -> str:
    """Returns the part of a module that counts, as text; ignores the order of definitions."""
    chosen = [module.statements[number] for number in sorted(numbers)]
    defined = sorted(one.text for one in chosen if one.is_definition)
    done = [one.text for one in chosen if not one.is_definition]
    return "\n".join([*bound, *defined, *done])


def _base(node: ast.ImportFrom, module: str, path: Path) -> str:
    """Returns the module that names are imported from; an empty string if it cannot be resolved."""
    parent = module if path.name == "__init__.py" else module.rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), parent)
    except ImportError:
        return ""


def _file_of(module: str) -> Path | None:
    """Returns the file of a module whose outermost package is imported; None if there is none.

    The module is located on disk because some modules are imported only while the data is
    generated, and must count before that, too.
    """
    package, _, rest = module.partition(".")
    roots = [Path(root) for root in getattr(sys.modules.get(package), "__path__", ())]
    parts = rest.split(".") if rest else []
    for root in roots:
        inside = root.joinpath(*parts)
        for file in (inside / "__init__.py", inside.with_name(inside.name + ".py")):
            if file.is_file() and (parts or file.name == "__init__.py"):
                return file
    return None


def _parsed(source: str) -> ast.Module | str:
    """Returns the syntax tree without docstrings, or the source itself if it cannot be parsed."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # the latter for null bytes
        return source
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        has_doc = (ast.Module, *_DEFINITIONS)
        if isinstance(node, has_doc) and body and _is_text(body[0]):
            node.body = body[1:]
    return tree


def _dumped(node: object) -> str:
    """Returns a syntax tree as text.

    Unlike `ast.dump`, whose output for the same code changes between Python versions as fields are
    added, this leaves out empty fields.
    """
    if isinstance(node, ast.AST):
        fields = ((name, getattr(node, name, None)) for name in node._fields if name != "ctx")
        given = [f"{name}={_dumped(value)}" for name, value in fields if value not in (None, [])]
        return f"{type(node).__name__}({', '.join(given)})"
    if isinstance(node, list):
        return "[" + ", ".join(map(_dumped, node)) + "]"
    return ascii(node)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def sha256_of(text: str) -> str:
    """Returns the hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
