"""Reading an extraction: each layer is one array over all samples, without torch, from the files' own memory."""

from __future__ import annotations

import os
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torcheer.archive import Archive, Entry
from torcheer.errors import ArchiveDamaged, BadArgument, UnknownLayer, ValueUnavailable
from torcheer.extraction import extraction_plan as plans

if TYPE_CHECKING:
    from torcheer.extraction.torch_dataset import ExtractionDataset

_SIMPLE = (int, np.integer, slice, type(None), type(Ellipsis))  # what makes no list of places


def open_extraction(path: str | os.PathLike[str], *, partial: bool = False) -> Extraction:
    """What `torcheer.extract` wrote; with `partial`, the shards that are there while it is not complete."""
    return Extraction(path, partial=partial)


class Extraction:
    """Chosen layers of every sample: `extraction["features.6"]` is one array."""

    def __init__(self, path: str | os.PathLike[str], *, partial: bool = False) -> None:
        self.path = Path(path)
        self.plan = plans.read(self.path)
        self._partial = partial
        counts = plans.finished(self.path)
        there = plans.sealed(self.path)
        self.complete = counts is not None
        if counts is None:
            if not partial:
                raise ValueUnavailable(
                    f"{self.path} is not complete: {len(there)} shards are there. Run the extraction again to go on, "
                    f"or open it with partial=True"
                )
            self._shards = [_Shard(self.path, self.plan, number, None) for number in there]
        else:
            if odd := set(range(len(counts))) ^ set(there):
                what = "is missing" if min(odd) < len(counts) else "is one too many"
                raise ArchiveDamaged(f"{self.path}: {len(counts)} shards were written, and number {min(odd)} {what}")
            self._shards = [_Shard(self.path, self.plan, number, count) for number, count in enumerate(counts)]
        self._starts = [0, *accumulate(shard.samples for shard in self._shards)]

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of what was kept."""
        return self.plan.layers

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __contains__(self, name: object) -> bool:
        return name in self.layers

    def __getitem__(self, name: str) -> Layer:
        if name not in self.layers:
            near = get_close_matches(str(name), self.layers, 1)
            hint = f" Did you mean {near[0]!r}?" if near else f" It has {', '.join(self.layers)}."
            raise UnknownLayer(f"no layer {name!r} was extracted to {self.path}.{hint}")
        return Layer(name, self)

    @cached_property
    def ids(self) -> list[Any]:
        """Which sample each row is: the caller's own ids, or numbers in the dataset."""
        found: list[Any] = []
        for place, shard in enumerate(self._shards):
            for number, count, ids in shard.batches:
                start = number * self.plan.batch_size if self.plan.batch_size else len(found)
                if ids is None and not self.plan.batch_size and shard.number != place:
                    raise ValueUnavailable(f"{self.path}: shard {place}, from which the others count, is not there yet")
                found += ids if ids is not None else range(start, start + count)
        return found

    def dataset(self, *layers: str) -> ExtractionDataset:
        """A torch Dataset of (a tensor for each layer, id)."""
        from torcheer.extraction.torch_dataset import ExtractionDataset

        return ExtractionDataset(self, layers or self.layers)

    def verify(self) -> int:
        """Check every value; return how many there are."""
        return sum(shard.archive.verify() for shard in self._shards)

    def place(self, index: int) -> tuple[_Shard, int]:
        """The shard of a sample, and its place there."""
        shard = bisect_right(self._starts, index) - 1
        return self._shards[shard], index - self._starts[shard]

    def __reduce__(self) -> Any:  # a DataLoader's workers open it anew
        return _reopened, (self.path, self._partial)

    def __repr__(self) -> str:
        state = "" if self.complete else ", not complete"
        return f"<Extraction {self.path}: {len(self):,} samples of {self.plan.model}, {len(self.layers)} layers{state}>"


def _reopened(path: Path, partial: bool) -> Extraction:
    return open_extraction(path, partial=partial)


class _Shard:
    """One sealed archive; opened when it is first needed."""

    def __init__(self, path: Path, plan: plans.Plan, number: int, samples: int | None) -> None:
        self.folder = path / "shards" / plans.shard_name(number)
        self.number = number
        self._plan, self._samples = plan, samples

    @cached_property
    def archive(self) -> Archive:
        archive, first = Archive(self.folder), self.number * self._plan.batches_per_shard
        if not archive.sealed:
            raise ArchiveDamaged(f"{self.folder} is cut: its seal is gone")
        if archive.about != plans.about_shard(self._plan, self.number):
            raise ArchiveDamaged(f"{self.folder} is not the shard that was written: it is another's, or another one")
        if archive.steps != list(range(first, first + len(archive.frames))):
            raise ArchiveDamaged(f"{self.folder} holds other batches than those from {first} on")
        return archive

    @cached_property
    def batches(self) -> list[tuple[int, int, list[Any] | None]]:
        """For each batch its number, its samples, and their ids where they have some of their own."""
        found = []
        for body in self.archive.frames:
            count, ids = body["about"].get("count"), body["about"].get("ids")
            if (
                type(count) is not int
                or count < 0
                or (ids is not None and (type(ids) is not list or len(ids) != count))
            ):
                raise ArchiveDamaged(f"{self.folder} does not say which samples batch {body['step']} has")
            found.append((body["step"], count, ids))
        return found

    @cached_property
    def samples(self) -> int:
        return sum(count for _, count, _ in self.batches) if self._samples is None else self._samples

    @cached_property
    def starts(self) -> list[int]:
        starts = [0, *accumulate(count for _, count, _ in self.batches)]
        if starts[-1] != self.samples:
            raise ArchiveDamaged(f"{self.folder} has {starts[-1]} samples, and {self.samples} were written")
        return starts

    @cached_property
    def entries(self) -> dict[tuple[int | None, str, int], Entry]:
        return {(entry.step, entry.layer, entry.item): entry for entry in self.archive.entries}

    def batch(self, layer: str, index: int) -> tuple[int, int, NDArray[Any] | list[NDArray[Any]]]:
        """The batch that has a sample: where it begins and ends in the shard, and its values."""
        which = bisect_right(self.starts, index) - 1
        number, count, _ = self.batches[which]
        whole = self.entries.get((number, layer, -1))
        if whole is not None and whole.shape[:1] == (count,):
            return self.starts[which], self.starts[which + 1], self.archive.array(whole)
        rows = [self.entries.get((number, layer, item)) for item in range(count)]
        if None in rows:
            raise ArchiveDamaged(f"{self.folder}: layer {layer!r} is not whole in batch {number}")
        return (
            self.starts[which],
            self.starts[which + 1],
            [self.archive.array(row) for row in rows if row is not None],
        )

    def shapes(self, layer: str) -> set[tuple[tuple[int, ...], str]]:
        """The shapes and types that samples of a layer have here."""
        return {
            (entry.shape[1:] if entry.item < 0 else entry.shape, entry.type)
            for entry in self.archive.entries
            if entry.layer == layer
        }


class Layer(Sequence[Any]):
    """One layer of all samples, as one array: `layer[10]`, `layer[10:20]`, `layer[[3, 1]]`, `layer[:, 0]`.

    Values come from the files' own memory where they lie together, and are copied where they do not. Where samples have
    different shapes, a slice is a list of arrays.
    """

    def __init__(self, name: str, extraction: Extraction) -> None:
        self.name, self.extraction = name, extraction

    @cached_property
    def _kinds(self) -> set[tuple[tuple[int, ...], str]]:
        return set().union(*(shard.shapes(self.name) for shard in self.extraction._shards))

    @property
    def is_ragged(self) -> bool:
        """Whether samples have different shapes."""
        return len({shape for shape, _ in self._kinds}) > 1

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of all samples together; None for a length that differs."""
        shapes = sorted({shape for shape, _ in self._kinds})
        if len({len(shape) for shape in shapes}) > 1:
            raise ValueUnavailable(
                f"samples of {self.name!r} differ in their number of dimensions; ask them one by one"
            )
        same = [set(lengths) for lengths in zip(*shapes)]
        return (len(self), *(next(iter(lengths)) if len(lengths) == 1 else None for lengths in same))

    @cached_property
    def type(self) -> str:
        """The name of the values' type, also of one that numpy lacks: "bfloat16"."""
        entries = (entry for shard in self.extraction._shards for entry in shard.archive.entries)
        return next((entry.type for entry in entries if entry.layer == self.name), "float32")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return self[0].dtype if len(self) else np.dtype(np.float32)

    @property
    def ids(self) -> list[Any]:
        """Which sample each row is."""
        return self.extraction.ids

    def __len__(self) -> int:
        return len(self.extraction)

    def __getitem__(self, key: Any) -> Any:
        first, rest = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if first is Ellipsis or first is None:
            raise BadArgument(f"{self.name!r}: begin with samples, as in layer[:, ..., 0]")
        self._warn_of_bits()
        simple = all(isinstance(one, _SIMPLE) and not isinstance(one, bool) for one in rest)
        if isinstance(first, (int, np.integer)) and not isinstance(first, bool):
            row = self.one(int(first))
            return row[rest] if rest and simple else row[None][(0, *rest)] if rest else row
        if simple:
            return self._many(self._indices(first), rest)
        rows = self._many(self._indices(first), (slice(None),))  # what several lists mean together, numpy knows
        return rows[(slice(None) if isinstance(first, slice) else np.arange(len(rows)), *rest)]

    @cached_property
    def _has_bits(self) -> bool:
        return len(self) > 0 and self.one(0).dtype.name != self.type

    def _warn_of_bits(self) -> None:
        if self._has_bits:
            text = f"{self.name!r} is of type {self.type}, and comes as its bits: install ml_dtypes to have its numbers"
            warnings.warn(text, stacklevel=3)

    def one(self, index: int) -> NDArray[Any]:
        """One sample; of a type that numpy lacks perhaps as its bits."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        shard, place = self.extraction.place(index % len(self))
        start, _, values = shard.batch(self.name, place)
        found: NDArray[Any] = values[place - start]
        return found

    def _indices(self, key: Any) -> range | list[int]:
        if isinstance(key, slice):
            return range(*key.indices(len(self)))
        array = np.asarray(key)
        if array.dtype == bool:
            if array.shape != (len(self),):
                raise IndexError(f"a mask of shape {array.shape} for {len(self)} samples")
            array = np.flatnonzero(array)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise BadArgument(f"{self.name!r}: samples are chosen by a number, a slice, a list of numbers or a mask")
        wrong = [int(one) for one in array if not -len(self) <= one < len(self)]
        if wrong:
            raise IndexError(f"sample {wrong[0]} of {len(self)}")
        return [int(one) % len(self) for one in array]

    def _many(self, indices: range | list[int], rest: tuple[Any, ...]) -> Any:
        parts = [part[(slice(None), *rest)] if rest else part for part in self._parts(indices, bool(rest))]
        if self.is_ragged:
            return [row for part in parts for row in part]
        if not parts:
            shape = tuple(length or 0 for length in self.shape[1:])
            return np.empty((0, *shape), self.dtype)[(slice(None), *rest)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _parts(self, indices: range | list[int], together: bool) -> Iterator[Any]:
        """The rows in runs that lie in one batch each: a view where they follow each other, a copy elsewhere."""
        if together and self.is_ragged:
            raise BadArgument(f"samples of {self.name!r} have different shapes; index them one by one")
        at = 0
        while at < len(indices):
            shard, place = self.extraction.place(indices[at])
            start, end, values = shard.batch(self.name, place)
            base = indices[at] - place + start  # the batch's first sample, among all
            last = at
            while last < len(indices) and base <= indices[last] < base + end - start:
                last += 1
            run = [index - base for index in indices[at:last]]
            if isinstance(values, list):
                rows = [values[row] for row in run]
                yield rows if self.is_ragged else np.stack(rows)
            elif run == list(range(run[0], run[0] + len(run))):
                yield values[run[0] : run[0] + len(run)]
            else:
                yield values[run]
            at = last

    def __iter__(self) -> Iterator[NDArray[Any]]:
        self._warn_of_bits()
        for shard in self.extraction._shards:
            place = 0
            while place < shard.samples:
                _, place, values = shard.batch(self.name, place)
                yield from values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if self.is_ragged:
            raise ValueUnavailable(f"samples of {self.name!r} have different shapes and make no array; use a list")
        found: NDArray[Any] = np.asarray(self[:], dtype)
        return found.copy() if copy else found

    def __repr__(self) -> str:
        lengths = "×".join("?" if one is None else str(one) for one in self.shape[1:])
        return f"<Layer {self.name!r} of {len(self):,} samples: {lengths}>"
