"""Names of code in a config: which object each one is, and whether it may be imported.

A config is untrusted text, and a dotted name in it decides what runs. `torch.os.system` and
`torch.nn.functional.importlib.import_module` are one `getattr` away from a harmless-looking name, so attributes are
never chained: everything but the last word is a module that is imported under exactly that name, one attribute is read
from it, and that must be a class or a function *defined* where a config may reach: in an open part of torch and
related packages (`importable_names.py`), in the folder of the config, or in a package that the user named with
`--trust`.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torcheer.config.folder_modules import (
    find_in_folder,
    is_installed,
    is_loaded_from,
    load_module,
    module_exists,
    search_path,
)
from torcheer.config.importable_names import (
    CLOSED,
    PACKAGES,
    closed_reason,
    contains_open,
    deciding_prefix,
    is_open,
    open_children,
    prefixes,
)
from torcheer.config.source_code import SourceReader, is_stand_in
from torcheer.errors import BadConfig, NotTrusted, TorcheerError
from torcheer.terminal import did_you_mean, short_repr

ASSISTANTS = "torcheer_originals.torchassistant"  # TorchAssistant's modules that are nowhere else
OLD_NAMES = {  # old prefix of a name -> current prefix, the longer ones first
    **{
        f"torchassistant.{module}": f"{ASSISTANTS}.{module}"
        for module in ("data", "loss_functions", "output_adapters", "preprocessors", "transforms", "utils")
    },
    "torchassistant": "torcheer.training",
    "torcheer.training.stopping": "torcheer.training.stop_conditions",  # in 0.1
}
MAX_NAME_LENGTH = 200  # characters
DYNAMIC_NAMESPACES = ("torch.ops", "torch.classes")  # they create a module for any attribute name


def current_name(name: str) -> str:
    """Translate a name of TorchAssistant or an earlier version to the current one.

    >>> current_name("torchassistant.collators.BatchDivide"), current_name("torchassistants.Net")
    ('torcheer.training.collators.BatchDivide', 'torchassistants.Net')
    """
    for old, new in OLD_NAMES.items():
        if name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return name


def find(
    name: str,
    *,
    trusted: Iterable[str] = (),
    folder: str | os.PathLike[str] | None = None,
    kind: type | str | None = None,
) -> Any:
    """Import the class or function that a config names, such as "torch.nn.Linear".

    `trusted`: packages, modules or single names given with `--trust`. `folder`: the folder of the config's own
    modules. `kind`: "class", "function", or a class that the result must be a subclass or an instance of.
    """
    request = NameRequest.parse(name, trusted, folder)
    request.check_importable()
    target = request.resolve()
    request.check_origin(target)
    mismatch = find_kind_mismatch(target, kind)
    if mismatch:
        raise BadConfig(f"{name}: {mismatch}")
    return target


def read_source(name: str, *, trusted: Iterable[str] = (), folder: str | os.PathLike[str] | None = None) -> Any:
    """Return a class or function with the signature that its source file gives, importing nothing.

    Raise where there is none, and Unclear where only an import could tell.
    """
    request = NameRequest.parse(name, trusted, folder)
    request.check_importable()
    try:
        target = SourceReader(request.folder).target(request.module, request.attribute)
    except BadConfig as error:
        raise BadConfig(f"{name}: {error}") from None
    request.check_origin(target)
    return target


def describe(name: str, *, trusted: Iterable[str] = (), folder: str | os.PathLike[str] | None = None) -> str:
    """Return what is wrong with a name, as far as known without importing; "" if nothing is."""
    try:
        NameRequest.parse(name, trusted, folder).check_importable()
    except TorcheerError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class NameRequest:
    """A name of code, with the packages and the folder that the user trusts."""

    name: str  # as written in the config
    module: str
    attribute: str
    trusted: frozenset[str]
    folder: Path | None

    @classmethod
    def parse(cls, name: str, trusted: Iterable[str], folder: str | os.PathLike[str] | None) -> NameRequest:
        problem = find_syntax_problem(name)
        if problem:
            raise BadConfig(problem)
        module, _, attribute = current_name(name).rpartition(".")
        names = frozenset([trusted] if isinstance(trusted, str) else trusted)
        return cls(name, module, attribute, names, None if folder is None else Path(folder).resolve())

    @property
    def package(self) -> str:
        return self.module.split(".")[0]

    @property
    def full_name(self) -> str:
        return f"{self.module}.{self.attribute}"

    def is_trusted(self, module: str) -> bool:
        return any(part in self.trusted for part in prefixes(module))

    def check_importable(self) -> None:
        """Refuse a name that may not be imported, without importing anything."""
        if self.is_trusted(self.full_name):
            return
        if self.package in PACKAGES:
            self.check_open_package()
        elif is_installed(self.module, self.folder):
            self.check_exists()
            raise self.not_trusted_error(self.package_refusal(), self.package)
        elif self.folder:
            self.check_folder_module(self.folder)

    def check_open_package(self) -> None:
        if self.full_name in CLOSED:
            raise self.not_trusted_error(closed_reason(self.full_name), self.full_name)
        if not contains_open(self.module):
            if deciding_prefix(self.module) not in DYNAMIC_NAMESPACES:
                self.check_exists()
            raise self.not_trusted_error(closed_reason(self.module), self.module)

    def check_exists(self) -> None:
        """Raise if there is no such module: `--trust` would not help."""
        missing = next((part for part in reversed(prefixes(self.module)) if not module_exists(part)), None)
        if missing is not None:
            raise self.missing_module_error(missing)

    def check_folder_module(self, folder: Path) -> None:
        file = find_in_folder(self.module, folder)
        if file is not None and not file.is_relative_to(folder):
            raise self.not_trusted_error(f"{self.module} is linked to {file}, outside of {folder}", self.package)
        if file is None or file.is_dir():  # a folder without code has no class: a dataset's is often called `data`
            names = [*PACKAGES, *(module.name for module in pkgutil.iter_modules([str(folder)]))]
            raise BadConfig(f"{self.name}: there is no module {self.module} in {folder}.{self.suggest(names)}")

    def suggest(self, names: Iterable[str]) -> str:
        """Suggest the nearest name, for a misspelled package."""
        return did_you_mean(self.package, names) or did_you_mean(self.module, names)

    def package_refusal(self) -> str:
        """Explain why a config may not name an installed package."""
        text = f"a config may name {', '.join(sorted(PACKAGES))} and modules in its own folder, not {self.package}"
        if self.folder and find_in_folder(self.package, self.folder):
            text += f" (the one in {self.folder} has the name of an installed package: rename it)"
        return text

    def resolve(self) -> Any:
        """Import the module and return its attribute."""
        module = self.load()
        try:
            return getattr(module, self.attribute)
        except AttributeError:
            names = [name for name in dir(module) if not name.startswith("_")]
            text = f"{self.name}: {self.module} has no {self.attribute!r}.{did_you_mean(self.attribute, names)}"
        except Exception as error:  # a module with lazy imports
            raise self.import_failure(error) from error
        raise BadConfig(text)

    def load(self) -> ModuleType:
        is_folder_module = self.is_from_folder(self.module)
        try:
            module = load_module(self.module, self.folder, from_folder=is_folder_module)
        except ModuleNotFoundError as error:
            if error.name in prefixes(self.module):
                raise self.missing_module_error(error.name) from None
            raise self.import_failure(error) from error
        except (Exception, SystemExit) as error:  # a user's module may raise anything while it loads
            raise self.import_failure(error) from error
        if (
            is_folder_module
            and self.folder
            and not self.is_trusted(self.module)
            and not is_loaded_from(self.module, self.folder)
        ):
            file = getattr(module, "__file__", "another folder")
            raise BadConfig(f"{self.name}: a module {self.module} is loaded already, from {file}: rename one of them")
        return module

    def is_from_folder(self, module: str) -> bool:
        """Return whether a module belongs to the folder of the config."""
        package = module.split(".")[0]
        return self.folder is not None and package not in PACKAGES and not is_installed(module, self.folder)

    def missing_module_error(self, module: str) -> BadConfig:
        """Make the error for a missing module.

        `module` is the first part of the name that does not exist.
        """
        parent, _, last = module.rpartition(".")
        if not parent:
            install = f" Try: pip install {module.replace('_', '-')}"
            suggestion = install if module in PACKAGES else did_you_mean(module, PACKAGES)
            return BadConfig(f"{self.name}: {module} is not installed.{suggestion}")
        folders = search_path(parent)
        names = {*open_children(parent), *(module_info.name for module_info in pkgutil.iter_modules(folders))}
        hint = did_you_mean(last, sorted(names))
        if hasattr(sys.modules.get(parent), last):
            hint = " A name is a module, a dot, and one class or function of that module."
        where = f" It was looked for in {', '.join(folders)}" if folders else ""
        return BadConfig(f"{self.name}: {parent} has no module {last!r}.{hint}{where}")

    def import_failure(self, error: BaseException) -> BadConfig:
        message = f"{type(error).__name__}: {error}".rstrip(": ")
        return BadConfig(f"{self.name}: importing {self.module} failed with {message}")

    def check_origin(self, target: Any) -> None:
        """Refuse an object that is no class or function, or is defined where a config may not reach."""
        if not (inspect.isclass(target) or inspect.isfunction(target) or inspect.isbuiltin(target)):
            raise BadConfig(f"{self.name}: this is {with_article(type(target).__name__)}, not a class or a function")
        origin = getattr(target, "__module__", None)
        if self.full_name in self.trusted:
            return
        if not isinstance(origin, str):
            raise self.not_trusted_error("it does not say in which module it is defined", self.full_name)
        if not is_stand_in(target) and not self.is_genuine(target, origin):
            raise self.not_trusted_error(
                f"it says that it is defined in {origin}, which does not have it", self.full_name
            )
        if not self.is_reachable(target, origin):
            in_open_package = origin.split(".")[0] in PACKAGES
            text = f"it is defined in {origin}, which a config may not name"
            raise self.not_trusted_error(
                closed_reason(f"{origin}.{target.__name__}") if in_open_package else text, self.full_name
            )

    def is_genuine(self, target: Any, origin: str) -> bool:
        """Return whether an object is in the module it claims.

        Torch and related packages are trusted.
        """
        if origin == self.module or self.package in PACKAGES:
            return True
        return getattr(sys.modules.get(origin), target.__name__, None) is target

    def is_reachable(self, target: Any, origin: str) -> bool:
        """Return whether a config may name an object defined in the module `origin`."""
        if self.is_trusted(origin):
            return True
        if origin == "torch":
            return is_tensor_function(target)
        if origin.split(".")[0] in PACKAGES:
            return is_open(f"{origin}.{target.__name__}")
        if self.folder is None or not self.is_from_folder(origin):
            return False
        return is_stand_in(target) or is_loaded_from(origin, self.folder)

    def not_trusted_error(self, reason: str, trust: str, suggestion: str = "") -> NotTrusted:
        return NotTrusted(f"{self.name}: {reason}.{suggestion} If you trust it, run with --trust {trust}")


def is_tensor_function(target: Any) -> bool:
    """Return whether this is a tensor operation of torch.

    `torch` also has switches and file readers.
    """
    operations = getattr(getattr(sys.modules.get("torch"), "_C", None), "_VariableFunctions", None)
    name = target.__name__
    return f"torch.{name}" not in CLOSED and getattr(operations, name, None) is target


def find_syntax_problem(name: Any) -> str:
    """Return what is wrong with the syntax of a name; "" if nothing is."""
    if not isinstance(name, str):
        return f"a name of code is a string such as 'torch.nn.Linear', not {short_repr(name)}"
    words = name.split(".")
    if len(name) > MAX_NAME_LENGTH:
        return f"{short_repr(name)}: a name of {len(name)} characters is no name"
    if not all(word.isidentifier() and unicodedata.normalize("NFKC", word) == word for word in words):
        return f"{name!r}: a name is words with dots between them, such as 'torch.nn.Linear'"
    if any(word.startswith("_") for word in words):
        return f"{name!r}: a config may not name what starts with an underscore"
    if len(words) < 2:
        return f"{name!r}: a name starts with its module, such as 'torch.nn.{name}' or 'my_module.{name}'"
    return ""


def find_kind_mismatch(target: Any, kind: type | str | None) -> str:
    """Return why a class or function is not of the required kind; "" if it is."""
    is_class = inspect.isclass(target)
    description = "a class" if is_class else "a function"
    if isinstance(kind, str):
        return "" if is_class == (kind == "class") else f"this is {description}, and a {kind} is needed here"
    if kind is None or isinstance(target, kind) or (is_class and issubclass(target, kind)):
        return ""
    return f"this is {description}, and a subclass of {kind.__module__}.{kind.__qualname__} is needed here"


def with_article(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
