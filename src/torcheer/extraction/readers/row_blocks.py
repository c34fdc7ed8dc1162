"""Stored rows in blocks: what a shuffled reader reads at once, each row to its place among the shuffled ones."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from threading import Lock, local
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer import remote
from torcheer.archive.format.archive_folder import segment_paths
from torcheer.archive.format.archive_reader import Archive, Entry
from torcheer.archive.format.parallel_checksums import combine
from torcheer.disk import open_descriptor, read_at
from torcheer.encoding import crc32, to_bytes
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.extraction.extraction_reader import Extraction

BLOCK_BYTES = 4 << 20
ROWS = ("samples", "tokens")


class StoredRows(NamedTuple):
    """The rows of one stored array: samples of a batch, or tokens."""

    archive: Archive
    entry: Entry
    row_count: int
    first_sample: int  # among all samples
    sample_rows: NDArray[np.int64]  # how many rows each sample has


class Block(NamedTuple):
    """Consecutive rows of the same samples, in the array of each layer."""

    arrays: tuple[StoredRows, ...]
    start: int
    stop: int

    @property
    def row_count(self) -> int:
        """Return how many rows it has."""
        return self.stop - self.start

    def samples(self) -> NDArray[np.int64]:
        """Return the sample of each row, among all samples."""
        rows = self.arrays[0]
        numbers = np.repeat(np.arange(len(rows.sample_rows)), rows.sample_rows)
        return rows.first_sample + numbers[self.start : self.stop]


def list_blocks(extraction: Extraction, layers: Sequence[str], rows: str) -> list[Block]:
    """Return the blocks of all rows of some layers, in the order of the samples."""
    if rows not in ROWS:
        raise BadArgument(f"rows={rows!r}: use one of {', '.join(map(repr, ROWS))}")
    blocks: list[Block] = []
    for arrays in zip(*(_stored_rows(extraction, layer, rows) for layer in layers), strict=True):
        counts = {array.row_count for array in arrays}
        if len(counts) > 1:
            texts = ", ".join(f"{layer!r} {array.row_count}" for layer, array in zip(layers, arrays))
            raise BadArgument(f"the layers have different numbers of {rows}: {texts}; read them one by one")
        size = max(array.entry.stored for array in arrays)
        whole = any(array.entry.codec != "raw" for array in arrays)
        count = counts.pop()
        step = count if whole else max(1, count * BLOCK_BYTES // max(1, size))
        blocks += [Block(arrays, start, min(start + step, count)) for start in range(0, count, max(1, step))]
    return blocks


def row_shape(extraction: Extraction, layer: str, rows: str) -> tuple[int, ...]:
    """Return the shape of a row; raise where rows differ."""
    shapes = {shape[-1:] if rows == "tokens" else shape for shape, _ in extraction[layer].shapes_and_types}
    if len(shapes) > 1:
        hint = "rows='tokens' reads each token" if rows == "samples" else "they cannot be read together"
        raise BadArgument(f"samples of {layer!r} have different shapes: {hint}")
    if rows == "tokens" and shapes == {()}:
        raise BadArgument(f"{layer!r} is one number for each sample: it has no tokens")
    return shapes.pop() if shapes else ()


def _stored_rows(extraction: Extraction, layer: str, rows: str) -> Iterator[StoredRows]:
    first = 0
    for number, count in extraction.batch_sizes():
        shard = extraction.shard_of(number)
        lengths = shard.lengths(layer, number)
        for item, entry in shard.layer_entries(layer, number, count):
            samples = count if item < 0 else 1
            if rows == "samples":
                each: Any = np.ones(samples, np.int64)
            elif lengths is not None:
                inner = int(np.prod(entry.shape[1:-1], dtype=np.int64))
                each = np.array(lengths, np.int64) * inner
            else:
                inner = int(np.prod(entry.shape[1 if item < 0 else 0 : -1], dtype=np.int64))
                each = np.full(samples, inner)
            yield StoredRows(shard.archive, entry, int(each.sum()), first + max(0, item), each)
        first += count


class _Scratch(local):
    """Memory of this thread for one block: small enough to stay in the processor's cache from the file to the pool."""

    memory: NDArray[np.uint8] = np.empty(0, np.uint8)

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return so many bytes, which hold until the next call."""
        if len(self.memory) < size:
            self.memory = np.empty(size, np.uint8)
        return self.memory[:size]


class BlockReader:
    """Reads blocks into pools; every array's checksum is verified once all of its blocks were read.

    `verified`: arrays that need no more; those that were right are added.
    """

    def __init__(self, verified: set[Any]) -> None:
        self._files: dict[str, int] = {}
        self._crcs: dict[Any, dict[int, tuple[int, int]]] = {}  # array -> place of a piece -> its checksum and bytes
        self._verified = verified
        self._lock = Lock()
        self._scratch = _Scratch()

    def read(self, rows: StoredRows, start: int, stop: int, pool: NDArray[np.void], slots: Any) -> None:
        """Read rows from `start` to `stop` into slots of a pool: a slice, or a number for each row."""
        if isinstance(slots, slice):
            self._read_bytes(rows, start, stop, pool[slots].view(np.uint8))
            return
        block = self._scratch.take((stop - start) * pool.itemsize)
        self._read_bytes(rows, start, stop, block)
        pool[slots] = block.view(pool.dtype)

    def _read_bytes(self, rows: StoredRows, start: int, stop: int, target: NDArray[np.uint8]) -> None:
        row_bytes = len(target) // (stop - start)
        if rows.entry.codec != "raw":
            payload = to_bytes(rows.archive.array(rows.entry))[2]
            target[:] = np.frombuffer(payload[start * row_bytes : stop * row_bytes], np.uint8)
            return
        self._read_file(rows, start * row_bytes, target.data)
        self._verify(rows, start * row_bytes, target.data)

    def _read_file(self, rows: StoredRows, place: int, target: memoryview) -> None:
        entry = rows.entry
        path, offset = segment_paths(rows.archive.path, entry.segment)[1], entry.offset + place
        remote.fill(path, offset, offset + len(target))
        file = self._file(str(path))
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file, offset, len(target), os.POSIX_FADV_WILLNEED)  # or it comes in small pieces
        done = 0
        while done < len(target):
            count = read_at(file, target[done:], offset + done)
            if not count:
                raise ArchiveDamaged(f"{rows.archive.path}: {entry.layer!r} of batch {entry.step} is cut off")
            done += count

    def _verify(self, rows: StoredRows, place: int, data: memoryview) -> None:
        key = (str(rows.archive.path), rows.entry.segment, rows.entry.offset)
        if key in self._verified:
            return
        crc = crc32(data)
        with self._lock:
            pieces = self._crcs.setdefault(key, {})
            pieces[place] = crc, len(data)
            if sum(size for _, size in pieces.values()) < rows.entry.stored:
                return
            whole = 0
            for _, (crc, size) in sorted(pieces.items()):
                whole = combine(whole, crc, size)
            del self._crcs[key]
            if whole == rows.entry.crc32:
                self._verified.add(key)
                return
        entry = rows.entry
        raise ArchiveDamaged(f"{rows.archive.path}: {entry.layer!r} of batch {entry.step} is not what was written")

    def _file(self, path: str) -> int:
        with self._lock:
            if path not in self._files:
                self._files[path] = open_descriptor(path)
            return self._files[path]

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
