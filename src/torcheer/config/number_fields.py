"""Detection of texts where numbers are expected.

YAML reads `1e-3` as a string, rarely on purpose.
"""

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

NUMBER_PATTERN = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?")
_INTEGER_WORDS = {"int"}
_NUMBER_WORDS = _INTEGER_WORDS | {"float", "complex", "Number", "Real", "Tensor", "Integral"}  # words of an annotation
_NON_NUMBER_WORDS = {
    "str",
    "Any",
    "object",
    "Literal",
    "Callable",
    "dict",
    "Dict",
    "Mapping",
    "Path",
    "PathLike",
    "bytes",
}
_CONTAINER_WORDS = {"tuple", "Tuple", "list", "List", "Sequence", "Iterable"}
_OTHER_WORDS = {"Optional", "Union", "None", "NoneType", "typing", "collections", "abc", "torch", "numbers", "bool"}
_MAX_DIGITS = 400  # a float has no more digits
_MAX_EXACT_INT = 2**53  # a float holds every whole number up to it


def format_number(text: str, *, whole: bool = False) -> str:
    """Rewrite a text that looks like a number so that YAML, JSON and TOML read one.

    "" if it does not.
    """
    if not NUMBER_PATTERN.fullmatch(text) or len(text) > _MAX_DIGITS:
        return ""
    digits_text = text.replace("_", "").lstrip("+")
    value = float(digits_text)
    if not math.isfinite(value):
        return ""
    if whole and value.is_integer() and abs(value) < _MAX_EXACT_INT:
        return str(int(value))
    digits, *power = re.split("([eE])", digits_text)
    digits = re.sub(r"^(-?)0*(?=[0-9])", r"\1", re.sub(r"^(-?)\.", r"\g<1>0.", digits))
    if not power:
        return digits + "0" * digits.endswith(".")
    digits += ".0" if "." not in digits else "0" * digits.endswith(".")
    mark, exponent = power
    return f"{digits}{mark}{exponent if exponent[0] in '+-' else '+' + exponent}"


def misplaced_texts(
    parameters: Sequence[inspect.Parameter], args: Sequence[Any], kwargs: Mapping[str, Any], skipped: int = 0
) -> Iterator[tuple[KeyPath, str]]:
    """Find texts where numbers are expected.

    Yield the path and the corrected form; "" for a text that is no number, where the annotation allows nothing else.

    `skipped`: how many positional arguments come before those of the config.
    """
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    by_name = {parameter.name: parameter for parameter in parameters}
    arguments: list[tuple[KeyPath, Any, inspect.Parameter | None]] = [
        (("args", number), value, parameter)
        for number, (value, parameter) in enumerate(zip(args, positional[skipped:], strict=False))
    ]
    arguments += [(("kwargs", key), value, by_name.get(key)) for key, value in kwargs.items()]
    for path, value, parameter in arguments:
        if parameter is not None and (words := number_types(parameter)):
            for inner, text in _iterate_texts(value):
                # Without an annotation, a quoted '2012' may be meant as a string.
                is_intended_text = parameter.annotation is parameter.empty and "e" not in text.lower()
                number = format_number(text, whole=words <= _INTEGER_WORDS)
                if (number and not is_intended_text) or (_takes_only_numbers(parameter) and not _is_float(text)):
                    yield (*path, *inner), number


def text_for_number(taker: str, number: str) -> str:
    """Return the message for a text where a number is expected, with its corrected form if it has one."""
    return f"{taker} takes a number here, and this is a string. Write {number or 'a number, such as 0.001'}"


def _iterate_texts(value: Any) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield (), value
    for number, item in enumerate(value if isinstance(value, list) else ()):
        for path, text in _iterate_texts(item):
            yield (number, *path), text


def number_types(parameter: inspect.Parameter) -> set[str]:
    """Return the number types that a parameter takes.

    Empty if it takes texts or is not annotated.
    """
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return set()
    if parameter.annotation is not parameter.empty:
        words = _annotation_words(parameter)
        if words & (_NUMBER_WORDS | _NON_NUMBER_WORDS):
            return set() if words & _NON_NUMBER_WORDS else words & _NUMBER_WORDS
    default = parameter.default if isinstance(parameter.default, tuple | list) else [parameter.default]
    numbers = [type(value).__name__ for value in default if isinstance(value, Number) and not isinstance(value, bool)]
    return set(numbers) if numbers and len(numbers) == len(default) else set()


def _takes_only_numbers(parameter: inspect.Parameter) -> bool:
    words = _annotation_words(parameter)
    return bool(words & _NUMBER_WORDS) and words <= _NUMBER_WORDS | _CONTAINER_WORDS | _OTHER_WORDS


def _annotation_words(parameter: inspect.Parameter) -> set[str]:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return set()
    return set(re.findall(r"\w+", annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)))


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True  # also "inf" and "nan", which JSON cannot write as numbers


def signature_parameters(target: Any) -> list[inspect.Parameter]:
    """List the parameters of a class or function.

    Those of base classes too where it has `**kwargs`.
    """
    parameters: dict[str, inspect.Parameter] = {}
    for function in target.__mro__ if isinstance(target, type) else (target,):
        try:
            own_parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            break
        for parameter in own_parameters:
            parameters.setdefault(parameter.name, parameter)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in own_parameters):
            break
    return list(parameters.values())


def source_parameters(file: Path, name: str) -> list[inspect.Parameter]:
    """List the parameters from a file's source, without importing.

    Empty where that is not possible.
    """
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    definition = _find_definition(tree.body, name)
    if isinstance(definition, ast.ClassDef):
        constructor = _find_definition(definition.body, "__init__")
        return _parse_signature(constructor)[1:] if isinstance(constructor, ast.FunctionDef) else []
    return _parse_signature(definition) if isinstance(definition, ast.FunctionDef) else []


def _find_definition(body: Iterable[ast.stmt], name: str) -> ast.stmt | None:
    """Return the only definition of a name; None if there are several or it is decorated."""
    definitions = [
        statement
        for statement in body
        if isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name == name
    ]
    return definitions[0] if len(definitions) == 1 and not definitions[0].decorator_list else None


def _parse_signature(function: ast.FunctionDef) -> list[inspect.Parameter]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    by_name = inspect.Parameter.KEYWORD_ONLY
    kinds = [*[inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(positional), *[by_name] * len(arguments.kwonlyargs)]
    rows = zip([*positional, *arguments.kwonlyargs], [*defaults, *arguments.kw_defaults], kinds, strict=True)
    return [
        inspect.Parameter(
            argument.arg, kind, default=_parse_literal(default),
            annotation=inspect.Parameter.empty if argument.annotation is None else ast.unparse(argument.annotation),
        )
        for argument, default, kind in rows
    ]  # fmt: skip


def _parse_literal(value: ast.expr | None) -> Any:
    if value is None:
        return inspect.Parameter.empty
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError):
        return None
