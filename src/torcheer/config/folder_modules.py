"""Modules that lie in the folder of a config: where they are, and importing them and nothing else from there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

# The modules that came from a folder, and which. Two folders may both have a `my_module`: with the second config of a
# process the first one's modules are forgotten, or its helpers would answer for the second's.
_loaded: dict[str, Path] = {}


def home(module: str, folder: Path) -> Path | None:
    """The file, or for a namespace the folder, that a dotted name has below `folder`; nothing is imported."""
    place = folder
    found: Path | None = None
    name = ""
    for word in module.split("."):
        name = f"{name}.{word}".lstrip(".")
        spec = PathFinder.find_spec(name, [str(place)])
        if spec is None:
            return None
        place = place / word
        found = Path(spec.origin if spec.has_location and spec.origin else place).resolve()
        if not found.is_relative_to(folder):
            return found  # a link that leads outside: what lies below it is outside too
    return found


def installed(module: str, folder: Path | None) -> bool:
    """Whether a module is part of Python or installed, rather than lying in the folder; nothing is imported."""
    package = module.split(".")[0]
    if package in sys.stdlib_module_names:
        return True
    with searching(folder, also=False):
        spec = outermost(module)
    if spec is None or not spec.origin:
        return False
    return folder is None or Path(spec.origin).resolve() != home(spec.name, folder)


def outermost(module: str) -> ModuleSpec | None:
    """Where the first part of a name that has code of its own would come from; a namespace only passes on."""
    first, *rest = module.split(".")
    finders = [finder.find_spec for finder in sys.meta_path if hasattr(finder, "find_spec")]
    spec = next(filter(None, (find(first, None) for find in finders)), None)
    for word in rest:
        if spec is None or spec.origin or spec.submodule_search_locations is None:
            break
        spec = PathFinder.find_spec(f"{spec.name}.{word}", list(spec.submodule_search_locations))
    return spec


def exists(module: str) -> bool:
    """Whether a module outside of the folder is there to be imported; nothing is imported to find out."""
    if module in sys.modules:
        return True
    parent = module.rpartition(".")[0]
    if not parent:
        return outermost(module) is not None
    return exists(parent) and PathFinder.find_spec(module, search_path(parent)) is not None


def search_path(package: str) -> list[str]:
    """The folders in which the modules of a package lie; none where it is no package."""
    if package in sys.modules:
        return [str(entry) for entry in getattr(sys.modules[package], "__path__", ())]
    parent, _, _ = package.rpartition(".")
    spec = PathFinder.find_spec(package, search_path(parent)) if parent else outermost(package)
    return list((spec and spec.submodule_search_locations) or ())


def load(module: str, folder: Path | None, *, own: bool) -> ModuleType:
    """Import a module: one of the folder's own, or one that must not come from there."""
    if own and folder:
        forget_others(folder)
    before = set(sys.modules)
    try:
        with searching(folder, also=own):
            return importlib.import_module(module)
    finally:
        if own and folder:
            _loaded.update({name: folder for name in set(sys.modules) - before if lies_in(name, folder)})


def forget_others(folder: Path) -> None:
    for name in [name for name, other in _loaded.items() if other != folder]:
        del _loaded[name]
        sys.modules.pop(name, None)


def lies_in(name: str, folder: Path) -> bool:
    """Whether a loaded module is the one that its name has in the folder, and no namesake."""
    file = getattr(sys.modules.get(name), "__file__", None)
    there = home(name, folder)
    if there is None or not there.is_relative_to(folder):
        return False
    return there.is_dir() if file is None else Path(file).resolve() == there


@contextmanager
def searching(folder: Path | None, *, also: bool) -> Iterator[None]:
    """Look for modules everywhere but in the folder, and then, `also`, in the folder: it must shadow nothing."""
    if folder is None:
        yield
        return
    importlib.invalidate_caches()  # its files may be a moment old
    before = list(sys.path)
    during = [entry for entry in before if not same(entry, folder)] + [str(folder)] * also
    sys.path[:] = during
    try:
        yield
    finally:
        sys.path[:] = before + [entry for entry in sys.path if entry not in during]  # what the module itself added


def same(entry: str, folder: Path) -> bool:
    with suppress(OSError, TypeError, ValueError):
        return Path(entry or ".").resolve() == folder
    return False
