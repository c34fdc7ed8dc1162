"""Whose turn it is where the values of one look do not all find room in the ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

Key = tuple[str, str]  # layer, variable
_GROWTH = 1.5  # by which the room of a look is tried to be larger than that of the last, where all found room


class Takes(Protocol):
    """What values are offered to: a `Link` or a `Ring`."""

    def offer(self, about: dict[str, Any], size_bytes: int, fill: Callable[[memoryview], None], /) -> bool:
        """Let `fill` write the bytes; False where there is no room."""

    def refuse(self, about: Mapping[str, Any], /) -> bool:
        """Count a value that is not even tried."""


class Turns:
    """Stands before the ring: once a look has overfilled it, those that had to wait longest go first at the next.

    A look's values always come in the same order, so that without turns it is always the same layers that find no room.
    What has to wait is counted as dropped.
    """

    def __init__(self, link: Takes, on_overflow: Callable[[int], None]) -> None:
        self._link, self._on_overflow = link, on_overflow
        self._missed: dict[Key, int] = {}  # for how many looks a key has waited
        self._served: Counter[Key] = Counter()  # how often it was sent
        self._sizes: dict[Key, int] = {}  # of what has come in this look, in bytes
        self._sent, self._refused = 0, 0  # bytes in this look that found room, and that did not
        self._room: float | None = None  # bytes that a look may have; None: no look has overfilled the ring
        self._waiting: frozenset[Key] = frozenset()

    def offer(self, about: dict[str, Any], size_bytes: int, fill: Callable[[memoryview], None], /) -> bool:
        """Send a value, if it is its turn and there is room; numbers of the user always have their turn."""
        if about["variable"] == "metric":
            return self._link.offer(about, size_bytes, fill)
        key = (about["layer"], about["variable"])
        self._sizes[key] = size_bytes
        if key in self._waiting:
            self._missed[key] += 1
            return self._link.refuse(about)
        if self._link.offer(about, size_bytes, fill):
            self._missed[key], self._sent = 0, self._sent + size_bytes
            self._served[key] += 1
            return True
        self._missed[key], self._refused = self._missed.get(key, 0) + 1, self._refused + size_bytes
        return False

    def begin(self, size_of: Callable[[Key, int], int]) -> None:
        """Another look begins: settle by what the last one had room for who has to wait.

        `size_of` says what a value that had so many bytes will have at this look.
        """
        sent, refused, self._sent, self._refused = self._sent, self._refused, 0, 0
        came, self._sizes = self._sizes, {}  # what did not come this time (a shorter sequence) holds up nobody
        sizes = {key: size_of(key, size) for key, size in came.items()} if refused or self._waiting else {}
        if refused:
            self._room = float(sent)
            self._on_overflow(sum(sizes.values()))
        elif self._room is not None:
            self._room = max(self._room, sent) * _GROWTH
        self._waiting = self._who_waits(sizes)

    def _who_waits(self, sizes: dict[Key, int]) -> frozenset[Key]:
        room = self._room
        if room is None or sum(sizes.values()) <= room:
            self._room = None
            return frozenset()
        served = set[Key]()
        for key in sorted(sizes, key=lambda key: (-self._missed[key], self._served[key])):
            room -= sizes[key]
            if room < 0 and served:
                break
            served.add(key)
        return frozenset(sizes) - served
