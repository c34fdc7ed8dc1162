"""What reading one file may cost: bytes brought into memory, things made, steps of a loop, pixels."""

from __future__ import annotations

from typing import Final

from torcheer.errors import ArchiveDamaged

MOST: Final = {
    "bytes": 1 << 30,  # brought into memory: texts, pictures, tables; what is mapped does not count
    "items": 10_000_000,  # tensors, nodes, cells of tables, entries of a zip
    "steps": 20_000_000,  # fields of protobuf, opcodes, values of YAML: some ten seconds
    "pixels": 64_000_000,
}


class TooLarge(ArchiveDamaged):
    """More than the budget of one file allows."""


class Budget:
    """What is left of it for one file."""

    def __init__(self, most: dict[str, int] | None = None) -> None:
        self._most = MOST if most is None else most
        self._spent = dict.fromkeys(MOST, 0)

    def spend(self, what: str, count: int, where: str) -> None:
        """Spend so many more bytes, items, steps or pixels; raises `TooLarge` where there are too many.

        - `where`: what needs them: "metrics.csv", "the picture".
        """
        self._spent[what] += count
        if self._spent[what] > self._most[what]:
            raise TooLarge(
                f"{where} needs {self._spent[what]:,} {what} or more; at most {self._most[what]:,} are read of one file"
            )
