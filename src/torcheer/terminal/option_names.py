"""Options that a function does not have: an error that names the one that was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from torcheer.errors import UnknownOption
from torcheer.terminal.name_texts import did_you_mean

Function = TypeVar("Function", bound=Callable[..., Any])


def names_options(function: Function) -> Function:
    """Decorate a public function: an option that it does not have is an UnknownOption with the nearest that it has."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    options_known = frozenset(known)

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        if unknown := options.keys() - options_known:
            raise unknown_option(function.__name__, min(unknown), known)
        if len(arguments) > code.co_argcount:
            named = ", ".join(f"{name}=…" for name in known[code.co_argcount :][:4])
            raise UnknownOption(
                f"{function.__name__} takes {', '.join(known[: code.co_argcount])} by position, not {len(arguments)} "
                f"arguments: name the others, such as {named}"
            )
        return function(*arguments, **options)

    return call  # type: ignore[return-value]


def unknown_option(verb: str, name: str, known: Iterable[str], others: Iterable[str] = ()) -> UnknownOption:
    """Return the error for an option that there is not.

    - `known`: the options that there are, listed where none is near; `others`: those of other spellings.
    """
    known = [option for option in known if option != "self"]
    hint = did_you_mean(name, known) or did_you_mean(name, others) or f" It has {', '.join(known)}."
    return UnknownOption(f"{verb} has no option {name!r}.{hint}")
