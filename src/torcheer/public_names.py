"""Public names: packages whose names load when asked for, classes whose help is what was written about them."""

from __future__ import annotations

import sys
from abc import ABCMeta
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any

_TAKES_ANY = 0x08  # of a function's code: it has **others


def lazy_names(
    package: str, modules: Mapping[str, str], *, elsewhere: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package; `modules` maps each name to its module.

    A name may be a module itself, also one of another name: "module:". `elsewhere`: names that people try here, and
    what to write instead.
    """

    def find(name: str) -> Any:
        if name not in modules:
            # asked for by programs, such as `inspect`; by Python, before it imports a module of that name
            is_asked_by_people = not name.startswith("_") and find_spec(f"{package}.{name}") is None
            instead = (elsewhere or {}).get(name) or _room_of(package, name, modules) if is_asked_by_people else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{instead or names_for(name)}")
        path, is_other_name, _ = modules[name].partition(":")
        module = import_module(path)
        is_module = is_other_name or (path.endswith(f".{name}") and not hasattr(module, name))
        value = module if is_module else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names_of_package() -> list[str]:
        return sorted({*modules, *vars(sys.modules[package]).get("__all__", ())} - {"__version__"})

    def names_for(name: str) -> str:
        from torcheer.terminal import did_you_mean

        names = names_of_package()
        meant = did_you_mean(name, names)
        return f"; it has {', '.join(names)}" + (f".{meant}" if meant else "")

    return find, names_of_package


def _room_of(package: str, name: str, modules: Mapping[str, str]) -> str:
    """Say in which room of a package a name is that the package itself does not have."""
    rooms = [path for public, path in modules.items() if path == f"{package}.{public}"]
    homes = [room for room in rooms if name in getattr(import_module(room), "__all__", ())]
    return f": it is {homes[0]}.{name}" if homes else ""


class PublicClass(ABCMeta):
    """The class of a public class. An abstract one, so that users may mix theirs with `abc.ABC`."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace, **options)
        if not hasattr(cls, "__getattr__") and not issubclass(cls, BaseException):
            cls.__getattr__ = _refuse  # where type checkers do not see it

    def __dir__(cls) -> list[str]:
        """The names to describe: not what Python adds to every class, nor fields, which the docstring explains."""
        written = {
            name: value
            for base in cls.__mro__[::-1]
            if base.__module__.partition(".")[0] not in ("builtins", "collections", "typing", "torch")
            for name, value in vars(base).items()
        }
        fields = getattr(cls, "__dataclass_fields__", ())
        return sorted(name for name, value in written.items() if name not in fields and _is_described(name, value))

    if not TYPE_CHECKING:  # to type checkers a call is one of `__init__`

        def __call__(cls, *arguments: Any, **options: Any) -> Any:
            """Make an object; an option that there is not is an UnknownOption."""
            code = getattr(cls.__init__, "__code__", None) if options else None
            if code is not None and not code.co_flags & _TAKES_ANY:
                known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
                if unknown := options.keys() - frozenset(known):
                    from torcheer.terminal import unknown_option

                    raise unknown_option(cls.__name__, min(unknown), known)
            return super().__call__(*arguments, **options)

        @property
        def __signature__(cls) -> Any:
            """That of `__init__`; `inspect` would take the one of `__call__` above."""
            from inspect import signature

            made = signature(cls.__init__)
            return made.replace(parameters=list(made.parameters.values())[1:], return_annotation=made.empty)


def _refuse(view: object, name: str) -> Any:
    """Raise for an attribute that there is not, with the one that was meant."""
    if hasattr(type(view), name):  # a property raised an AttributeError of its own: let that be seen
        return object.__getattribute__(view, name)
    if name.startswith("_"):  # asked for by programs, also before anything is set
        raise AttributeError(f"{type(view).__name__!r} object has no attribute {name!r}")
    from torcheer.terminal import unknown_attribute

    raise unknown_attribute(view, name)


def _is_described(name: str, value: object) -> bool:
    """Whether a name is public, or a method such as `__getitem__` that somebody explained."""
    return not name.startswith("_") or (
        name.startswith("__") and isinstance(value, FunctionType) and value.__doc__ is not None
    )
