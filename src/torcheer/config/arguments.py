"""Check a config's arguments against the signature of the code it names."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torcheer.config.overrides import instead_of_word, word_problem
from torcheer.terminal import did_you_mean

NO_STRINGS = {"int", "float", "complex", "bool", "None", "NoneType", "Tensor"}  # kinds that no string is of
OF_OTHERS = {"Optional", "Union", "tuple", "Tuple", "list", "List"}  # those of which no string is, if of none of theirs


def bind(target: Any, kwargs: Mapping[str, Any], args: Sequence[Any] = ()) -> str:
    """Return why a class or function does not take these arguments.

    "" if it does or has no signature.
    """
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return ""
    if unknown := unknown_argument(target, kwargs):
        return unknown
    parameters = list(signature.parameters.values())
    missing = [parameter for parameter in required_parameters(parameters, len(args)) if parameter not in kwargs]
    if missing:
        return f"{target.__name__} also needs {' and '.join(map(repr, missing))}."
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:  # too many arguments, or one given twice
        return f"{target.__name__}: {error}."
    return ""


def unknown_argument(target: Any, kwargs: Mapping[str, Any]) -> str:
    """Return which keyword a class or function does not take; "" if it takes all or has no signature."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return ""
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return ""
    names = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    for key in kwargs:
        if key not in names:
            takes = f"it takes {', '.join(names)}" if names else "it takes nothing"
            return f"{target.__name__} has no argument {key!r}; {takes}.{did_you_mean(key, names)}"
    return ""


def refused_word(target: Any, name: str, word: str) -> str:
    """Return why a word of the command line is no argument of this name, as an annotation or a default tells plainly.

    "" if it may be one.
    """
    try:
        parameter = inspect.signature(target).parameters.get(name)
    except (TypeError, ValueError):
        return ""
    if parameter is None:  # one of **kwargs
        return ""
    if parameter.annotation is parameter.empty:
        return word_problem(f"by default {target.__name__} has", parameter.default, word)
    kind = inspect.formatannotation(parameter.annotation).strip("\"'")
    return f"{target.__name__} takes {kind} there{instead_of_word(word)}" if _excludes_strings(kind) else ""


def _excludes_strings(annotation: str) -> bool:
    """Return whether no string is of an annotation's kind; False where that is not plain."""
    try:
        return _is_no_string(ast.parse(annotation, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return False


def _is_no_string(kind: ast.expr) -> bool:
    if isinstance(kind, ast.BinOp):
        return isinstance(kind.op, ast.BitOr) and _is_no_string(kind.left) and _is_no_string(kind.right)
    if isinstance(kind, ast.Subscript):
        kinds = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
        return ast.unparse(kind.value).rpartition(".")[2] in OF_OTHERS and all(map(_is_no_string, kinds))
    if isinstance(kind, ast.Constant):
        return _excludes_strings(kind.value) if isinstance(kind.value, str) else kind.value in (None, ...)
    return ast.unparse(kind).rpartition(".")[2] in NO_STRINGS


def required_parameters(parameters: Sequence[inspect.Parameter], count: int) -> list[str]:
    """List the required parameters that remain when the first `count` are given by position."""
    by_position = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    by_name = [parameter for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    return [parameter.name for parameter in by_position[count:] + by_name if parameter.default is parameter.empty]


def downloads(target: Any, kwargs: Mapping[str, Any]) -> str:
    """Return why a torchvision call would download something the config does not request.

    "" if it would not.

    A dataset may download where the config says so. Weights are never downloaded; detection models would fetch those
    of their backbone by default.
    """
    origin = str(getattr(target, "__module__", ""))
    if not origin.startswith(("torchvision.models.", "torchvision.datasets.")):
        return ""
    arguments = {
        parameter.name: parameter.default for parameter in inspect.signature(target).parameters.values()
    } | dict(kwargs)
    for key, value in arguments.items():
        if value in (None, False, inspect.Parameter.empty):
            continue
        if key.startswith(("weights", "pretrained")):
            return f"{target.__name__} would download {key}: write {key} as null, and load weights of your own."
        if key == "download" and key not in kwargs:
            return f"{target.__name__} downloads unless it is told not to: write download as true or false."
    return ""
