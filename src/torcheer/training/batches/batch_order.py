"""Batches in a reproducible order.

A position in it is two numbers, the epoch and the batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from torcheer.data_workers import WorkerStart
from torcheer.training.batches.sample_order import SampleOrder, sample_order
from torcheer.training.batches.stream_epochs import BatchStream, IterableWrapper, WorkerRepeats
from torcheer.training.checkpoints.random_state import preserved_random
from torcheer.training.parallel.batch_shares import CollatedShare, Share, StandIn
from torcheer.training.session_parts import Loader

_READ_SECS = 30.0  # for a batch that is read apart


class Feed:
    """Batches of one loader, epoch after epoch, from any position."""

    def __init__(self, loader: Loader, seed: int, name: str = "") -> None:
        self.loader, self._seed = loader, seed
        self._repeats: WorkerRepeats | None = None  # of a stream, made for its first pass
        self._name = name
        self.is_stream = isinstance(loader.dataset, IterableDataset) or not hasattr(loader.dataset, "__getitem__")
        self.left_out = LeftOut()
        self._order = _BatchOrder(loader, seed, self.left_out)
        self._idle: list[tuple[_BatchOrder, DataLoader[Any]]] = []
        self._streams: dict[int, list[BatchStream]] = {}  # the last epoch -> the streams started in it
        self._resumed: Mapping[str, Any] | None = None

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        if self.is_stream:
            raise TypeError("a stream has no length")
        return len(self._order)

    @property
    def samples(self) -> int | None:
        """Number of samples in the dataset; None for a stream."""
        return None if self.is_stream else len(self.loader.dataset)

    def epoch(self, epoch: int | None, start: int = 0, share: Share | None = None) -> Iterator[Any]:
        """Iterate over the batches of an epoch, from number `start` on.

        None is a pass outside of training: in the order of epoch 0, without what is left out by now. `share`: only the
        samples that one of several ranks takes of each batch; a `StandIn` where it takes none.
        """
        if self.is_stream:
            return self._stream(epoch or 0, start, share)
        return self._batches(epoch, start, share)

    def indices(self, epoch: int, number: int) -> list[int] | None:
        """The samples of a batch, as indices of the loader's dataset; None for a stream, which has no such numbers."""
        if self.is_stream:
            return None
        return self._order.batch(epoch, number)

    def read_apart(self, epoch: int, number: int, collate: Callable[[list[Any]], Any]) -> Any:
        """What `collate` makes of the items of a batch, in another process: here, no number and no dataset changes.

        Random augmentation is repeated where the loader has workers, and is another where it has none.
        """
        position: Any = (epoch, number, self.indices(epoch, number))
        options = {key: value for key, value in self.loader.options.items() if key == "multiprocessing_context"}
        loader: DataLoader[Any] = DataLoader(
            _SeededDataset(self.loader.dataset, self._seed), batch_sampler=[position], collate_fn=collate,
            num_workers=1, generator=torch.Generator().manual_seed(self._seed), timeout=_READ_SECS, **options,
        )  # fmt: skip
        return next(self._iterate(loader))

    def state(self) -> dict[str, Any] | None:
        """Return the position that a stream reports; None where the epoch and the batch define it."""
        (streams,) = self._streams.values() or ([],)
        return streams[0].state() if len(streams) == 1 else None  # two streams over one dataset share its state

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Start the next epoch from this state."""
        self._resumed = state

    def end_workers(self) -> None:
        """End the workers of all loaders that nothing reads from."""
        self._idle.clear()
        for stream in chain(*self._streams.values()):
            stream.end_workers()

    def _batches(self, epoch: int | None, start: int, share: Share | None) -> Iterator[Any]:
        # Loaders are reused: starting workers costs seconds. Each running pipeline has a loader for itself.
        order, batches = self._idle.pop() if self._idle else self._make_loader()
        order.set(epoch, start, share)
        batches.generator.manual_seed(self._seed)  # workers started in mid-epoch get the same seeds
        with suppress(GeneratorExit):  # the consumer stopped early; a loader that raises is not reused
            yield from (
                self._iterate(batches)
                if share is None
                else order.with_stand_ins(self._iterate(batches), self._read_one)
            )
        self._idle.append((order, batches))

    def _read_one(self, index: int) -> Any:
        """A batch of one sample, without a trace in the random generators."""
        with preserved_random():
            return (self.loader.collate or default_collate)([self.loader.dataset[index]])

    def _make_loader(self) -> tuple[_BatchOrder, DataLoader[Any]]:
        options, order = dict(self.loader.options), _BatchOrder(self.loader, self._seed, self.left_out)
        dataset: Any = self.loader.dataset
        sampler: Any = order
        if options.get("num_workers"):
            options.setdefault("persistent_workers", True)
            dataset, sampler = _SeededDataset(dataset, self._seed), _PositionedBatches(order)
        return order, self._data_loader(dataset, self._seed, self.loader.collate, batch_sampler=sampler, **options)

    def _stream(self, epoch: int, start: int, share: Share | None) -> BatchStream:
        options = {key: value for key, value in self.loader.options.items() if key != "persistent_workers"}
        shape = {"batch_size": self.loader.batch_size, "drop_last": self.loader.drop_last}
        dataset, seed, workers = self.loader.dataset, mix_seeds(self._seed, epoch), bool(options.get("num_workers"))
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(epoch)
        source = dataset if isinstance(dataset, IterableDataset) else IterableWrapper(dataset)
        collate = self.loader.collate if share is None else CollatedShare(self.loader.collate, share)
        batches = partial(self._data_loader, source, seed, collate, **shape, **options)
        stream = BatchStream(dataset, lambda: self._compared(batches()), seed, workers=workers)
        if start:
            stream.seek(start, self._resumed)
        self._resumed = None
        self._streams = {epoch: [*self._streams.get(epoch, []), stream]}
        return stream

    def _compared(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Iterate over a stream; say once if its workers all give the same batches."""
        batches = self._iterate(loader)
        if loader.num_workers < 2 or self._repeats is not None:
            return batches
        self._repeats = WorkerRepeats(self._name, loader.num_workers)
        return self._repeats.watch(batches)

    def _data_loader(self, dataset: Any, seed: int, collate: Any, **options: Any) -> DataLoader[Any]:
        # A separate generator: DataLoader would draw from torch's at every epoch start, also when resuming inside one.
        generator = torch.Generator().manual_seed(seed)
        return DataLoader(dataset, collate_fn=collate, generator=generator, **options)

    def _iterate(self, batches: DataLoader[Any]) -> Iterator[Any]:
        """Iterate over a loader; its workers end with this process."""
        if batches.num_workers:
            batches.worker_init_fn = WorkerStart(self.loader.options.get("worker_init_fn"), saves_first=True)
        return iter(batches)


class _BatchOrder:
    """Batch sampler: a permutation of indices that depends only on the seed and the epoch."""

    def __init__(self, loader: Loader, seed: int, left_out: LeftOut) -> None:
        self._loader, self._seed, self._left_out = loader, seed, left_out
        self.epoch: int | None = 0
        self.start = 0
        self.share: Share | None = None  # of each batch, that is taken of it

    def set(self, epoch: int | None, start: int, share: Share | None = None) -> None:
        self.epoch, self.start, self.share = epoch, start, share

    @property
    def _size(self) -> int:
        """The number of samples, asked for each time: what runs before an epoch may change the data."""
        return 0 if isinstance(self._loader.dataset, IterableDataset) else _size(self._loader.dataset)

    def __len__(self) -> int:
        """Return the number of batches of an epoch that begins now."""
        return self._count(self._size - len(self._left_out.now))

    def _count(self, samples: int) -> int:
        full, remainder = divmod(samples, self._loader.batch_size)
        return full + bool(remainder and not self._loader.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        return self._global() if self.share is None else self._shares(self.share)

    def _shares(self, share: Share) -> Iterator[list[int]]:
        for indices in self._global():
            mine, stands_in = share.of(indices)
            if not stands_in:
                yield list(mine)

    def with_stand_ins(self, batches: Iterator[Any], read_one: Callable[[int], Any]) -> Iterator[Any]:
        """Yield the batches that were made of these indices; a `StandIn` where this rank takes nothing of a batch.

        That is its last batch again, so that no sample is read twice; of none before, the batch's first sample.
        """
        batch, share = None, self.share
        assert share is not None
        for indices in self._global():
            if share.of(indices)[1]:
                yield StandIn(read_one(indices[0]) if batch is None else batch)
            else:
                batch = next(batches)
                yield batch

    def _global(self) -> Iterator[list[int]]:
        if self._left_out.is_empty:
            size, order = self._loader.batch_size, self._order(self.epoch or 0)
            for number in range(self.start, self._count(len(order))):
                yield order[number * size : (number + 1) * size].tolist()
        else:
            yield from self.batches(self.epoch)[self.start :]

    def batch(self, epoch: int, number: int) -> list[int]:
        """The indices of one batch; none where the epoch has fewer batches."""
        if not self._left_out.is_empty:
            return next(iter(self.batches(epoch)[number : number + 1]), [])
        size, order = self._loader.batch_size, self._order(epoch)
        return order[number * size : (number + 1) * size].tolist() if number < self._count(len(order)) else []

    def batches(self, epoch: int | None) -> list[list[int]]:
        """All batches of an epoch; see `Feed.epoch`."""
        size, remaining = self._loader.batch_size, self._order(epoch or 0)[:]
        parts = self._left_out.parts_of(epoch)
        ends = [begin for begin, _ in parts[1:]]
        batches: list[list[int]] = []
        for (begin, indices), end in zip(parts, [*ends, None]):
            kept = remaining[~np.isin(remaining, list(indices))]
            count = self._count(len(kept))
            count = count if end is None else min(count, end - begin)
            taken = kept[: count * size]
            batches += [taken[place : place + size].tolist() for place in range(0, len(taken), size)]
            remaining = remaining[~np.isin(remaining, taken)]
        return batches

    def _order(self, epoch: int) -> SampleOrder:
        return sample_order(self._size, self._seed, epoch, shuffle=self._loader.shuffle)


class LeftOut:
    """The samples that an order leaves out, and since when: batches before that are as they were."""

    def __init__(self) -> None:
        self._changes: list[tuple[int, int, frozenset[int]]] = []  # epoch, batch, all that is left out from there on

    @property
    def is_empty(self) -> bool:
        """Whether nothing ever was left out."""
        return not self._changes

    @property
    def now(self) -> frozenset[int]:
        """What is left out by now."""
        return self._changes[-1][2] if self._changes else frozenset()

    def change(self, epoch: int, batch: int, indices: frozenset[int]) -> None:
        """Leave out these samples, and no others, from a batch of an epoch on."""
        self._changes = [*(part for part in self._changes if part[:2] != (epoch, batch)), (epoch, batch, indices)]

    def parts_of(self, epoch: int | None) -> list[tuple[int, frozenset[int]]]:
        """The parts of an epoch: the batch at which each begins, and what it leaves out. None: what holds by now."""
        if epoch is None:
            return [(0, self.now)]
        before = [part[2] for part in self._changes if part[0] < epoch or part[:2] == (epoch, 0)]
        later = [part[1:] for part in self._changes if part[0] == epoch and part[1]]
        return [(0, before[-1] if before else frozenset()), *later]

    def state(self) -> list[list[Any]]:
        """Return everything as lists that JSON can hold."""
        return [[epoch, batch, sorted(indices)] for epoch, batch, indices in self._changes]

    def restore(self, state: Sequence[Sequence[Any]]) -> None:
        """Continue from what `state` returned."""
        self._changes = [(int(epoch), int(batch), frozenset(indices)) for epoch, batch, indices in state]


class _PositionedBatches:
    """The same index lists, each with its position, from which a worker seeds its generators."""

    def __init__(self, order: _BatchOrder) -> None:
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        epoch, share = self._order.epoch or 0, self._order.share
        rank = () if share is None else (share.rank,)
        for number, indices in enumerate(self._order, self._order.start):
            yield epoch, number, indices, *rank


class _SeededDataset(Dataset[Any]):
    """A dataset whose random numbers depend on the position of a batch, not on its worker."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed = dataset, seed

    def __getitems__(self, position: tuple[Any, ...]) -> list[Any]:
        epoch, number, indices, *rank = position
        seed_everything(mix_seeds(self._seed, epoch, number, *rank))
        get_items = getattr(self._dataset, "__getitems__", None)
        return get_items(indices) if get_items is not None else [self._dataset[index] for index in indices]


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def mix_seeds(*numbers: int) -> int:
    """Mix several numbers into one seed."""
    return int(np.random.SeedSequence(numbers).generate_state(2, np.uint32).view(np.uint64)[0] >> np.uint64(1))


def _size(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:
        return 0
