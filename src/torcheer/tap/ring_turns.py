"""Decide which keys are sent when the values of one watched step do not all fit into the ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from torcheer.encoding import Offer
from torcheer.samples import Key, SampleBatch
from torcheer.tap.tensor_copies import GroupSink

_GROWTH = 1.5  # factor by which the next step's budget grows, after a step that fit


class Turns:
    """Throttles the keys of a ring: after a step that overflowed it, those that waited longest go first.

    The values of a step always come in the same order: without turns, the same layers would be dropped every time.
    What has to wait is counted as dropped.
    """

    def __init__(self, link: GroupSink, on_overflow: Callable[[int], None]) -> None:
        self._link, self._on_overflow = link, on_overflow
        self._missed: dict[Key, int] = {}  # for how many watched steps a key has waited
        self._served: Counter[Key] = Counter()  # how often a key was sent
        self._sizes: dict[Key, int] = {}  # of what was offered in this step, in bytes
        self._sent, self._refused = 0, 0  # bytes in this step that fit, and that did not
        self._room: float | None = None  # byte budget of a step; None: no step has overflowed the ring
        self._waiting: frozenset[Key] = frozenset()

    def offer(self, header: dict[str, Any], size_bytes: int, fill: Callable[[memoryview], None], /) -> bool:
        """Send a value, if it is its key's turn and there is room; what the user logs never waits."""
        if header["variable"] == "metric" or "media" in header:
            return self._link.offer(header, size_bytes, fill)
        key = (header["layer"], header["variable"])
        if self._must_wait(key, header, size_bytes):
            return False
        if self._link.offer(header, size_bytes, fill):
            self._count_sent(key, size_bytes)
            return True
        self._missed[key], self._refused = self._missed.get(key, 0) + 1, self._refused + size_bytes
        return False

    def offer_together(self, offers: Sequence[Offer], /) -> bool:
        """Send values as one record; False where some have to wait, or there is no room: offer them singly then."""
        if self._waiting or not self._link.offer_together(offers):
            return False
        for header, size_bytes, _ in offers:
            if header["variable"] != "metric" and "media" not in header:
                key = (header["layer"], header["variable"])
                self._sizes[key] = size_bytes
                self._count_sent(key, size_bytes)
        return True

    def offer_batch(self, batch: SampleBatch, /) -> bool:
        """Send a batch as one record; False as in `offer_together`."""
        if self._waiting or not self._link.offer_batch(batch):
            return False
        keys, sizes = [row.key for row in batch.rows], [row.size_bytes for row in batch.rows]
        self._sizes.update(zip(keys, sizes))
        self._missed.update(dict.fromkeys(keys, 0))
        self._served.update(keys)
        self._sent += sum(sizes)
        return True

    def refuse(self, header: dict[str, Any], /) -> bool:
        """Count a value as dropped without trying to send it."""
        return self._link.refuse(header)

    def _must_wait(self, key: Key, header: dict[str, Any], size_bytes: int) -> bool:
        self._sizes[key] = size_bytes
        if key in self._waiting:
            self._missed[key] += 1
            self._link.refuse(header)
            return True
        return False

    def _count_sent(self, key: Key, size_bytes: int) -> None:
        self._missed[key], self._sent = 0, self._sent + size_bytes
        self._served[key] += 1

    def begin(self, size_of: Callable[[Key, int], int]) -> None:
        """Begin another watched step: decide, by what fit in the last one, which keys have to wait.

        `size_of(key, bytes)` predicts the size in this step of a value that had so many bytes in the last.
        """
        sent, refused, self._sent, self._refused = self._sent, self._refused, 0, 0
        offered, self._sizes = self._sizes, {}  # keys absent from the last step (a shorter sequence) take no room
        sizes = {key: size_of(key, size) for key, size in offered.items()} if refused or self._waiting else {}
        if refused:
            self._room = float(sent)
            self._on_overflow(sum(sizes.values()))
        elif self._room is not None:
            self._room = max(self._room, sent) * _GROWTH
        self._waiting = self._choose_waiting(sizes)

    def _choose_waiting(self, sizes: dict[Key, int]) -> frozenset[Key]:
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
