"""Modules in the folder of a config: find them, and import only them from there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

# Loaded modules and the folder of each. Two folders may both have a `my_module`: with the second config of a process
# the modules of the first are unloaded, or its helpers would be imported for the second.
_loaded: dict[str, Path] = {}


def find_in_folder(module: str, folder: Path) -> Path | None:
    """Find the file of a module below `folder`, or the folder of a namespace, without importing."""
    subfolder = folder
    file: Path | None = None
    for word in module.split("."):
        spec = PathFinder.find_spec(word, [str(subfolder)])  # of a name with dots it would ask its loaded parent
        if spec is None:
            return None
        subfolder = subfolder / word
        file = Path(spec.origin if spec.has_location and spec.origin else subfolder).resolve()
        if not file.is_relative_to(folder):
            return file  # a link that leads outside: everything below it is outside too
    return file


def is_installed(module: str, folder: Path | None) -> bool:
    """Return whether a module is in the standard library or installed, not in the folder.

    Imports nothing.
    """
    package = module.split(".")[0]
    if package in sys.stdlib_module_names:
        return True
    with module_search_path(folder, include_folder=False):
        spec = find_outermost_spec(module)
    if spec is None or not spec.origin:
        return False
    return folder is None or Path(spec.origin).resolve() != find_in_folder(spec.name, folder)


def find_outermost_spec(module: str) -> ModuleSpec | None:
    """Find the spec of the first package in a dotted name that has code.

    Namespace packages are skipped.
    """
    first, *words = module.split(".")
    finders = [finder.find_spec for finder in sys.meta_path if hasattr(finder, "find_spec")]
    spec = next(filter(None, (find(first, None) for find in finders)), None)
    for word in words:
        if spec is None or spec.origin or spec.submodule_search_locations is None:
            break
        spec = PathFinder.find_spec(f"{spec.name}.{word}", list(spec.submodule_search_locations))
    return spec


def installed_file(module: str) -> Path | None:
    """Return the file of a module outside the folder, without importing it; None if it has none."""
    parent = module.rpartition(".")[0]
    spec = PathFinder.find_spec(module, search_path(parent)) if parent else find_outermost_spec(module)
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None


def module_exists(module: str) -> bool:
    """Return whether a module outside the folder exists, without importing it."""
    if module in sys.modules:
        return True
    parent = module.rpartition(".")[0]
    if not parent:
        return find_outermost_spec(module) is not None
    return module_exists(parent) and PathFinder.find_spec(module, search_path(parent)) is not None


def search_path(package: str) -> list[str]:
    """List the folders that a package's modules are in; empty if it is no package."""
    if package in sys.modules:
        return [str(entry) for entry in getattr(sys.modules[package], "__path__", ())]
    parent, _, _ = package.rpartition(".")
    spec = PathFinder.find_spec(package, search_path(parent)) if parent else find_outermost_spec(package)
    return list((spec and spec.submodule_search_locations) or ())


def load_module(module: str, folder: Path | None, *, from_folder: bool) -> ModuleType:
    """Import a module: from the folder if `from_folder`, otherwise never from there."""
    if from_folder and folder:
        unload_other_folders(folder)
    before = set(sys.modules)
    try:
        with module_search_path(folder, include_folder=from_folder):
            return importlib.import_module(module)
    finally:
        if from_folder and folder:
            _loaded.update({name: folder for name in set(sys.modules) - before if is_loaded_from(name, folder)})


def unload_other_folders(folder: Path) -> None:
    for name in [name for name, owner in _loaded.items() if owner != folder]:
        del _loaded[name]
        sys.modules.pop(name, None)


def is_loaded_from(name: str, folder: Path) -> bool:
    """Return whether a loaded module came from the folder, not from a namesake elsewhere."""
    file = getattr(sys.modules.get(name), "__file__", None)
    expected = find_in_folder(name, folder)
    if expected is None or not expected.is_relative_to(folder):
        return False
    return expected.is_dir() if file is None else Path(file).resolve() == expected


@contextmanager
def module_search_path(folder: Path | None, *, include_folder: bool) -> Iterator[None]:
    """Search modules everywhere but in the folder.

    With `include_folder` there last, so that it shadows nothing.
    """
    if folder is None:
        yield
        return
    importlib.invalidate_caches()  # its files may have just been written
    before = list(sys.path)
    during = [entry for entry in before if not is_same_folder(entry, folder)] + [str(folder)] * include_folder
    sys.path[:] = during
    try:
        yield
    finally:
        sys.path[:] = before + [entry for entry in sys.path if entry not in during]  # keep what the module added


def is_same_folder(entry: str, folder: Path) -> bool:
    with suppress(OSError, TypeError, ValueError):
        return Path(entry or ".").resolve() == folder
    return False
