"""Texts where numbers are wanted: to YAML `1e-3` is a text, and hardly anybody means one."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import Any

from torcheer.config.line_numbers import KeyPath

LIKE_A_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_WHOLE = {"int"}
_NUMBERS = _WHOLE | {"float", "complex", "Number", "Real", "Tensor", "Integral"}  # words of an annotation
_OTHERS = {"str", "Any", "object", "Literal", "Callable", "dict", "Dict", "Mapping", "Path", "PathLike", "bytes"}
_LONGEST = 400  # digits: a float has no more
_EXACT = 2**53  # up to which a float holds every whole number


def number_in(text: str, *, whole: bool = False) -> str:
    """How the number is written that a text looks like, so that YAML, JSON and TOML read one; "" where it is none."""
    if not LIKE_A_NUMBER.fullmatch(text) or len(text) > _LONGEST:
        return ""
    plain = text.replace("_", "").lstrip("+")
    value = float(plain)
    if not math.isfinite(value):
        return ""
    if whole and value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    digits, *power = re.split("([eE])", plain)
    digits = re.sub(r"^(-?)0*(?=[0-9])", r"\1", re.sub(r"^(-?)\.", r"\g<1>0.", digits))
    if not power:
        return digits + "0" * digits.endswith(".")
    digits += ".0" if "." not in digits else "0" * digits.endswith(".")
    mark, exponent = power
    return f"{digits}{mark}{exponent if exponent[0] in '+-' else '+' + exponent}"


def misplaced_texts(
    parameters: Sequence[inspect.Parameter], args: Sequence[Any], kwargs: Mapping[str, Any], given: int = 0
) -> Iterator[tuple[KeyPath, str]]:
    """Arguments that look like numbers, are texts, and stand where numbers are wanted: where, and how to write them.

    `given` is how many positional arguments come before those of the config.
    """
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    by_name = {one.name: one for one in parameters}
    places: list[tuple[KeyPath, Any, inspect.Parameter | None]] = [
        (("args", number), value, parameter)
        for number, (value, parameter) in enumerate(zip(args, positional[given:], strict=False))
    ]
    places += [(("kwargs", key), value, by_name.get(key)) for key, value in kwargs.items()]
    for path, value, parameter in places:
        if parameter is not None and (words := wanted(parameter)):
            for inner, text in _texts(value):
                is_meant = parameter.annotation is parameter.empty and "e" not in text.lower()  # in quotes: '2012'
                if not is_meant and (number := number_in(text, whole=words <= _WHOLE)):
                    yield (*path, *inner), number


def _texts(value: Any) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield (), value
    for number, item in enumerate(value if isinstance(value, list) else ()):
        for path, text in _texts(item):
            yield (number, *path), text


def wanted(parameter: inspect.Parameter) -> set[str]:
    """The kinds of numbers that a parameter takes; none where a text will do, or nobody says what it takes."""
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return set()
    if parameter.annotation is not parameter.empty:
        given = parameter.annotation
        words = set(re.findall(r"\w+", given if isinstance(given, str) else inspect.formatannotation(given)))
        if words & (_NUMBERS | _OTHERS):
            return set() if words & _OTHERS else words & _NUMBERS
    default = parameter.default if isinstance(parameter.default, tuple | list) else [parameter.default]
    numbers = [type(one).__name__ for one in default if isinstance(one, Number) and not isinstance(one, bool)]
    return set(numbers) if numbers and len(numbers) == len(default) else set()


def parameters_of(thing: Any) -> list[inspect.Parameter]:
    """What a class or function takes; of a class that hands its `**kwargs` on, what its bases take, too."""
    found: dict[str, inspect.Parameter] = {}
    for one in thing.__mro__ if isinstance(thing, type) else (thing,):
        try:
            taken = list(inspect.signature(one).parameters.values())
        except (TypeError, ValueError):
            break
        for parameter in taken:
            found.setdefault(parameter.name, parameter)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
            break
    return list(found.values())


def written_parameters(file: Path, name: str) -> list[inspect.Parameter]:
    """The same by the source of a file, nothing imported; none where it cannot be told."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    found = _defined(tree.body, name)
    if isinstance(found, ast.ClassDef):
        inside = _defined(found.body, "__init__")
        return _signature(inside)[1:] if isinstance(inside, ast.FunctionDef) else []
    return _signature(found) if isinstance(found, ast.FunctionDef) else []


def _defined(body: Iterable[ast.stmt], name: str) -> ast.stmt | None:
    """The only definition of a name; None where there are several, or it is decorated."""
    found = [one for one in body if isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == name]
    return found[0] if len(found) == 1 and not found[0].decorator_list else None


def _signature(function: ast.FunctionDef) -> list[inspect.Parameter]:
    arguments = function.args
    by_place = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(by_place) - len(arguments.defaults)) + list(arguments.defaults)
    by_name = inspect.Parameter.KEYWORD_ONLY
    kinds = [*[inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(by_place), *[by_name] * len(arguments.kwonlyargs)]
    every = zip([*by_place, *arguments.kwonlyargs], [*defaults, *arguments.kw_defaults], kinds, strict=True)
    return [
        inspect.Parameter(
            one.arg, kind, default=_literal(default),
            annotation=inspect.Parameter.empty if one.annotation is None else ast.unparse(one.annotation),
        )
        for one, default, kind in every
    ]  # fmt: skip


def _literal(value: ast.expr | None) -> Any:
    if value is None:
        return inspect.Parameter.empty
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError):
        return None
