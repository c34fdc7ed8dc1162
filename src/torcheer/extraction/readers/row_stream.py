"""Stored rows as a shuffled torch IterableDataset of batches, at the speed of the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from torcheer.errors import BadArgument
from torcheer.extraction.extraction_reader import Extraction
from torcheer.extraction.readers.row_blocks import Block, BlockReader, list_blocks, row_shape
from torcheer.extraction.values.shared_storage import storage_holders

_READERS = 12  # threads that read: while some verify checksums and place rows, the disk has others' requests
_KEPT_BATCHES = 3  # whose memory is used again: the one that is made, the one at work, and one that was just let go
_KEPT_POOLS = 2
_VIEW_SHARE = 8  # batches from an eighth of a pool on are views of it; one of a smaller batch would keep too much alive
_COPY_SHARE = 3  # the last batch of a pool is a copy up to a third of it


class _Pool(NamedTuple):
    """Rows of some blocks in memory, in the order in which they are given out."""

    parts: list[Tensor]  # of each layer, and the sample of each row
    row_count: int


class RowStream(IterableDataset[Any]):
    """Batches of stored rows in random order, each row once in an epoch.

    Random blocks of the files are read into a pool, each row to its place in the random order, while the batches of the
    pool before are given out. Two pools are in memory, and those that you hold batches of: large batches are views.
    Yields a tensor, or a tuple of one for each layer; the samples of the rows last, if asked for. Use it as it is, or
    in a `DataLoader(stream, batch_size=None, num_workers=2)`, whose workers share the blocks.

    `epoch`: the one that comes next; each has its own order. Iterating counts it on in this process; with workers, set
    it before each. `skip`: so many batches are left out at the start of the next epoch, to go on in the middle of one.
    """

    def __init__(
        self, extraction: Extraction, layers: Sequence[str], *, batch_size: int, shuffle: bool, seed: int, rows: str,
        buffer_bytes: int, drop_last: bool, with_samples: bool,
    ) -> None:  # fmt: skip
        if type(batch_size) is not int or batch_size < 1:
            raise BadArgument(f"batch_size={batch_size!r}: give a whole number from 1 on")
        if type(seed) is not int or seed < 0:
            raise BadArgument(f"seed={seed!r}: give a whole number from 0 on")
        self._extraction, self._layers, self._rows = extraction, [extraction[layer].name for layer in layers], rows
        self._blocks: list[Block] | None = list_blocks(extraction, layers, rows)
        self._verified: set[Any] = set()  # arrays whose checksum was right
        self._shapes = [row_shape(extraction, layer, rows) for layer in layers]
        self._types = [getattr(torch, extraction[layer].type) for layer in layers]
        self._batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self._buffer_bytes, self._drop_last, self._with_samples = buffer_bytes, drop_last, with_samples
        self.epoch = self.skip = 0

    @property
    def row_count(self) -> int:
        """Return how many rows an epoch has."""
        return sum(block.row_count for block in self._all_blocks())

    def _all_blocks(self) -> list[Block]:
        if self._blocks is None:
            self._blocks = list_blocks(self._extraction, self._layers, self._rows)
        return self._blocks

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_blocks": None}  # a worker opens the files itself

    def __len__(self) -> int:
        """Return how many batches an epoch has in one process; a DataLoader's workers each have a last one."""
        rows = self.row_count
        return rows // self._batch_size if self._drop_last else -(-rows // self._batch_size)

    def __iter__(self) -> Iterator[Any]:
        epoch, skip = self.epoch, self.skip
        self.epoch, self.skip = epoch + 1, 0
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        order = np.random.default_rng([self._seed, epoch, number])
        blocks = _own_blocks(self._all_blocks(), number, workers)
        if self._shuffle:
            blocks = [blocks[place] for place in order.permutation(len(blocks))]
        yield from self._batches(list(self._pools(blocks)), order, skip)

    def _pools(self, blocks: list[Block]) -> Iterator[list[Block]]:
        """Yield the blocks of each pool."""
        row_bytes = sum(
            int(np.prod(shape, dtype=np.int64)) * kind.itemsize for shape, kind in zip(self._shapes, self._types)
        )
        pool: list[Block] = []
        rows = 0
        for block in blocks:
            pool.append(block)
            rows += block.row_count
            if rows * row_bytes >= self._buffer_bytes:
                yield pool
                pool, rows = [], 0
        if pool:
            yield pool

    def _batches(self, pools: list[list[Block]], order: np.random.Generator, skip: int) -> Iterator[Any]:
        counts = [sum(block.row_count for block in pool) for pool in pools]
        first, left = _first_needed(counts, self._batch_size, skip)
        orders = (order.permutation(count) if self._shuffle else None for count in counts)
        for _ in range(first):
            next(orders)  # drawn all the same, so that the rest of the epoch is what it would have been
        rest: list[Tensor] = []  # rows of the pool before that made no batch
        outputs, memories = _Outputs(), _Recycled(_KEPT_POOLS)
        shapes = [(max(counts, default=0), *shape) for shape in self._shapes]
        ahead: deque[Future[_Pool]] = deque()  # being read, the next one first
        unread = deque(range(first, len(pools)))
        with _Readers(self._verified) as readers:

            def read_ahead(count: int) -> None:
                """Begin to read, until so many pools are under way or no memory is free."""
                while unread and len(ahead) < count and memories.is_free:
                    memory = memories.take(shapes, self._types)
                    ahead.append(readers.start(self, pools[unread.popleft()], next(orders), memory))

            for _ in range(first, len(pools)):
                read_ahead(2)  # the disk goes on with the second while the last blocks of the first come in
                if not ahead:  # somebody holds batches: more memory
                    memories.grow()
                    read_ahead(1)
                pool = ahead.popleft().result()
                start, left = left, 0
                while pool.row_count - start + (len(rest[0]) if rest else 0) >= self._batch_size:
                    read_ahead(1)  # once the last batch before this pool is let go
                    stop = start + self._batch_size - (len(rest[0]) if rest else 0)
                    yield self._give(outputs.make(pool, start, stop, rest, self._batch_size))
                    start, rest = stop, []
                rest = outputs.make(pool, start, pool.row_count, rest, self._batch_size)
                del pool  # its memory is free once the caller lets go of the batches
            if rest and len(rest[0]) and not self._drop_last:
                yield self._give(rest)

    def _give(self, parts: list[Tensor]) -> Any:
        parts = parts if self._with_samples else parts[:-1]
        return parts[0] if len(parts) == 1 else tuple(parts)

    def read_pool(
        self, blocks: list[Block], order: NDArray[np.int64] | None, memory: list[Tensor], readers: _Readers
    ) -> _Pool:
        """Read blocks into a memory, several at a time; row `order[i]` of them becomes row i."""
        count = sum(block.row_count for block in blocks)
        layers = [layer[:count] for layer in memory]
        slots = None if order is None else _inverse(order)
        jobs: list[Future[None]] = []
        start = 0
        for block in blocks:
            stop = start + block.row_count
            for rows, pool in zip(block.arrays, map(_as_items, layers)):
                own = slice(start, stop) if slots is None else slots[start:stop]
                if pool is not None:
                    jobs.append(readers.threads.submit(readers.reader.read, rows, block.start, block.stop, pool, own))
            start = stop
        for job in jobs:
            job.result()
        samples = np.concatenate([block.samples() for block in blocks]) if self._with_samples else np.empty(count, "i1")
        return _Pool([*layers, torch.from_numpy(samples if order is None else samples[order])], count)


def _as_items(layer: Tensor) -> NDArray[np.void] | None:
    """Return the rows of a tensor as numpy's items of so many bytes; None where they have none."""
    if not layer.numel():
        return None
    rows = layer.reshape(len(layer), -1).view(torch.uint8).numpy()
    return rows.view(f"V{rows.shape[1]}")[:, 0]


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    slots = np.empty_like(order)
    slots[order] = np.arange(len(order))
    return slots


class _Readers:
    """Threads that read blocks, and those that wait for a pool of them."""

    def __init__(self, verified: set[Any]) -> None:
        self.reader, self.threads = BlockReader(verified), ThreadPoolExecutor(_READERS, "torcheer-read")
        self._waiting = ThreadPoolExecutor(_KEPT_POOLS, "torcheer-read-ahead")

    def start(self, stream: RowStream, blocks: list[Block], order: Any, memory: list[Tensor]) -> Future[_Pool]:
        return self._waiting.submit(stream.read_pool, blocks, order, memory, self)

    def __enter__(self) -> _Readers:
        return self

    def __exit__(self, *problem: Any) -> None:
        self._waiting.shutdown(cancel_futures=True)
        self.threads.shutdown(cancel_futures=True)
        self.reader.close()


def _own_blocks(blocks: list[Block], number: int, workers: int) -> list[Block]:
    """Return a worker's blocks: whole arrays, so that it can verify their checksums."""
    arrays: dict[int, int] = {}
    for block in blocks:
        arrays.setdefault(id(block.arrays[0]), len(arrays))
    return [block for block in blocks if arrays[id(block.arrays[0])] % workers == number]


def _first_needed(counts: list[int], batch_size: int, skip: int) -> tuple[int, int]:
    """Return the first pool from which a batch after the skipped ones takes rows, and how many of its rows to skip."""
    rows = skip * batch_size
    for number, count in enumerate(counts):
        if rows < count:
            return number, rows
        rows -= count
    return max(0, len(counts) - 1), counts[-1] if counts else 0


class _Outputs:
    """Batches of rows: views of a pool, or copies where they are small, or of two pools, or the last of one.

    A caller holds a batch until the next one comes: if the last of a pool were a view, its memory would not be free
    for reading while the caller waits for the next pool.

    In a DataLoader's worker always copies, in memory that is not used again: another process reads it.
    """

    def __init__(self) -> None:
        self._is_worker = get_worker_info() is not None
        self._copies = _Recycled(0 if self._is_worker else _KEPT_BATCHES)

    def make(self, pool: _Pool, start: int, stop: int, rest: list[Tensor], batch_size: int) -> list[Tensor]:
        """Return rows of a pool, behind those that were left of the one before."""
        before, rows, pool_rows = len(rest[0]) if rest else 0, stop - start, pool.row_count
        is_small = rows * _VIEW_SHARE < pool_rows or (stop + batch_size > pool_rows and rows * _COPY_SHARE <= pool_rows)
        if not before and not is_small and not self._is_worker:
            return [part[start:stop] for part in pool.parts]
        shapes = [(before + rows, *part.shape[1:]) for part in pool.parts]
        outputs = self._copies.take(shapes, [part.dtype for part in pool.parts])
        for number, (output, part) in enumerate(zip(outputs, pool.parts)):
            if before:
                output[:before] = rest[number]
            output[before:] = part[start:stop]
        return outputs


class _Recycled:
    """Memory that is used again once nobody else holds it: new memory takes longer to touch than to fill."""

    def __init__(self, most: int) -> None:
        self._kept: deque[list[Tensor]] = deque(maxlen=most)

    @property
    def is_free(self) -> bool:
        """Return whether there is free memory, or fewer than are kept."""
        return len(self._kept) < (self._kept.maxlen or 0) or any(all(map(_is_free, memory)) for memory in self._kept)

    def grow(self) -> None:
        """Forget the memory that is held longest, so that other memory is free."""
        self._kept.popleft()

    def take(self, shapes: list[tuple[int, ...]], types: list[torch.dtype]) -> list[Tensor]:
        """Return a tensor of each shape and type."""
        for memory in self._kept:
            if [tuple(tensor.shape) for tensor in memory] == shapes and all(map(_is_free, memory)):
                break
        else:
            memory = [torch.empty(shape, dtype=kind) for shape, kind in zip(shapes, types)]
            self._kept.append(memory)
        return [tensor.view(tensor.shape) for tensor in memory]  # so that the storage knows who holds them


def _is_free(tensor: Tensor) -> bool:
    return storage_holders(tensor) == 1 and not tensor.is_shared()  # type: ignore[no-untyped-call]
