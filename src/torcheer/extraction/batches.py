"""Any data as batches in a fixed order, of which those that are done already are not even loaded."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
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

from torcheer.data_workers import WorkerStart
from torcheer.encoding import refusal, to_bytes
from torcheer.errors import BadArgument, TorcheerError

BATCH_SIZE = 32
_SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class Batch(NamedTuple):
    """What goes through the model at once."""

    number: int
    data: Any  # as the data gives it, after `transform`
    rows: int | None  # how many samples it has; None where only its tensors tell
    ids: list[Any] | None  # which samples of a dataset; None where the data has no numbers of its own

    def __str__(self) -> str:
        if not self.ids:
            return f"batch {self.number}"
        ends = f"sample {self.ids[0]}" if len(self.ids) == 1 else f"samples {self.ids[0]} … {self.ids[-1]}"
        return f"batch {self.number} ({ends})"


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
        self._indexed = _is_indexed(data)
        self._stream: Iterator[Any] | None = None  # begun by `first`; some data cannot be begun twice
        self.samples: int | None = None  # how many there will be; None where only the end will tell
        self.order = 0  # a checksum over which samples make which batch
        if self.given_batches:
            self.samples, self.order = _order(data, self._indexed)
        elif self._indexed:
            self.samples = len(data)
        elif not isinstance(data, Iterable):
            raise BadArgument(
                f"data is {_a(data)}: give a Dataset, a DataLoader, a tensor, a list, or an iterable of samples"
            )

    @property
    def length(self) -> int | None:
        """How many samples the dataset has, where they have numbers."""
        if not self._indexed:
            return None
        return len(self.data.dataset if self.given_batches else self.data)

    @property
    def is_once(self) -> bool:
        """Whether the data can be gone through only once, and only here: a generator."""
        return isinstance(self.data, Iterator)

    def first(self) -> Batch:
        """The first batch, for a trial; a stream gets it back."""
        if not self._indexed:
            stream = self._parts()
            begun = list(islice(stream, 1))
            self._stream = chain(begun, stream)
            found = [self._made(0, part) for part in begun]
        else:
            found = list(islice(self.wanted(lambda number: number == 0), 1))
        if not found:
            raise BadArgument("data has no samples")
        return found[0]

    def begins_alike(self, first: int) -> bool:
        """Whether the data begins with the batch of that checksum once more: others will go through it, too."""
        if self._indexed:
            return True
        return any(self.check(self._made(0, part)) == first for part in islice(self._parts(), 1))

    def check(self, batch: Batch) -> int:
        """A checksum over what the model is given."""
        return _checksum(model_inputs(batch.data, transformed=self.transform is not None))

    def wanted(self, wanted: Wanted) -> Iterator[Batch]:
        """The wanted batches, in order."""
        if self._indexed:
            yield from self._from_dataset(wanted)
            return
        stream, self._stream = self._stream or self._parts(), None
        for number, part in enumerate(stream):
            if wanted(number):
                yield self._made(number, part)

    def _from_dataset(self, wanted: Wanted) -> Iterator[Batch]:
        chosen: list[tuple[int, list[Any]]] = []

        def sampler() -> Iterator[list[Any]]:
            for number, indices in enumerate(self._indices()):
                if wanted(number):
                    chosen.append((number, indices))
                    yield indices

        for data in self._loader(_Sampler(sampler)):
            number, indices = chosen.pop(0)
            ids = [_id(index) for index in indices]
            yield Batch(number, self._transformed(data) if self.given_batches else data, len(ids), ids)
        if chosen:  # a loader takes a StopIteration of its dataset for the end
            raise TorcheerError(f"the data ended inside of batch {chosen[0][0]}, though more samples were to come")

    def _indices(self) -> Iterator[list[Any]]:
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
                "collate_fn", "num_workers", "pin_memory", "timeout", "multiprocessing_context", "prefetch_factor",
            )},
            worker_init_fn=_worker_start(given),
        )  # fmt: skip

    def _parts(self) -> Iterator[Any]:
        """What makes a batch each: those of a DataLoader, and lists of samples of anything else."""
        if self.given_batches:
            yield from _ending_workers(self.data)
            return
        items = iter(self.data)
        while part := list(islice(items, self.batch_size)):
            yield part

    def _made(self, number: int, part: Any) -> Batch:
        if self.given_batches:
            return Batch(number, self._transformed(part), None, None)
        return Batch(number, _collate([self._transformed(item) for item in part]), len(part), None)

    def _transformed(self, item: Any) -> Any:
        return item if self.transform is None else self.transform(item)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_stream": None}  # other processes begin anew


def _worker_start(loader: DataLoader[Any]) -> WorkerStart | None:
    return WorkerStart(loader.worker_init_fn) if loader.num_workers else None


def _ending_workers(loader: DataLoader[Any]) -> DataLoader[Any]:
    """The same loader, its workers ending with this process; the user's own is not changed."""
    if not loader.num_workers:
        return loader
    found = copy(loader)
    found.worker_init_fn = _worker_start(loader)
    found._iterator = None  # persistent workers were started by another
    return found


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


def model_inputs(data: Any, *, transformed: bool) -> Any:
    """What of a batch the model is given: the first of (image, label), unless a transform has made all of it."""
    return data[0] if isinstance(data, (tuple, list)) and not transformed else data


def count_of(data: Any) -> int:
    """How many samples a batch has: the first length of its first tensor."""
    for leaf in _leaves(data):
        if isinstance(leaf, torch.Tensor) and leaf.ndim:
            return len(leaf)
    raise BadArgument("a batch without a tensor in it: give a transform that makes one")


def _leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, Mapping):
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
    """Whether samples can be asked for by their numbers, so that those that are done already are not loaded."""
    if isinstance(data, DataLoader):
        is_plain = type(data).__iter__ is DataLoader.__iter__  # a subclass may do anything to its batches
        return is_plain and not isinstance(data.dataset, IterableDataset) and data.batch_sampler is not None
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return indexed and not isinstance(data, (Mapping, str, bytes, IterableDataset))


def _order(loader: DataLoader[Any], indexed: bool) -> tuple[int | None, int]:
    """How many samples a loader gives, and a checksum over their order; one that cannot be had again is refused."""
    sampler = loader.batch_sampler
    shuffles = isinstance(loader.sampler, _SHUFFLING) or isinstance(getattr(sampler, "sampler", None), _SHUFFLING)
    workers = loader.num_workers if isinstance(loader.dataset, IterableDataset) else 0  # they take turns
    samples, check = None, zlib.crc32(repr((loader.batch_size, loader.drop_last, workers)).encode())
    if indexed and not shuffles:
        samples, check = _checked_order(sampler)
        shuffles = _checked_order(sampler) != (samples, check)
    if shuffles:
        raise BadArgument("the DataLoader shuffles: an extraction needs a fixed order, so make it with shuffle=False")
    return samples, check


def _checked_order(sampler: Any) -> tuple[int, int]:
    samples = check = 0
    for indices in sampler:
        ids = [_id(index) for index in indices]
        samples, check = samples + len(ids), zlib.crc32(repr(ids).encode(), check)
    return samples, check


def _id(index: Any) -> int | str:
    """What a sampler gives, as JSON can hold it: numbers may be numpy's or torch's own."""
    try:
        return operator.index(index)
    except TypeError:
        return str(index)


def _checksum(data: Any) -> int:
    """Of everything that the tensors in it hold."""
    check = 0
    for leaf in _leaves(data):
        if isinstance(leaf, torch.Tensor):
            kept = leaf if not refusal(leaf) else torch.tensor(leaf.shape)  # sparse, nested: its shape says enough
            name, shape, content = to_bytes(kept)
            check = zlib.crc32(content, zlib.crc32(f"{name} {shape}".encode(), check))
    return check


def _a(thing: Any) -> str:
    return type(thing).__name__
