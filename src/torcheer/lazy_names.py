"""Lazy public names of a package: each is imported from its module on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str], *, older: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package; `modules` maps each name to its module.

    A name may be a module itself, also one of another name: "module:". `older`: a package with names of a system that
    this one continues, which is asked for names that are not listed; its `ELSEWHERE` has those of which it says what to
    write instead.
    """

    def find(name: str) -> Any:
        if name not in modules and older and not name.startswith("_"):
            others: Any = import_module(older)
            if name in dir(others) or name in others.ELSEWHERE:
                return getattr(others, name)
        if name not in modules:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}; it has {', '.join(names_of_package())}"
            )
        path, is_other_name, _ = modules[name].partition(":")
        module = import_module(path)
        is_module = is_other_name or (path.endswith(f".{name}") and not hasattr(module, name))
        value = module if is_module else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names_of_package() -> list[str]:
        return sorted({*modules, *vars(sys.modules[package]).get("__all__", ())} - {"__version__"})

    return find, names_of_package
