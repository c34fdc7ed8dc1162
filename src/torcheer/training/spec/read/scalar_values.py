"""Scalar values of a config: numbers, texts, devices, and the error text of each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from torcheer.config.line_numbers import KeyPath
from torcheer.training.spec.read.value_kinds import Fault, Finding, Value, quote_list


def is_whole(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def one_of(*words: str) -> Value:
    return Value(quote_list(words), lambda value: value in words, words)


def is_device(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"auto|cpu|(cuda|mps|xpu)(:\d+)?", value) is not None


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


ANYTHING = Value("a value", lambda value: True)
TEXT = Value("a text", lambda value: isinstance(value, str) and bool(value.strip()))
FLAG = Value("true or false", lambda value: isinstance(value, bool))
NUMBER = Value("a number", is_number)
POSITIVE = Value("a number above 0", lambda value: is_number(value) and value > 0)
SHARE = Value("a number of 0 or more", lambda value: is_number(value) and value >= 0)
COUNT = Value("a whole number of 1 or more", lambda value: is_whole(value, 1))
NUMBERING = Value("a whole number of 0 or more", is_whole)
DEVICE = Device("'auto', 'cpu' or 'cuda', or 'cuda:1'", is_device, ("auto", "cpu", "cuda"))
SEED = Value("a whole number of 0 or more, or null for none", lambda value: value is None or is_whole(value))
# Number of batches to evaluate on, or their share: 100, 0.1.
STEPS = Value(
    "a number of batches, such as 100, or a share of them, such as 0.1",
    lambda value: is_whole(value, 1) or (isinstance(value, float) and 0 < value <= 1),
)
