"""Batches in an order that can be had again: a place in it is two numbers, the epoch and the batch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from torcheer.data_workers import WorkerStart
from torcheer.training.loop.stream_epochs import Iterated, Stream
from torcheer.training.spec.session_parts import Loader


class Feed:
    """The batches of one loader, epoch after epoch, from any place."""

    def __init__(self, loader: Loader, seed: int) -> None:
        self.loader, self._seed = loader, seed
        self.is_stream = isinstance(loader.dataset, IterableDataset) or not hasattr(loader.dataset, "__getitem__")
        self._order = _Order(loader, seed)
        self._idle: list[tuple[_Order, DataLoader[Any]]] = []
        self._streams: dict[int, list[Stream]] = {}  # epoch -> those that were begun in it; of the last one only
        self._resumed: Mapping[str, Any] | None = None

    def __len__(self) -> int:
        """Batches in an epoch."""
        if self.is_stream:
            raise TypeError("a stream has no length")
        return len(self._order)

    @property
    def samples(self) -> int | None:
        """Samples in the dataset, where that is known."""
        return None if self.is_stream else len(self.loader.dataset)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch, from number `start` on."""
        if self.is_stream:
            return self._stream(epoch, start)
        return self._batches(epoch, start)

    def state(self) -> dict[str, Any] | None:
        """What a stream says of its place; None where the epoch and the batch tell all."""
        (streams,) = self._streams.values() or ([],)
        return streams[0].state() if len(streams) == 1 else None  # of two over one dataset, neither knows its own

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Have the next epoch go on from there."""
        self._resumed = state

    def _batches(self, epoch: int, start: int) -> Iterator[Any]:
        # used again: workers that start anew cost seconds; one of its own for each pipeline that is under way
        order, batches = self._idle.pop() if self._idle else self._made()
        order.set(epoch, start)
        batches.generator.manual_seed(self._seed)  # workers that start in mid-epoch get the same seeds
        with suppress(GeneratorExit):  # whoever takes only some; what fails is not used again
            yield from self._begun(batches)
        self._idle.append((order, batches))

    def _made(self) -> tuple[_Order, DataLoader[Any]]:
        options, order = dict(self.loader.options), _Order(self.loader, self._seed)
        dataset: Any = self.loader.dataset
        places: Any = order
        if options.get("num_workers"):
            options.setdefault("persistent_workers", True)
            dataset, places = _Seeded(dataset, self._seed), _Placed(order)
        return order, self._data_loader(dataset, self._seed, batch_sampler=places, **options)

    def _stream(self, epoch: int, start: int) -> Stream:
        options = {key: value for key, value in self.loader.options.items() if key != "persistent_workers"}
        shape = {"batch_size": self.loader.batch_size, "drop_last": self.loader.drop_last}
        dataset, seed, workers = self.loader.dataset, mixed(self._seed, epoch), bool(options.get("num_workers"))
        if hasattr(dataset, "set_epoch"):
            dataset.set_epoch(epoch)
        source = dataset if isinstance(dataset, IterableDataset) else Iterated(dataset)
        batches = partial(self._data_loader, source, seed, **shape, **options)
        stream = Stream(dataset, lambda: self._begun(batches()), seed, workers=workers)
        if start:
            stream.go_to(start, self._resumed)
        self._resumed = None
        self._streams = {epoch: [*self._streams.get(epoch, []), stream]}
        return stream

    def _data_loader(self, dataset: Any, seed: int, **options: Any) -> DataLoader[Any]:
        # a generator of its own: torch's would be drawn from whenever an epoch is begun, also in its middle
        generator = torch.Generator().manual_seed(seed)
        return DataLoader(dataset, collate_fn=self.loader.collate, generator=generator, **options)

    def _begun(self, batches: DataLoader[Any]) -> Iterator[Any]:
        """Go through a loader; workers that this starts end with this process."""
        if batches.num_workers:
            batches.worker_init_fn = WorkerStart(self.loader.options.get("worker_init_fn"), saves_first=True)
        return iter(batches)


class _Order:
    """Lists of indices: a permutation that depends on the seed and the epoch alone."""

    def __init__(self, loader: Loader, seed: int) -> None:
        self._size = 0 if isinstance(loader.dataset, IterableDataset) else _size(loader.dataset)
        self._loader, self._seed = loader, seed
        self.epoch, self.start = 0, 0

    def set(self, epoch: int, start: int) -> None:
        self.epoch, self.start = epoch, start

    def __len__(self) -> int:
        whole, rest = divmod(self._size, self._loader.batch_size)
        return whole + bool(rest and not self._loader.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        size, count = self._loader.batch_size, len(self)
        order = self._permutation() if self._loader.shuffle else range(self._size)
        for number in range(self.start, count):
            part = order[number * size : (number + 1) * size]
            yield part.tolist() if isinstance(part, np.ndarray) else list(part)

    def _permutation(self) -> np.ndarray[Any, Any]:
        return np.random.default_rng((self._seed, self.epoch)).permutation(self._size)


class _Placed:
    """The same lists, each with its place, from which a worker seeds its generators."""

    def __init__(self, order: _Order) -> None:
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[tuple[int, int, list[int]]]:
        epoch = self._order.epoch
        for number, indices in enumerate(self._order, self._order.start):
            yield epoch, number, indices


class _Seeded(Dataset[Any]):
    """A dataset whose random numbers depend on the place of a batch, whichever worker makes it."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed = dataset, seed

    def __getitems__(self, place: tuple[int, int, list[int]]) -> list[Any]:
        epoch, number, indices = place
        seed_everything(mixed(self._seed, epoch, number))
        several = getattr(self._dataset, "__getitems__", None)
        return several(indices) if several is not None else [self._dataset[index] for index in indices]


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def mixed(*numbers: int) -> int:
    """One seed of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(2, np.uint32).view(np.uint64)[0] >> np.uint64(1))


def _size(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:
        return 0
