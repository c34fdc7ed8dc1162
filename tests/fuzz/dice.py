"""Random choices of a file that is to be mostly right: each field is right, or hostile with a small probability."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

Choice = TypeVar("Choice")

EDGES: Final = (
    0, 1, 2, 3, 7, 8, 127, 128, 255, 256, 4095, 65535, 65536, 2**20, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40,
    2**46, 2**48, 2**53, 2**60, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -1, -2, -(2**31), -(2**63),
)  # fmt: skip
_FLOATS: Final = (math.nan, math.inf, -math.inf, -0.0, 1e308, 5e-324, 1e39, 0.1, -1.0)
_TEXTS: Final = (
    "", "a", "a" * 300, "a" * 70_000, "ä€😀", "a\0b", "\ud800", "../up", "/etc/passwd", "a/b", "a.b", ".", "..",
    "__class__", "\n", "\x1b[31mred\x1b[0m", "<script>", "step", "0", "-1", "nan", "True", "[", "{}", "\u202e",
)  # fmt: skip
_HOSTILITIES: Final = (0.0, 0.0, 0.01, 0.03, 0.03, 0.1, 0.3)


class Dice(random.Random):
    """A random generator that knows whether what it gave so far is a good file."""

    def __init__(self, seed: str) -> None:
        """`seed`: a text; the same one gives the same file."""
        super().__init__(seed)
        self.hostility = self.choice(_HOSTILITIES)  # of each field
        self.is_good = True

    def turns(self) -> bool:
        """Whether this part becomes hostile."""
        if self.random() >= self.hostility:
            return False
        self.is_good = False
        return True

    def either(self, good: Choice, *hostile: Callable[[], Choice]) -> Choice:
        """A good part, or rarely one of the hostile ones."""
        return self.choice(hostile)() if self.turns() else good

    def field(self, value: Choice) -> Choice:
        """A value, or rarely another of its type."""
        return self.changed(value) if self.turns() else value

    def changed(self, value: Any) -> Any:
        """Another value of the same type, such as a program may not expect."""
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self.choice((value + 1, value - 1, value * 2, -value, self.choice(EDGES), self.choice(EDGES)))
        if isinstance(value, float):
            return self.choice(_FLOATS)
        if isinstance(value, str):
            return self.choice((value + "x", value[:-1], value.upper(), *self.sample(_TEXTS, 3)))
        if isinstance(value, bytes | bytearray):
            return self.damaged(bytes(value))
        if isinstance(value, tuple):
            return tuple(self.changed(list(value)))
        if isinstance(value, list):
            return self._changed_list(value)
        return value

    def _changed_list(self, values: list[Any]) -> list[Any]:
        values = list(values)
        match self.randrange(5):
            case 0 if values:
                values.pop(self.randrange(len(values)))
            case 1 if values:
                values.append(self.choice(values))
            case 2 if values:
                place = self.randrange(len(values))
                values[place] = self.changed(values[place])
            case 3:
                self.shuffle(values)
            case _:
                values += [self.choice(EDGES)] * self.choice((1, 2, 40))
        return values

    def damaged(self, data: bytes) -> bytes:
        """Bytes with a few of them flipped, cut, repeated, or put elsewhere."""
        damaged = bytearray(data)
        for _ in range(self.choice((1, 1, 1, 2, 5))):
            begin = self.randrange(len(damaged) + 1)
            end = min(len(damaged), begin + self.choice((1, 1, 2, 4, 8, 100)))
            match self.randrange(6):
                case 0 | 1:
                    for place in range(begin, min(end, begin + 2)):
                        damaged[place] ^= 1 << self.randrange(8)
                case 2:
                    del damaged[begin:end]
                case 3:
                    damaged[begin:begin] = damaged[begin:end]
                case 4:
                    damaged[begin:end] = self.choice((b"\0", b"\xff", b"\x7f")) * (end - begin)
                case _:
                    damaged[begin:begin] = self.randbytes(self.choice((1, 4, 16)))
        return bytes(damaged)

    def one_of(self, *parts: Choice) -> Choice:
        """Any of these, all of which are good."""
        return self.choice(parts)

    def some(self, most: int, make: Callable[[], Choice], least: int = 0) -> list[Choice]:
        """A list of up to `most` parts."""
        return [make() for _ in range(self.randint(least, most))]

    def name(self) -> str:
        """A name of a tensor or column."""
        words = ("conv", "weight", "bias", "body", "0", "1", "norm", "ä", "loss", "step", "epoch", "acc")
        return self.field(".".join(self.sample(words, self.randint(1, 3))))

    def shape(self, most_axes: int = 3) -> tuple[int, ...]:
        """A small shape."""
        return tuple(self.choice((1, 1, 2, 2, 3, 4, 5, 8, 0)) for _ in range(self.randint(0, most_axes)))

    def numbers(self, count: int, kind: str) -> bytes:
        """The bytes of numbers of a numpy type, most of them finite."""
        import numpy as np

        generator = np.random.default_rng(self.getrandbits(32))
        if kind == "bool":
            return generator.integers(0, 2, count).astype("u1").tobytes()
        if np.dtype(kind).kind in "iu":
            return generator.integers(0, 100, count).astype(kind).tobytes()
        return generator.standard_normal(count).astype(kind).tobytes()


def product(shape: Sequence[int]) -> int:
    """How many numbers a shape has."""
    return math.prod(shape)
