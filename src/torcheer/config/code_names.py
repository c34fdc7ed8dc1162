"""Names of code in a config: what each one means, and whether it may be imported.

A config is text from somewhere, and a dotted name in it decides what runs. `torch.os.system` and
`torch.nn.functional.importlib.import_module` are all one `getattr` away from a name that looks harmless, so there is
no walking: everything but the last word is a module that is imported under exactly that name, one attribute is taken
from it, and that must be a class or a function that is *defined* where a config may reach: in an open part of torch
and its kin (`allowed.py`), in the folder of the config, or in a package that the user named with `--trust`.
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

from torcheer.config.folder_modules import exists, home, installed, lies_in, load, search_path
from torcheer.config.importable_names import (
    CLOSED,
    PACKAGES,
    deciding,
    is_open,
    leads_to_open,
    open_inside,
    prefixes,
    reason,
)
from torcheer.config.problems import brief, nearest
from torcheer.errors import BadConfig, NotTrusted, TorcheerError

OLD_NAMES = {  # the start of a name -> what it is called here
    "torchassistant": "torcheer.training",
    "torcheer.training.stopping": "torcheer.training.stop_conditions",  # in 0.1
}
LONGEST = 200  # characters of a name
MADE = ("torch.ops", "torch.classes")  # they make modules of any name when they are asked


def current_name(name: str) -> str:
    """A name of code as it is today: TorchAssistant's, and those of earlier versions, are understood.

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
    """The class or function that a config names, such as "torch.nn.Linear" or "my_module.Net".

    `trusted` is what `--trust` named: packages, modules, or single names; `folder` is where the config's own modules
    lie. `kind` is "class", "function", or a class that the result must be a subclass or an instance of.
    """
    request = Request.of(name, trusted, folder)
    request.admit()
    thing = request.take()
    request.judge(thing)
    unfit = misfit(thing, kind)
    if unfit:
        raise BadConfig(f"{name}: {unfit}")
    return thing


def describe(name: str, *, trusted: Iterable[str] = (), folder: str | os.PathLike[str] | None = None) -> str:
    """What is wrong with a name, as far as that can be said without importing anything; "" if nothing is."""
    try:
        Request.of(name, trusted, folder).admit()
    except TorcheerError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Request:
    """One name, and what the user allows."""

    name: str  # as the config has it
    module: str
    attribute: str
    trusted: frozenset[str]
    folder: Path | None

    @classmethod
    def of(cls, name: str, trusted: Iterable[str], folder: str | os.PathLike[str] | None) -> Request:
        problem = misshapen(name)
        if problem:
            raise BadConfig(problem)
        module, _, attribute = current_name(name).rpartition(".")
        names = frozenset([trusted] if isinstance(trusted, str) else trusted)
        return cls(name, module, attribute, names, None if folder is None else Path(folder).resolve())

    @property
    def package(self) -> str:
        return self.module.split(".")[0]

    @property
    def full(self) -> str:
        return f"{self.module}.{self.attribute}"

    def trusts(self, module: str) -> bool:
        return any(part in self.trusted for part in prefixes(module))

    def admit(self) -> None:
        """Refuse a name that may not be imported; nothing is imported to find out."""
        if self.trusts(self.full):
            return
        if self.package in PACKAGES:
            self.admit_kin()
        elif installed(self.module, self.folder):
            self.must_exist()
            raise self.refusal(self.unnamed(), self.package)
        elif self.folder:
            self.admit_own(self.folder)

    def admit_kin(self) -> None:
        if self.full in CLOSED:
            raise self.refusal(reason(self.full), self.full)
        if not leads_to_open(self.module):
            if deciding(self.module) not in MADE:
                self.must_exist()
            raise self.refusal(reason(self.module), self.module)

    def must_exist(self) -> None:
        """Raise where there is no such module: trusting it would not help."""
        missing = next((part for part in reversed(prefixes(self.module)) if not exists(part)), None)
        if missing is not None:
            raise self.missing(missing)

    def admit_own(self, folder: Path) -> None:
        file = home(self.module, folder)
        if file is None:
            known = [*PACKAGES, *(found.name for found in pkgutil.iter_modules([str(folder)]))]
            raise BadConfig(f"{self.name}: there is no module {self.module} in {folder}.{self.near(known)}")
        if not file.is_relative_to(folder):
            raise self.refusal(f"{self.module} is linked to {file}, outside of {folder}", self.package)

    def near(self, known: Iterable[str]) -> str:
        """The known package that is meant, when it is the package that is misspelled."""
        return nearest(self.package, known) or nearest(self.module, known)

    def unnamed(self) -> str:
        """Why a package that is there is none of a config's business."""
        text = f"a config may name {', '.join(sorted(PACKAGES))} and modules in its own folder, not {self.package}"
        if self.folder and home(self.package, self.folder):
            text += f" (the one in {self.folder} has the name of an installed package: rename it)"
        return text

    def take(self) -> Any:
        """Import the module and take the one attribute."""
        module = self.imported()
        try:
            return getattr(module, self.attribute)
        except AttributeError:
            known = [each for each in dir(module) if not each.startswith("_")]
            text = f"{self.name}: {self.module} has no {self.attribute!r}.{nearest(self.attribute, known)}"
        except Exception as error:  # a module that imports its parts when they are asked for
            raise self.broken(error) from error
        raise BadConfig(text)

    def imported(self) -> ModuleType:
        own = self.is_own(self.module)
        try:
            module = load(self.module, self.folder, own=own)
        except ModuleNotFoundError as error:
            if error.name in prefixes(self.module):
                raise self.missing(error.name) from None
            raise self.broken(error) from error
        except (Exception, SystemExit) as error:  # whatever the user's own module does while it loads
            raise self.broken(error) from error
        if own and self.folder and not self.trusts(self.module) and not lies_in(self.module, self.folder):
            file = getattr(module, "__file__", "another folder")
            raise BadConfig(f"{self.name}: a module {self.module} is loaded already, from {file}: rename one of them")
        return module

    def is_own(self, module: str) -> bool:
        """Whether a module is to come from the folder of the config."""
        package = module.split(".")[0]
        return self.folder is not None and package not in PACKAGES and not installed(module, self.folder)

    def missing(self, module: str) -> BadConfig:
        """The error of a module that does not exist; `module` is the first part of its name that is none."""
        parent, _, last = module.rpartition(".")
        if not parent:
            meant = "" if module in PACKAGES else nearest(module, PACKAGES)
            return BadConfig(f"{self.name}: {module} is not installed.{meant}")
        places = search_path(parent)
        known = {*open_inside(parent), *(found.name for found in pkgutil.iter_modules(places))}
        hint = nearest(last, sorted(known))
        if hasattr(sys.modules.get(parent), last):
            hint = " A name is a module, a dot, and one class or function of that module."
        where = f" It was looked for in {', '.join(places)}" if places else ""
        return BadConfig(f"{self.name}: {parent} has no module {last!r}.{hint}{where}")

    def broken(self, error: BaseException) -> BadConfig:
        said = f"{type(error).__name__}: {error}".rstrip(": ")
        return BadConfig(f"{self.name}: importing {self.module} failed with {said}")

    def judge(self, thing: Any) -> None:
        """Refuse what is no class or function, or is defined where a config may not reach."""
        if not (inspect.isclass(thing) or inspect.isfunction(thing) or inspect.isbuiltin(thing)):
            raise BadConfig(f"{self.name}: this is {article(type(thing).__name__)}, not a class or a function")
        origin = getattr(thing, "__module__", None)
        if self.full in self.trusted:
            return
        if not isinstance(origin, str):
            raise self.refusal("it does not say in which module it is defined", self.full)
        if not self.genuine(thing, origin):
            raise self.refusal(f"it says that it is defined in {origin}, which does not have it", self.full)
        if not self.reaches(thing, origin):
            inside = origin.split(".")[0] in PACKAGES
            text = f"it is defined in {origin}, which a config may not name"
            raise self.refusal(reason(f"{origin}.{thing.__name__}") if inside else text, self.full)

    def genuine(self, thing: Any, origin: str) -> bool:
        """Whether a thing is where it says it comes from; torch and its kin are believed."""
        if origin == self.module or self.package in PACKAGES:
            return True
        return getattr(sys.modules.get(origin), thing.__name__, None) is thing

    def reaches(self, thing: Any, origin: str) -> bool:
        """Whether a config may have what is defined in the module `origin`."""
        if self.trusts(origin):
            return True
        if origin == "torch":
            return is_tensor_function(thing)
        if origin.split(".")[0] in PACKAGES:
            return is_open(f"{origin}.{thing.__name__}")
        return self.folder is not None and self.is_own(origin) and lies_in(origin, self.folder)

    def refusal(self, why: str, trust: str, meant: str = "") -> NotTrusted:
        return NotTrusted(f"{self.name}: {why}.{meant} If you trust it, run with --trust {trust}")


def is_tensor_function(thing: Any) -> bool:
    """Whether this is one of torch's own operations on tensors; `torch` itself also holds switches and file readers."""
    operations = getattr(getattr(sys.modules.get("torch"), "_C", None), "_VariableFunctions", None)
    name = thing.__name__
    return f"torch.{name}" not in CLOSED and getattr(operations, name, None) is thing


def misshapen(name: Any) -> str:
    """What is wrong with the form of a name; "" if nothing is."""
    if not isinstance(name, str):
        return f"a name of code is a text such as 'torch.nn.Linear', not {brief(name)}"
    words = name.split(".")
    if len(name) > LONGEST:
        return f"{brief(name)}: a name of {len(name)} characters is no name"
    if not all(word.isidentifier() and unicodedata.normalize("NFKC", word) == word for word in words):
        return f"{name!r}: a name is words with dots between them, such as 'torch.nn.Linear'"
    if any(word.startswith("_") for word in words):
        return f"{name!r}: a config may not name what starts with an underscore"
    if len(words) < 2:
        return f"{name!r}: a name starts with its module, such as 'torch.nn.{name}' or 'my_module.{name}'"
    return ""


def misfit(thing: Any, kind: type | str | None) -> str:
    """Why a class or function does not fit a place; "" if it does."""
    is_class = inspect.isclass(thing)
    found = "a class" if is_class else "a function"
    if isinstance(kind, str):
        return "" if is_class == (kind == "class") else f"this is {found}, and a {kind} is needed here"
    if kind is None or isinstance(thing, kind) or (is_class and issubclass(thing, kind)):
        return ""
    return f"this is {found}, and a subclass of {kind.__module__}.{kind.__qualname__} is needed here"


def article(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
