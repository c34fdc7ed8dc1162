"""Any data as batches in a fixed order, of which those that are done already are not even loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from torcheer.errors import BadArgument, TorcheerError

BATCH_SIZE = 32
_SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class Batch(NamedTuple):
    """What goes through the model at once."""

    number: int
    data: Any  # as the data gives it, after `transform`
    ids: list[int] | None  # which samples of a dataset; None where the data has no numbers of its own


Wanted = Callable[[int], bool]  # whether a batch, by its number, is still to be done


class Batches:
    """Data as batches. A DataLoader gives batches; anything else gives samples, which are collated."""

    def __init__(self, data: Any, batch_size: int | None, transform: Callable[[Any], Any] | None) -> None:
        self.given_batches = isinstance(data, DataLoader)
        if self.given_batches and batch_size is not None:
            raise BadArgument("batch_size goes with a dataset; a DataLoader has its own")
        if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
            raise BadArgument(f"batch_size={batch_size!r}: give a whole number from 1 on")
        self.data, self.transform = data, transform
        self.batch_size = None if self.given_batches else batch_size or BATCH_SIZE
        self.samples = _length(data.dataset if self.given_batches else data)
        self._indexed = _is_indexed(data)
        if self.given_batches:
            _refuse_shuffling(data)
        elif not self._indexed and not isinstance(data, Iterable):
            raise BadArgument(
                f"data is {_a(data)}: give a Dataset, a DataLoader, a tensor, a list, or an iterable of samples"
            )

    @property
    def is_once(self) -> bool:
        """Whether the data can be gone through only once, and only here: a generator."""
        return not self.given_batches and not self._indexed and iter(self.data) is self.data

    @property
    def count(self) -> int | None:
        """How many batches there are, where that is known before the end."""
        if self.given_batches:
            return _length(self.data)
        if self.samples is None or self.batch_size is None:
            return None
        return -(-self.samples // self.batch_size)

    def first(self) -> Batch:
        """The first batch, for a trial; a generator gets it back."""
        if not self.is_once:
            for batch in self.wanted(lambda number: number == 0):
                return batch
            raise BadArgument("data has no samples")
        assert self.batch_size is not None
        items = list(islice(self.data, self.batch_size))
        if not items:
            raise BadArgument("data has no samples")
        self.data = chain(items, self.data)
        return Batch(0, self._collated(items), None)

    def wanted(self, wanted: Wanted) -> Iterator[Batch]:
        """The wanted batches, in order."""
        if self._indexed:
            yield from self._from_dataset(wanted)
        elif self.given_batches:
            for number, data in enumerate(self.data):
                if wanted(number):
                    yield Batch(number, self._transformed(data), None)
        else:
            yield from self._from_iterable(wanted)

    def _from_dataset(self, wanted: Wanted) -> Iterator[Batch]:
        chosen: list[tuple[int, list[int]]] = []

        def sampler() -> Iterator[list[int]]:
            for number, indices in enumerate(self._indices()):
                if wanted(number):
                    chosen.append((number, indices))
                    yield indices

        for data in self._loader(_Sampler(sampler)):
            number, indices = chosen.pop(0)
            yield Batch(number, self._transformed(data) if self.given_batches else data, indices)

    def _indices(self) -> Iterator[list[int]]:
        if self.given_batches:
            yield from (list(indices) for indices in self.data.batch_sampler)
            return
        assert self.samples is not None and self.batch_size is not None
        for start in range(0, self.samples, self.batch_size):
            yield list(range(start, min(start + self.batch_size, self.samples)))

    def _loader(self, sampler: Any) -> DataLoader[Any]:
        if not self.given_batches:
            return DataLoader(_Items(self.data, self.transform), batch_sampler=sampler, collate_fn=_collate)
        given = self.data
        return DataLoader(
            given.dataset,
            batch_sampler=sampler,
            **{name: getattr(given, name) for name in (
                "collate_fn", "num_workers", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
                "prefetch_factor",
            )},
        )  # fmt: skip

    def _from_iterable(self, wanted: Wanted) -> Iterator[Batch]:
        assert self.batch_size is not None
        items, number = iter(self.data), 0
        while part := list(islice(items, self.batch_size)):
            if wanted(number):
                yield Batch(number, self._collated(part), None)
            number += 1

    def _collated(self, items: list[Any]) -> Any:
        return _collate([self._transformed(item) for item in items])

    def _transformed(self, item: Any) -> Any:
        return item if self.transform is None else self.transform(item)


class _Sampler:
    """Lists of indices, worked out while they are asked for."""

    def __init__(self, make: Callable[[], Iterator[list[int]]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[list[int]]:
        return self._make()


class _Items(Dataset[Any]):
    """The samples of anything with a length and an index, transformed."""

    def __init__(self, data: Any, transform: Callable[[Any], Any] | None) -> None:
        self._data, self._transform = data, transform

    def __getitem__(self, index: int) -> Any:
        item = self._data[index]
        return item if self._transform is None else self._transform(item)


def inputs_of(data: Any, *, transformed: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a batch means to a model: a dict is keywords, the first of (image, label) the input, unless a transform
    has made all of it."""
    if isinstance(data, dict):
        return (), data
    if isinstance(data, (tuple, list)):
        return (tuple(data), {}) if transformed else ((data[0],), {})
    return (data,), {}


def count_of(data: Any) -> int:
    """How many samples a batch has: the first length of its first tensor."""
    for leaf in _leaves(data):
        if isinstance(leaf, torch.Tensor) and leaf.ndim:
            return len(leaf)
    raise BadArgument("a batch without a tensor in it: give a transform that makes one")


def _leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, dict):
        data = tuple(data.values())
    if isinstance(data, (tuple, list)):
        for part in data:
            yield from _leaves(part)
    else:
        yield data


def _collate(items: list[Any]) -> Any:
    try:
        return default_collate(items)
    except TypeError as error:
        raise _NotCollated(
            f"samples of type {_a(items[0])} cannot be made a batch ({str(error).split(';')[0]}); give a transform "
            f"that makes tensors of them, or a DataLoader with its own collate_fn"
        ) from None
    except RuntimeError as error:
        raise _NotCollated(
            f"samples cannot be made a batch: {error}. Give a transform that makes them alike, batch_size=1, or a "
            f"DataLoader with its own collate_fn"
        ) from None


class _NotCollated(TorcheerError, TypeError):
    """Samples that do not fit into one batch."""


def _is_indexed(data: Any) -> bool:
    if isinstance(data, DataLoader):
        return not isinstance(data.dataset, IterableDataset) and data.batch_sampler is not None
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return indexed and not isinstance(data, (dict, str, bytes, IterableDataset))


def _length(data: Any) -> int | None:
    if isinstance(data, IterableDataset):  # its length is a promise that it need not keep
        return None
    if isinstance(data, DataLoader) and isinstance(data.dataset, IterableDataset):
        return None
    try:
        return len(data)
    except TypeError:
        return None


def _refuse_shuffling(loader: DataLoader[Any]) -> None:
    """An order that cannot be had again cannot be gone on with."""
    sampler = loader.batch_sampler
    shuffles = isinstance(loader.sampler, _SHUFFLING) or isinstance(getattr(sampler, "sampler", None), _SHUFFLING)
    if not shuffles and sampler is not None and not isinstance(loader.dataset, IterableDataset):
        shuffles = list(islice(sampler, 3)) != list(islice(sampler, 3))
    if shuffles:
        raise BadArgument("the DataLoader shuffles: an extraction needs a fixed order, so make it with shuffle=False")


def _a(thing: Any) -> str:
    return type(thing).__name__
