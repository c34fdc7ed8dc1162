"""Stored rows as a shuffled torch IterableDataset of batches, at the speed of the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from torcheer.errors import BadArgument
from torcheer.extraction.extraction_reader import Extraction
from torcheer.extraction.readers.row_blocks import Block, BlockReader, list_blocks, row_shape
from torcheer.extraction.shared_storage import storage_holders

_KEPT_OUTPUTS = 3  # batches: the one that is made, the one at work, and one that was just let go
_READERS = 8  # threads that read: while one verifies a checksum, the disk has others' requests


class _Pool(NamedTuple):
    """Rows of some blocks in memory, of each layer, and the sample of each row."""

    layers: list[Tensor]
    samples: Tensor


class RowStream(IterableDataset[Any]):
    """Batches of stored rows in random order, each row once in an epoch.

    Random blocks of the files are read into a pool, whose rows are shuffled, while the batches of the pool before are
    given out: so many bytes at a time, twice. Yields a tensor, or a tuple of one for each layer; the samples of the
    rows last, if asked for. Use it as it is, or in a `DataLoader(stream, batch_size=None, num_workers=2)`, whose
    workers share the blocks.

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
        orders = [order.permutation(count) if self._shuffle else np.arange(count) for count in counts]
        first, left = _first_needed(counts, self._batch_size, skip)
        rest: list[Tensor] = []  # rows of the pool before that made no batch
        outputs = _Outputs()
        memories = [self._memory(max(counts[first:], default=0)) for _ in pools[first : first + 2]]
        with _Readers(self._verified) as readers:
            coming = readers.start(self, pools[first], memories[0]) if pools else None
            for number in range(first, len(pools)):
                assert coming is not None
                pool = coming.result()
                if number + 1 < len(pools):  # into the memory of the pool before, whose rows have all been given out
                    coming = readers.start(self, pools[number + 1], memories[(number + 1 - first) % 2])
                places = torch.from_numpy(orders[number])
                parts = [*pool.layers, pool.samples]
                start = left
                left = 0
                while len(places) - start + (len(rest[0]) if rest else 0) >= self._batch_size:
                    stop = start + self._batch_size - (len(rest[0]) if rest else 0)
                    yield self._give(outputs.gather(parts, places[start:stop], rest))
                    start, rest = stop, []
                rest = outputs.gather(parts, places[start:], rest)
            if rest and len(rest[0]) and not self._drop_last:
                yield self._give(rest)

    def _give(self, parts: list[Tensor]) -> Any:
        parts = parts if self._with_samples else parts[:-1]
        return parts[0] if len(parts) == 1 else tuple(parts)

    def _memory(self, rows: int) -> list[Tensor]:
        return [torch.empty((rows, *shape), dtype=kind) for shape, kind in zip(self._shapes, self._types)]

    def read_pool(
        self, blocks: list[Block], memory: list[Tensor], reader: BlockReader, threads: ThreadPoolExecutor
    ) -> _Pool:
        """Read blocks into a memory, several at a time."""
        count = sum(block.row_count for block in blocks)
        layers = [layer[:count] for layer in memory]
        views = [memoryview(layer.reshape(-1).view(torch.uint8).numpy().data) for layer in layers]
        jobs: list[Future[None]] = []
        start = 0
        for block in blocks:
            for rows, view in zip(block.arrays, views):
                row_bytes = len(view) // count
                target = view[start * row_bytes : (start + block.row_count) * row_bytes]
                jobs.append(threads.submit(reader.read, rows, block.start, block.stop, target))
            start += block.row_count
        for job in jobs:
            job.result()
        samples = np.concatenate([block.samples() for block in blocks]) if self._with_samples else np.empty(count, "i1")
        return _Pool(layers, torch.from_numpy(samples))


class _Readers:
    """Threads that read blocks, and one that waits for a pool of them."""

    def __init__(self, verified: set[Any]) -> None:
        self._reader, self._threads = BlockReader(verified), ThreadPoolExecutor(_READERS, "torcheer-read")
        self._waiting = ThreadPoolExecutor(1, "torcheer-read-ahead")

    def start(self, stream: RowStream, blocks: list[Block], memory: list[Tensor]) -> Future[_Pool]:
        return self._waiting.submit(stream.read_pool, blocks, memory, self._reader, self._threads)

    def __enter__(self) -> _Readers:
        return self

    def __exit__(self, *problem: Any) -> None:
        self._waiting.shutdown(cancel_futures=True)
        self._threads.shutdown(cancel_futures=True)
        self._reader.close()


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
    """Memory of the last batches, used again once nobody else holds it: new memory takes longer to touch than to fill.

    Not in a DataLoader's worker, whose batches lie in memory that another process reads.
    """

    def __init__(self) -> None:
        self._kept: deque[list[Tensor]] = deque(maxlen=0 if get_worker_info() is not None else _KEPT_OUTPUTS)

    def gather(self, parts: list[Tensor], places: Tensor, rest: list[Tensor]) -> list[Tensor]:
        """Return rows at some places, behind those that were left."""
        before = len(rest[0]) if rest else 0
        outputs = self._memory(parts, before + len(places))
        for number, (output, part) in enumerate(zip(outputs, parts)):
            if before:
                output[:before] = rest[number]
            if part.numel():
                torch.index_select(part, 0, places, out=output[before:])
        return [output.view(output.shape) for output in outputs]  # so that the storage knows who holds a batch

    def _memory(self, parts: list[Tensor], rows: int) -> list[Tensor]:
        for memory in self._kept:
            if len(memory[0]) == rows and all(map(_is_free, memory)):
                return memory
        memory = [torch.empty((rows, *part.shape[1:]), dtype=part.dtype) for part in parts]
        self._kept.append(memory)
        return memory


def _is_free(tensor: Tensor) -> bool:
    return storage_holders(tensor) == 1 and not tensor.is_shared()  # type: ignore[no-untyped-call]
