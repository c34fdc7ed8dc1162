"""Any data as batches in a fixed order; finished batches are skipped without loading them."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
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
)

from torcheer.data_workers import WorkerStart
from torcheer.errors import BadArgument, TorcheerError
from torcheer.extraction.collation import Collate, collate_given
from torcheer.extraction.fingerprints import fingerprint, old_data_checksum

BATCH_SIZE = 32
_SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


class Batch(NamedTuple):
    """One batch for the model."""

    number: int
    data: Any  # as the dataset or loader yields it, after `transform`
    rows: int | None  # how many samples it has; None if only its tensors show it
    ids: list[Any] | None  # indices of its samples in the dataset; None for data without indices
    given: Any  # as the dataset or loader yields it, before `transform`

    def __str__(self) -> str:
        if not self.ids:
            return f"batch {self.number}"
        ends = f"sample {self.ids[0]}" if len(self.ids) == 1 else f"samples {self.ids[0]} … {self.ids[-1]}"
        return f"batch {self.number} ({ends})"


BatchFilter = Callable[[int], bool]  # whether the batch of this number is still to be computed


class Batches:
    """Data as batches: a DataLoader yields batches, anything else samples, which are collated."""

    def __init__(self, data: Any, batch_size: int | None, transform: Callable[[Any], Any] | None) -> None:
        self.is_loader = isinstance(data, DataLoader)
        if self.is_loader and batch_size is not None:
            raise BadArgument("batch_size goes with a dataset; a DataLoader has its own")
        if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
            raise BadArgument(f"batch_size={batch_size!r}: give a whole number from 1 on")
        self.data, self.transform = data, transform
        self.is_old = False  # whether a folder of version 1 goes on, which has other checksums
        self.keeps_given = False  # whether somebody asks for samples as they were before `transform`
        self.collate = Collate()
        self.loaded: Batch | None = None  # the first one, which `select` need not load again
        self.batch_size = None if self.is_loader else batch_size or BATCH_SIZE
        self._indexed = _is_indexed(data)
        self._stream: Iterator[Any] | None = None  # started by `first`; some data cannot be iterated twice
        self.samples: int | None = None  # total number; None if unknown before the end
        self.order = 0  # checksum over the assignment of samples to batches
        if self.is_loader:
            self.samples, self.order = _check_order(data, self._indexed)
        elif self._indexed:
            self.samples = len(data)
        elif not isinstance(data, Iterable):
            raise BadArgument(
                f"data is {_type_name(data)}: give a Dataset, a DataLoader, a tensor, a list, or an iterable of samples"
            )

    @property
    def length(self) -> int | None:
        """Return how many samples the dataset has; None for data without indices."""
        if not self._indexed:
            return None
        return len(self.data.dataset if self.is_loader else self.data)

    @property
    def is_single_pass(self) -> bool:
        """Return whether the data can be iterated only once, and only in this process: a generator."""
        return isinstance(self.data, Iterator)

    def first(self) -> Batch:
        """Return the first batch, for a trial; `select` yields it again."""
        if not self._indexed:
            stream = self._groups()
            head = list(islice(stream, 1))
            self._stream = chain(head, stream)
            batches = [self._make_batch(0, part) for part in head]
        else:
            batches = list(islice(self.select(lambda number: number == 0), 1))
        if not batches:
            raise BadArgument("data has no samples")
        return batches[0]

    def close(self) -> None:
        """Give up what was read ahead, so that a loader's workers end now: see `Session.reading`."""
        self._stream = self.loaded = None

    def starts_with(self, first: int) -> bool:
        """Return whether a new iteration begins with the batch of that checksum.

        Workers iterate over the data themselves, and need the same batches.
        """
        if self._indexed:
            return True
        return any(self.checksum(self._make_batch(0, part)) == first for part in islice(self._groups(), 1))

    def checksum(self, batch: Batch) -> int:
        """Return a checksum over the model's inputs."""
        inputs = model_inputs(batch.data, transformed=self.transform is not None)
        tensors = (leaf for leaf in _iterate_leaves(inputs) if isinstance(leaf, torch.Tensor))
        return old_data_checksum(tensors) if self.is_old else fingerprint(("", tensor) for tensor in tensors)

    def select(self, is_wanted: BatchFilter) -> Generator[Batch, None, None]:
        """Iterate over the batches that the filter accepts, in order."""
        if self._indexed:
            yield from self._from_dataset(is_wanted)
            return
        stream, self._stream = self._stream or self._groups(), None
        for number, part in enumerate(stream):
            if is_wanted(number):
                yield self._make_batch(number, part)

    def _from_dataset(self, is_wanted: BatchFilter) -> Iterator[Batch]:
        chosen: list[tuple[int, list[Any]]] = []
        first, self.loaded = self.loaded, None
        known = 0 if first is None else 1
        if first is not None and is_wanted(0):
            yield first
        del first

        def sampler() -> Iterator[list[Any]]:
            for number, indices in enumerate(self._indices()):
                if number >= known and is_wanted(number):
                    chosen.append((number, indices))
                    yield indices

        for data in self._loader(_LazySampler(sampler)):
            number, indices = chosen.pop(0)
            ids = [_to_json_id(index) for index in indices]
            given, data = data if self._pairs else (data, self._apply_transform(data) if self.is_loader else data)
            yield Batch(number, data, len(ids), ids, given)
        if chosen:  # a loader treats a StopIteration raised by its dataset as the end
            raise TorcheerError(f"the data ended inside of batch {chosen[0][0]}, though more samples were to come")

    def _indices(self) -> Iterator[list[Any]]:
        if self.is_loader:
            yield from (list(indices) for indices in self.data.batch_sampler)
            return
        assert self.samples is not None and self.batch_size is not None
        for start in range(0, self.samples, self.batch_size):
            yield list(range(start, min(start + self.batch_size, self.samples)))

    def _loader(self, sampler: Any) -> DataLoader[Any]:
        if not self.is_loader:
            items = _TransformedItems(self.data, self.transform, self._pairs)
            collate = self.collate.pairs if self._pairs else self.collate
            return DataLoader(items, batch_sampler=sampler, collate_fn=collate)
        loader = self.data
        return DataLoader(
            loader.dataset,
            batch_sampler=sampler,
            **{name: getattr(loader, name) for name in (
                "collate_fn", "num_workers", "pin_memory", "timeout", "multiprocessing_context", "prefetch_factor",
            )},
            worker_init_fn=_worker_init(loader),
        )  # fmt: skip

    def _groups(self) -> Iterator[Any]:
        """Yield what makes up each batch: a DataLoader's batches, or lists of samples."""
        if self.is_loader:
            yield from _with_worker_exit(self.data)
            return
        items = iter(self.data)
        while part := list(islice(items, self.batch_size)):
            yield part

    def _make_batch(self, number: int, part: Any) -> Batch:
        if self.is_loader:
            return Batch(number, self._apply_transform(part), None, None, part)
        data = self.collate([self._apply_transform(item) for item in part])
        return Batch(number, data, len(part), None, collate_given(part) if self._pairs else data)

    @property
    def _pairs(self) -> bool:
        """Whether samples are kept twice: as given, and transformed."""
        return self.keeps_given and self.transform is not None and not self.is_loader

    def _apply_transform(self, item: Any) -> Any:
        return item if self.transform is None else self.transform(item)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_stream": None, "loaded": None}  # other processes start a new iteration


def _worker_init(loader: DataLoader[Any]) -> WorkerStart | None:
    return WorkerStart(loader.worker_init_fn) if loader.num_workers else None


def _with_worker_exit(loader: DataLoader[Any]) -> DataLoader[Any]:
    """Copy the loader with workers that exit with this process.

    The user's loader is not changed.
    """
    if not loader.num_workers:
        return loader
    duplicate = copy(loader)
    duplicate.worker_init_fn = _worker_init(loader)
    duplicate._iterator = None  # the persistent workers belong to the user's loader
    return duplicate


class _LazySampler:
    """Batch sampler over lists of indices that are computed lazily."""

    def __init__(self, make: Callable[[], Iterator[list[int]]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[list[int]]:
        return self._make()


class _TransformedItems(Dataset[Any]):
    """Transformed samples of anything with a length and an index; `pairs`: (as given, transformed)."""

    def __init__(self, data: Any, transform: Callable[[Any], Any] | None, pairs: bool) -> None:
        self._data, self._transform, self._pairs = data, transform, pairs

    def __getitem__(self, index: int) -> Any:
        item = self._data[index]
        made = item if self._transform is None else self._transform(item)
        return (item, made) if self._pairs else made


def model_inputs(data: Any, *, transformed: bool) -> Any:
    """Return the model's inputs in a batch: the first of (image, label), or all after a transform."""
    return data[0] if isinstance(data, (tuple, list)) and not transformed else data


def batch_ids(batches: Batches, batch: Batch, sample_ids: Sequence[Any] | None) -> list[Any] | None:
    """Return the ids of a batch's samples; None where they are simply the next indices."""
    if sample_ids is not None and batch.ids is not None:
        return [sample_ids[index] for index in batch.ids]
    return batch.ids if batches.is_loader else None


def count_rows(data: Any) -> int:
    """Return how many samples a batch has: the first dimension of its first tensor."""
    for leaf in _iterate_leaves(data):
        if isinstance(leaf, torch.Tensor) and leaf.ndim:
            return len(leaf)
    raise BadArgument("a batch without a tensor in it: give a transform that makes one")


def _iterate_leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, Mapping):
        data = tuple(data.values())
    if isinstance(data, (tuple, list)):
        for part in data:
            yield from _iterate_leaves(part)
    else:
        yield data


def _is_indexed(data: Any) -> bool:
    """Return whether samples can be read by index, so that finished ones need not be loaded."""
    if isinstance(data, DataLoader):
        is_plain = type(data).__iter__ is DataLoader.__iter__  # a subclass may change its batches
        return is_plain and not isinstance(data.dataset, IterableDataset) and data.batch_sampler is not None
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    return indexed and not isinstance(data, (Mapping, str, bytes, IterableDataset))


def _check_order(loader: DataLoader[Any], indexed: bool) -> tuple[int | None, int]:
    """Return a loader's sample count and a checksum over its order.

    Refuse an order that is not repeatable.
    """
    sampler = loader.batch_sampler
    shuffles = isinstance(loader.sampler, _SHUFFLING) or isinstance(getattr(sampler, "sampler", None), _SHUFFLING)
    workers = loader.num_workers if isinstance(loader.dataset, IterableDataset) else 0  # they interleave batches
    samples, crc = None, zlib.crc32(repr((loader.batch_size, loader.drop_last, workers)).encode())
    if indexed and not shuffles:
        samples, crc = _order_checksum(sampler)
        shuffles = _order_checksum(sampler) != (samples, crc)
    if shuffles:
        raise BadArgument("the DataLoader shuffles: an extraction needs a fixed order, so make it with shuffle=False")
    return samples, crc


def _order_checksum(sampler: Any) -> tuple[int, int]:
    samples = crc = 0
    for indices in sampler:
        ids = [_to_json_id(index) for index in indices]
        samples, crc = samples + len(ids), zlib.crc32(repr(ids).encode(), crc)
    return samples, crc


def _to_json_id(index: Any) -> int | str:
    """Convert a sampler's index to JSON: it may be a numpy or torch integer."""
    try:
        return operator.index(index)
    except TypeError:
        return str(index)


def _type_name(value: Any) -> str:
    return type(value).__name__
