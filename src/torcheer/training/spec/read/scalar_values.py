"""Scalar values of a config: numbers, texts, devices, and the error text of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torcheer.config.line_numbers import KeyPath
from torcheer.disk import is_url, shown
from torcheer.training.spec.read.value_kinds import Fault, Finding, Value, quote_list


def one_of(*words: str) -> Value:
    return Value(quote_list(words), {"enum": list(words)}, words)


class Device(Value):
    """A device name; suggests torch's name for a GPU."""

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        for fault in super().walk(value, path):
            word = re.match(r"(?:gpu|cuda|nvidia|rocm)[^\d]*(\d*)", value.lower()) if isinstance(value, str) else None
            suggestion = f"cuda:{word[1]}" if word and word[1] else "cuda"
            if word and isinstance(fault, Fault):
                yield Fault(path, f"{fault.message}. Did you mean {suggestion!r}, as torch calls GPUs?")
            else:
                yield fault


class LocalFolder(Value):
    """A folder of this machine."""

    def walk(self, value: Any, path: KeyPath) -> Iterator[Finding]:
        if is_url(value):
            url = shown(value)
            yield Fault(
                path, f"a run grows in a local folder: write session_dir=run and copy_to={url}, which copies it"
            )
        else:
            yield from super().walk(value, path)


ANYTHING = Value("a value", {})
TEXT = Value("a string", {"type": "string", "pattern": r"\S"})
LOCAL_FOLDER = LocalFolder("a string", {"type": "string", "pattern": r"\S"})
FLAG = Value("true or false", {"type": "boolean"})
NUMBER = Value("a number", {"type": "number"})
POSITIVE = Value("a number above 0", {"type": "number", "exclusiveMinimum": 0})
SHARE = Value("a number of 0 or more", {"type": "number", "minimum": 0})
COUNT = Value("a whole number of 1 or more", {"type": "integer", "minimum": 1})
NUMBERING = Value("a whole number of 0 or more", {"type": "integer", "minimum": 0})
DEVICE = Device(
    "'auto', 'cpu' or 'cuda', or 'cuda:1'",
    {"type": "string", "pattern": r"^(auto|cpu|(cuda|mps|xpu)(:\d+)?)$"},
    ("auto", "cpu", "cuda"),
)
SEED = Value("a whole number of 0 or more, or null for none", {"type": ["integer", "null"], "minimum": 0})
# Number of batches to evaluate on, or their share: 100, 0.1.
STEPS = Value(
    "a number of batches, such as 100, or a share of them, such as 0.1",
    {"anyOf": [COUNT.schema, {"type": "number", "not": {"type": "integer"}, "exclusiveMinimum": 0, "maximum": 1}]},
)


def is_device(value: Any) -> bool:
    return DEVICE.fits(value)


def or_null(value: Value) -> Value:
    """The same, or null."""
    return Value(f"{value.words}, or null", {"anyOf": [value.schema, {"type": "null"}]}, value.choices)


MAPPING_OR_NULL = Value("a mapping, or null", {"type": "null"})  # what is no mapping has to be
