"""Classes and functions in source files: whether a name exists, and which arguments it takes. Nothing is imported.

A module that is loaded already (torch's) is asked itself. What a file does not tell, since a decorator makes it or a
condition decides it, raises Unclear: that is neither right nor wrong.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any, Never

from torcheer.config.folder_modules import find_in_folder, installed_file, is_installed
from torcheer.errors import BadConfig
from torcheer.terminal import did_you_mean

MAX_IMPORTS = 20  # that lead from one file to the next, until a definition
SAME_SIGNATURE = {"no_grad", "inference_mode", "enable_grad", "cache", "lru_cache"}  # decorators
MADE_WHILE_RUNNING = {"globals", "exec", "__getattr__"}  # names of a module that its statements do not show

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Unclear(Exception):
    """What only an import could tell; the message says why."""


class SourceReader:
    """Reads the modules of a config's folder, and installed ones that are not loaded, as files."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._trees: dict[Path, ast.Module] = {}

    def target(self, module: str, name: str, depth: int = 0) -> Any:
        """Return what a name of a module means: an object that is loaded, or one with its name and signature.

        Raise BadConfig if there is no such name.
        """
        place = self._place(module, depth)
        return _attribute(place, name) if isinstance(place, ModuleType) else place.target(name)

    def names(self, module: str, depth: int) -> set[str]:
        """Return the names that a module has."""
        place = self._place(module, depth)
        return set(vars(place)) if isinstance(place, ModuleType) else place.names()

    def tree(self, file: Path) -> ast.Module:
        """Return the statements of a file; raise BadConfig where Python could not read it either."""
        if file not in self._trees:
            try:
                self._trees[file] = ast.parse(file.read_bytes())
            except SyntaxError as error:
                raise BadConfig(f"{file.name}:{error.lineno or 1}: this is no Python: {error.msg}") from None
            except (OSError, ValueError, RecursionError) as error:
                raise Unclear(f"{file.name} cannot be read: {error}") from None
        return self._trees[file]

    def _place(self, module: str, depth: int) -> ModuleType | SourceFile:
        """Return the file of a module; of one that is not the user's and is loaded, the module."""
        if depth > MAX_IMPORTS:
            raise Unclear(f"the imports of {module} lead in a circle")
        if self.folder is not None and not is_installed(module, self.folder):
            file = find_in_folder(module, self.folder)
        elif module in sys.modules:
            return sys.modules[module]
        else:
            file = installed_file(module)
        if file is None or file.suffix != ".py":
            raise Unclear(f"there is no Python file of {module} here")
        return SourceFile(self, module, file, depth)


class SourceFile:
    """The names of one module, by its statements."""

    def __init__(self, reader: SourceReader, module: str, file: Path, depth: int) -> None:
        self.reader, self.module, self.file, self.depth = reader, module, file, depth
        self.tree = reader.tree(file)
        if raised := next((statement for statement in self.tree.body if isinstance(statement, ast.Raise)), None):
            raise BadConfig(f"{file.name}:{raised.lineno}: this module raises when it is imported")

    def target(self, name: str) -> Any:
        """Return what a name of this module means."""
        last = self._last_binding(self.tree.body, name)
        if last is None:
            return self._from_star_imports(name)
        if isinstance(last, ast.ImportFrom):
            alias = next(alias for alias in last.names if (alias.asname or alias.name) == name)
            return self.reader.target(self._origin(last), alias.name, self.depth + 1)
        if isinstance(last, ast.Assign) and isinstance(last.value, ast.Name | ast.Attribute):  # Alias = Net
            return self._base(last.value)
        if not isinstance(last, Definition):
            self._unclear(f"{name} is made by a statement", last)
        return self._stand_in(last)

    def _last_binding(self, body: list[ast.stmt], name: str) -> ast.stmt | None:
        """Return the statement that binds a name last; raise Unclear where a condition or a function decides."""
        bindings = [statement for statement in body if name in bound_names(statement)]
        if changed := next((node for node in ast.walk(self.tree) if _changes_globally(node, name)), None):
            self._unclear(f"a function changes {name}", changed)
        return bindings[-1] if bindings else None

    def _from_star_imports(self, name: str) -> Any:
        stars = [statement for statement in self.tree.body if "*" in bound_names(statement)]
        for statement in reversed(stars):
            if not isinstance(statement, ast.ImportFrom):
                self._unclear("a condition decides what is imported", statement)
            try:
                return self.reader.target(self._origin(statement), name, self.depth + 1)
            except BadConfig:
                continue
        if dynamic := next((node for node in ast.walk(self.tree) if _makes_names(node)), None):
            self._unclear("some of its names are made while it runs", dynamic)
        place = self.module if self.file.name == "__init__.py" else self.file.name
        raise BadConfig(f"{place} has no class or function {name!r}.{did_you_mean(name, sorted(self.names()))}")

    def names(self) -> set[str]:
        """Return the names that this module has, as far as its statements tell."""
        names = {name for statement in self.tree.body for name in bound_names(statement)}
        for statement in self.tree.body if "*" in names else ():
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                with suppress(Unclear, BadConfig):
                    names |= self.reader.names(self._origin(statement), self.depth + 1)
        return names - {"*"}

    def _origin(self, statement: ast.ImportFrom) -> str:
        """Return the full name of the module that a statement imports from."""
        package = self.module if self.file.name == "__init__.py" else self.module.rpartition(".")[0]
        try:
            return resolve_name("." * statement.level + (statement.module or ""), package)
        except ImportError:
            self._unclear("this import leads out of its package", statement)

    def _stand_in(self, definition: Definition) -> Any:
        """Return a class or function with the name, the module and the signature of a definition."""
        if isinstance(definition, ast.ClassDef):
            return self._class(definition)
        if not all(map(_keeps_signature, definition.decorator_list)):
            self._unclear(f"{definition.name} is made by a decorator", definition)

        def function(*args: Any, **kwargs: Any) -> Never:
            raise NotImplementedError

        function.__name__, function.__module__ = definition.name, self.module
        vars(function).update(__signature__=inspect.Signature(_parameters(definition)), is_stand_in=True)
        return function

    def _class(self, definition: ast.ClassDef) -> type:
        if definition.decorator_list:
            self._unclear(f"{definition.name} is made by a decorator", definition)
        if definition.keywords or self._last_binding(definition.body, "__new__"):
            self._unclear(f"{definition.name} makes its objects in its own way", definition)
        own = self._last_binding(definition.body, "__init__")
        if own is None:
            return self._inheriting(definition)
        if not isinstance(own, ast.FunctionDef) or not all(map(_keeps_signature, own.decorator_list)):
            self._unclear(f"the constructor of {definition.name} is made by a statement or a decorator", own)
        signature = inspect.Signature(_parameters(own)[1:])
        return type(
            definition.name, (_StandIn,), {"__module__": self.module, "__init__": None, "__signature__": signature}
        )

    def _inheriting(self, definition: ast.ClassDef) -> type:
        """Return a class without a constructor of its own."""
        bases = [base for base in map(self._base, definition.bases) if _has_constructor(base)]
        if len(bases) > 1 and "__init__" not in vars(bases[0]):
            self._unclear(f"{definition.name} has several constructors to inherit", definition)
        try:
            signature = inspect.signature(bases[0]) if bases else inspect.Signature()
        except (TypeError, ValueError):
            self._unclear(f"{definition.name} inherits a constructor that does not describe itself", definition)
        kind = _Inheriting if bases else _StandIn
        return type(definition.name, (kind,), {"__module__": self.module, "__signature__": signature})

    def _base(self, expression: ast.expr) -> Any:
        """Return the class that stands among the bases of another."""
        if isinstance(expression, ast.Subscript):  # Dataset[int]
            return self._base(expression.value)
        words = ast.unparse(expression).split(".")
        if not all(word.isidentifier() for word in words):
            self._unclear("a base class is made by a call", expression)
        if len(words) > 1:
            return self.reader.target(".".join([self._imported_module(words[0], expression), *words[1:-1]]), words[-1])
        if words[0] in vars(builtins) and self._last_binding(self.tree.body, words[0]) is None:
            return getattr(builtins, words[0])
        return self.target(words[0])

    def _imported_module(self, name: str, expression: ast.expr) -> str:
        last = self._last_binding(self.tree.body, name)
        if isinstance(last, ast.Import):
            return next((alias.name for alias in last.names if alias.asname == name), name)
        if isinstance(last, ast.ImportFrom):
            alias = next(alias for alias in last.names if (alias.asname or alias.name) == name)
            return f"{self._origin(last)}.{alias.name}"
        self._unclear(f"{name} is no module that is imported", expression)

    def _unclear(self, reason: str, node: ast.AST) -> Never:
        raise Unclear(f"{reason} ({self.file.name}:{getattr(node, 'lineno', 1)})")


class _StandIn:
    """Marks a class that was read."""


class _Inheriting(_StandIn):
    """Marks a class that inherits its constructor."""

    def __init__(self) -> None:
        raise NotImplementedError


def is_stand_in(target: Any) -> bool:
    """Return whether a class or function was read from a source file, not loaded."""
    if inspect.isclass(target):
        return issubclass(target, _StandIn)
    return inspect.isfunction(target) and "is_stand_in" in vars(target)


def bound_names(node: ast.AST) -> set[str]:
    """Return the names that a statement binds in its own scope; "*" for a star import."""
    return set(_bound(node))


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, Definition):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.id
    elif not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _bound(child)


def _changes_globally(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Global) and name in node.names


def _makes_names(node: ast.AST) -> bool:
    """Return whether a node may add names to its module that no statement shows."""
    if isinstance(node, ast.FunctionDef | ast.Name):
        return (node.name if isinstance(node, ast.FunctionDef) else node.id) in MADE_WHILE_RUNNING
    return isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.modules"


def _attribute(module: ModuleType, name: str) -> Any:
    names = vars(module)
    if name in names:
        return names[name]
    if "__getattr__" in names:
        raise Unclear(f"{module.__name__} finds its names while it runs")
    raise BadConfig(
        f"{module.__name__} has no {name!r}.{did_you_mean(name, [each for each in names if each[0] != '_'])}"
    )


def _keeps_signature(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] in SAME_SIGNATURE


def _has_constructor(kind: Any) -> bool:
    """Return whether a class has a constructor other than that of object."""
    if not isinstance(kind, type):
        raise Unclear(f"{kind!r} is no class")
    if type(kind).__call__ is not type.__call__:  # its metaclass makes the objects
        return True
    return any(getattr(kind, name) is not getattr(object, name) for name in ("__init__", "__new__"))


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[inspect.Parameter]:
    """Return the parameters of a function's definition."""
    arguments = function.args
    kinds = inspect.Parameter
    positional = [*arguments.posonlyargs, *arguments.args]
    only, either = kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    parameters = [
        _parameter(argument, only if place < len(arguments.posonlyargs) else either, default)
        for place, (argument, default) in enumerate(zip(positional, defaults, strict=True))
    ]
    if arguments.vararg:
        parameters.append(kinds(arguments.vararg.arg, kinds.VAR_POSITIONAL))
    parameters += [
        _parameter(argument, kinds.KEYWORD_ONLY, default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        parameters.append(kinds(arguments.kwarg.arg, kinds.VAR_KEYWORD))
    return parameters


def _parameter(argument: ast.arg, kind: Any, default: ast.expr | None) -> inspect.Parameter:
    annotation = inspect.Parameter.empty if argument.annotation is None else ast.unparse(argument.annotation)
    return inspect.Parameter(argument.arg, kind, default=_default(default), annotation=annotation)


def _default(value: ast.expr | None) -> Any:
    """Return a default that is written out, ... for one that is computed, and empty for none."""
    if value is None:
        return inspect.Parameter.empty
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ...
