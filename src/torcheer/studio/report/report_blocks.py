"""The data of a report: compressed blocks and their index, as one text that no name can break out of.

Base64 of: the index's length (u32, little), the index as JSON, then the blocks, each deflated by itself. The page's
`report/report_blocks.ts` reads it.
"""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64encode
from typing import Any, Final

_INDEX_BYTES: Final = 200  # of an entry, at most, besides the names in it


class Blocks:
    """Blocks that together stay within `room_bytes` of text; each has a key, a list of plain values."""

    def __init__(self, room_bytes: int) -> None:
        self._left = room_bytes // 4 * 3 - 16  # before base64
        self._entries: list[dict[str, Any]] = []
        self._blocks: list[bytes] = []
        self._size = 0

    @property
    def left_bytes(self) -> int:
        """How much more fits, compressed."""
        return self._left

    def reserve(self, count: int) -> None:
        """Keep room for what comes last."""
        self._left -= count

    def release(self, count: int) -> None:
        """Give reserved room back."""
        self._left += count

    def add(self, key: list[Any], data: bytes, **facts: Any) -> bool:
        """Add a block, as it is compressed; False if it does not fit."""
        return self.add_packed(key, pack(data), **facts)

    def add_packed(self, key: list[Any], packed: bytes, **facts: Any) -> bool:
        """Add a block that is compressed already; False if it does not fit."""
        entry = {"key": key, "start": self._size, "count": len(packed), **facts}
        cost = len(packed) + len(json.dumps(entry)) + _INDEX_BYTES
        if cost > self._left:
            return False
        self._left -= cost
        self._entries.append(entry)
        self._blocks.append(packed)
        self._size += len(packed)
        return True

    def text(self) -> str:
        """The index and all blocks."""
        index = json.dumps(self._entries, separators=(",", ":")).encode()
        return b64encode(b"".join((struct.pack("<I", len(index)), index, *self._blocks))).decode()


def pack(data: bytes) -> bytes:
    """Compress a block, as `DecompressionStream("deflate")` reads it."""
    return zlib.compress(data, 7)
