"""Match single values against JSON Schema, as far as the grammar uses it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

JsonSchema = dict[str, Any]


def matches(schema: JsonSchema, value: Any) -> bool:
    """Return whether a value without parts fits a schema; a whole number is never written as 1.0.

    >>> matches({"type": "integer", "minimum": 1}, 3), matches({"type": "integer", "minimum": 1}, True)
    (True, False)
    """
    return all(_RULES[rule](wanted, value) for rule, wanted in schema.items())


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number that a float holds; true and false are none."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "object": lambda value: isinstance(value, dict),
}


def _has_type(names: str | list[str], value: Any) -> bool:
    return any(_TYPES[name](value) for name in ([names] if isinstance(names, str) else names))


# As JSON Schema has it, a limit of numbers says nothing of other values, and a pattern nothing of what is no text.
_RULES: dict[str, Callable[[Any, Any], bool]] = {
    "type": _has_type,
    "enum": lambda words, value: any(type(word) is type(value) and word == value for word in words),
    "minimum": lambda least, value: not is_number(value) or value >= least,
    "exclusiveMinimum": lambda least, value: not is_number(value) or value > least,
    "maximum": lambda most, value: not is_number(value) or value <= most,
    "exclusiveMaximum": lambda most, value: not is_number(value) or value < most,
    # "$" is the very end, as in JavaScript, whose patterns JSON Schema has.
    "pattern": lambda pattern, value: (
        not isinstance(value, str) or re.search(re.sub(r"\$$", r"\\Z", pattern), value) is not None
    ),
    "anyOf": lambda schemas, value: any(matches(schema, value) for schema in schemas),
    "not": lambda schema, value: not matches(schema, value),
}
