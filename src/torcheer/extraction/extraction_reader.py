"""Reader of an extraction.

Each layer is one memory-mapped array over all samples, without torch.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from torcheer import remote
from torcheer.archive import Archive, Entry
from torcheer.disk import patiently
from torcheer.errors import ArchiveDamaged, BadArgument, UnknownLayer, ValueUnavailable
from torcheer.extraction import extraction_plan as plans
from torcheer.public_names import PublicClass
from torcheer.terminal import did_you_mean, human_shape, plural, warn

if TYPE_CHECKING:
    from torcheer.extraction.readers.row_stream import RowStream
    from torcheer.extraction.readers.top_units import TopUnits
    from torcheer.extraction.readers.torch_dataset import ExtractionDataset

_BASIC_INDEX_TYPES = (int, np.integer, slice, type(None), type(Ellipsis))  # numpy's basic indexing


def open_extraction(path: str | os.PathLike[str], *, partial: bool = False) -> Extraction:
    """Open what `torcheer.extract` wrote.

    `path`: its folder, or a URL. `partial` also opens the finished shards of an incomplete one.
    """
    folder = remote.local_folder(path)
    return patiently(lambda: Extraction(folder, partial=partial), folder)


class Extraction(metaclass=PublicClass):
    """Selected layers of every sample: `extraction["features.6"]` is one array.

    - `path`: the folder.
    - `partial`: also open one that is not complete.
    """

    def __init__(self, path: str | os.PathLike[str], *, partial: bool = False) -> None:
        self.path = Path(path)
        self.plan = plans.read_plan(self.path)
        self._partial = partial
        completion = plans.read_completion(self.path)
        if completion is not None and remote.attached(self.path):
            sealed = list(range(len(completion.shards)))  # to list them all takes long; a missing one is told when read
        else:
            sealed = plans.list_sealed_shards(self.path)
        self.complete = completion is not None
        counts: list[int] | None = None
        if completion is None:
            if not partial:
                raise ValueUnavailable(
                    f"{self.path} is not complete: {len(sealed)} shards are there. Run the extraction again to go on, "
                    f"or open it with partial=True"
                )
        else:
            counts = completion.shards
            if mismatched := set(range(len(counts))) ^ set(sealed):
                fault = "is missing" if min(mismatched) < len(counts) else "is one too many"
                raise ArchiveDamaged(
                    f"{self.path}: {len(counts)} shards were written, and number {min(mismatched)} {fault}"
                )
        self._shards = {
            number: _ShardReader(self.path, self.plan, number, None if counts is None else counts[number])
            for number in sealed
        }
        if completion is not None and completion.batches is not None:
            sizes = dict(enumerate(completion.batches))
        else:
            sizes = {number: size for shard in self._shards.values() for number, size in shard.sizes.items()}
        self.batch_numbers = sorted(sizes)  # numbers of the batches that are there
        self._starts = [0, *accumulate(sizes[number] for number in self.batch_numbers)]

    @property
    def layers(self) -> tuple[str, ...]:
        """Return the names of the extracted layers."""
        return self.plan.layers

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self.layers)

    def __contains__(self, name: object) -> bool:
        return name in self.layers

    def __getitem__(self, name: str) -> ExtractedLayer:
        if name not in self.layers:
            hint = did_you_mean(name, self.layers) or f" It has {', '.join(self.layers)}."
            raise UnknownLayer(f"no layer {name!r} was extracted to {self.path}.{hint}")
        return ExtractedLayer(name, self)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    @cached_property
    def ids(self) -> list[Any]:
        """Return the id of each row: the caller's ids, or indices in the dataset."""
        sample_ids: list[Any] = []
        for place, (number, count) in enumerate(self.batch_sizes()):
            ids = self.shard_of(number).frames[number]["about"].get("ids")
            start = number * self.plan.batch_size if self.plan.batch_size else len(sample_ids)
            if ids is None and not self.plan.batch_size and number != place:
                raise ValueUnavailable(f"{self.path}: batch {place}, from which the others count, is not there yet")
            sample_ids += ids if ids is not None else range(start, start + count)
        return sample_ids

    def dataset(self, *layers: str) -> ExtractionDataset:
        """Return a torch Dataset of (a tensor for each layer, id)."""
        from torcheer.extraction.readers.torch_dataset import ExtractionDataset

        return ExtractionDataset(self, layers or self.layers)

    def top(self, layer: str, k: int = 16) -> TopUnits:
        """Return the `k` samples in which each unit of a layer is strongest; `.save("top.html", images)` is a gallery.

        Units are the channels of a map (samples of three or more dimensions), or the last dimension: then positions are
        tokens. Of each sample only the strongest position counts. Reads what `extract(…, top=True)` gathered of the
        layer, or the layer itself, batch by batch.
        """
        from torcheer.extraction.readers.top_units import find_top

        return find_top(self, layer, k)

    def stream(
        self,
        *layers: str,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        rows: str = "samples",
        buffer_bytes: int = 256 << 20,
        drop_last: bool = False,
        with_samples: bool = False,
    ) -> RowStream:
        """Return a torch IterableDataset of batches of rows, read at the speed of the disk; see `RowStream`.

        `layers`: all by default; the batch is a tensor, or a tuple of one for each. `batch_size`: rows in a batch.
        `shuffle`: another random order in each epoch, by `seed`; False: the order of the samples. `rows`: "samples", or
        "tokens": every vector along the last dimension. `buffer_bytes`: what is shuffled together; twice as much is in
        memory. `drop_last`: leave out a last batch that is short. `with_samples`: add the index of each row's sample.
        """
        from torcheer.extraction.readers.row_stream import RowStream

        return RowStream(
            self, layers or self.layers, batch_size=batch_size, shuffle=shuffle, seed=seed, rows=rows,
            buffer_bytes=buffer_bytes, drop_last=drop_last, with_samples=with_samples,
        )  # fmt: skip

    def verify(self) -> int:
        """Verify the checksum of every value; return how many there are."""
        return sum(shard.archive.verify() for shard in self._shards.values())

    def locate(self, index: int) -> tuple[int, int, int]:
        """Return the number of a sample's batch, the batch's first sample, and the one after its last."""
        place = bisect_right(self._starts, index) - 1
        return self.batch_numbers[place], self._starts[place], self._starts[place + 1]

    def batch_sizes(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each batch, in order, and how many samples it has."""
        for place, number in enumerate(self.batch_numbers):
            yield number, self._starts[place + 1] - self._starts[place]

    def shard_of(self, batch: int) -> _ShardReader:
        """Return the shard of a batch."""
        return self._shards[self.plan.place_of(batch)[0]]

    @property
    def shards(self) -> Iterator[_ShardReader]:
        """Return the shards that are there."""
        return iter(self._shards.values())

    def __reduce__(self) -> Any:  # a DataLoader's workers reopen it
        return _reopen, (remote.address(self.path), self._partial)

    def __repr__(self) -> str:
        state = "" if self.complete else ", not complete"
        facts = f"{len(self):,} samples of {self.plan.model}, {len(self.layers)} layers{state}"
        return f"<Extraction {remote.name_of(self.path)}: {facts}>"


def _reopen(path: Path | str, partial: bool) -> Extraction:
    return open_extraction(path, partial=partial)


class _ShardReader:
    """Reader of one shard, a sealed archive that is opened on first use."""

    def __init__(self, path: Path, plan: plans.ExtractionPlan, number: int, samples: int | None) -> None:
        self.folder = path / "shards" / plans.shard_name(number)
        self.number = number
        self._plan, self._samples = plan, samples

    @cached_property
    def archive(self) -> Archive:
        archive, batches = patiently(lambda: Archive(self.folder), self.folder), self._plan.batches_of(self.number)
        if not archive.sealed:
            raise ArchiveDamaged(f"{self.folder} is cut: its seal is gone")
        if archive.about != plans.shard_metadata(self._plan, self.number):
            raise ArchiveDamaged(f"{self.folder} is not the shard that was written: it is another's, or another one")
        if archive.steps != list(batches[: len(archive.frames)]):
            raise ArchiveDamaged(f"{self.folder} holds other batches than those from {batches[0]} on")
        return archive

    @cached_property
    def frames(self) -> dict[int, dict[str, Any]]:
        """Return the frame of each batch; raise where they do not say which samples they have."""
        frames = {body["step"]: body for body in self.archive.frames}
        for number, body in frames.items():
            count, ids = body["about"].get("count"), body["about"].get("ids")
            lengths, masked = body["about"].get("lengths", []), body["about"].get("masked", [])
            is_valid = type(count) is int and count >= 0 and type(lengths) is type(masked) is list
            is_valid = is_valid and (ids is None or (type(ids) is list and len(ids) == count))
            is_valid = is_valid and all(type(length) is int and length >= 0 for length in lengths)
            if not is_valid or (masked and len(lengths) != count):
                raise ArchiveDamaged(f"{self.folder} does not say which samples batch {number} has")
        total = sum(body["about"]["count"] for body in frames.values())
        if self._samples not in (None, total):
            raise ArchiveDamaged(f"{self.folder} has {total} samples, and {self._samples} were written")
        return frames

    @property
    def sizes(self) -> dict[int, int]:
        """Return how many samples each batch has."""
        return {number: body["about"]["count"] for number, body in self.frames.items()}

    @cached_property
    def entries(self) -> dict[tuple[int | None, str, int], Entry]:
        return self._entries_of("value")

    def _entries_of(self, variable: str) -> dict[tuple[int | None, str, int], Entry]:
        entries = (entry for entry in self.archive.entries if entry.variable == variable)
        return {(entry.step, entry.layer, entry.item): entry for entry in entries}

    @cached_property
    def _extras(self) -> dict[str, dict[tuple[int | None, str, int], Entry]]:
        variables = {entry.variable for entry in self.archive.entries} - {"value"}
        return {variable: self._entries_of(variable) for variable in variables}

    def extra(self, layer: str, variable: str, batch: int) -> NDArray[Any] | None:
        """Return what was kept beside a layer of a batch; None where it was not."""
        entry = self._extras.get(variable, {}).get((batch, layer, -1))
        return None if entry is None else self.archive.array(entry)

    def values(self, layer: str, batch: int, count: int) -> NDArray[Any] | list[NDArray[Any]]:
        """Return a layer's values of a batch of so many samples."""
        arrays = [(item, self.archive.array(entry)) for item, entry in self.layer_entries(layer, batch, count)]
        if not arrays or arrays[0][0] >= 0:
            return [array for _, array in arrays]
        lengths = self.lengths(layer, batch)
        return arrays[0][1] if lengths is None else np.split(arrays[0][1], np.cumsum(lengths)[:-1])

    def layer_entries(self, layer: str, batch: int, count: int) -> list[tuple[int, Entry]]:
        """Return a layer's arrays of a batch: one of all samples as number -1, or one of each."""
        entry, lengths = self.entries.get((batch, layer, -1)), self.lengths(layer, batch)
        if entry is not None and entry.shape[:1] == (count if lengths is None else sum(lengths),):
            return [(-1, entry)]
        rows = [(item, self.entries.get((batch, layer, item))) for item in range(count)]
        if any(entry is None for _, entry in rows):
            raise ArchiveDamaged(f"{self.folder}: layer {layer!r} is not whole in batch {batch}")
        return [(item, entry) for item, entry in rows if entry is not None]

    def lengths(self, layer: str, batch: int) -> list[int] | None:
        """Return how many positions of each sample a mask left of a layer; None where it left it alone."""
        if batch not in self.frames:
            raise ArchiveDamaged(f"{self.folder} does not hold batch {batch}")
        about = self.frames[batch]["about"]
        return about["lengths"] if layer in about.get("masked", ()) else None

    def shapes(self, layer: str) -> set[tuple[tuple[int, ...], str]]:
        """Return the shapes and types of a layer's samples in this shard."""
        shapes: set[tuple[tuple[int, ...], str]] = set()
        for entry in self.archive.entries:
            if entry.layer == layer and entry.variable == "value":
                lengths = None if entry.step is None else self.lengths(layer, entry.step)
                if lengths is not None:
                    shapes |= {((length, *entry.shape[1:]), entry.type) for length in lengths}
                else:
                    shapes.add((entry.shape[1:] if entry.item < 0 else entry.shape, entry.type))
        return shapes


class ExtractedLayer(Sequence[Any], metaclass=PublicClass):
    """One layer over all samples: `layer[10]`, `layer[10:20]`, `layer[[3, 1]]`, `layer[:, 0]`.

    Contiguous values are views of the mapped files, others are copied. Where samples have different shapes, a slice is
    a list of arrays.
    """

    def __init__(self, name: str, extraction: Extraction) -> None:
        self.name, self.extraction = name, extraction

    @cached_property
    def shapes_and_types(self) -> set[tuple[tuple[int, ...], str]]:
        """Return the shapes and types of the samples."""
        return set().union(*(shard.shapes(self.name) for shard in self.extraction.shards))

    @property
    def is_ragged(self) -> bool:
        """Return whether samples have different shapes."""
        return len({shape for shape, _ in self.shapes_and_types}) > 1

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Return the shape of all samples together; None for a dimension that differs."""
        shapes = sorted({shape for shape, _ in self.shapes_and_types})
        if len({len(shape) for shape in shapes}) > 1:
            raise ValueUnavailable(
                f"samples of {self.name!r} differ in their number of dimensions; ask them one by one"
            )
        length_sets = [set(lengths) for lengths in zip(*shapes)]
        return (len(self), *(next(iter(lengths)) if len(lengths) == 1 else None for lengths in length_sets))

    @cached_property
    def type(self) -> str:
        """Return the name of the values' type, also of one that numpy lacks: "bfloat16"."""
        entries = (entry for shard in self.extraction.shards for entry in shard.archive.entries)
        values = (entry for entry in entries if entry.layer == self.name and entry.variable == "value")
        return next((entry.type for entry in values), "float32")

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the numpy type of the values."""
        return self[0].dtype if len(self) else np.dtype(np.float32)

    @property
    def ids(self) -> list[Any]:
        """Return the id of each row."""
        return self.extraction.ids

    def __len__(self) -> int:
        return len(self.extraction)

    def __getitem__(self, key: Any) -> Any:
        first, inner_key = (key[0], key[1:]) if isinstance(key, tuple) and key else (key, ())
        if first is Ellipsis or first is None:
            raise BadArgument(f"{self.name!r}: begin with samples, as in layer[:, ..., 0]")
        self._warn_about_bits()
        is_basic = all(isinstance(part, _BASIC_INDEX_TYPES) and not isinstance(part, bool) for part in inner_key)
        if isinstance(first, (int, np.integer)) and not isinstance(first, bool):
            row = self.row(int(first))
            return row[inner_key] if inner_key and is_basic else row[None][(0, *inner_key)] if inner_key else row
        if is_basic:
            return self._read_rows(self._indices(first), inner_key)
        rows = self._read_rows(self._indices(first), (slice(None),))  # what several lists mean together, numpy knows
        return rows[(slice(None) if isinstance(first, slice) else np.arange(len(rows)), *inner_key)]

    @cached_property
    def _has_bits(self) -> bool:
        return len(self) > 0 and self.row(0).dtype.name != self.type

    def _warn_about_bits(self) -> None:
        if self._has_bits:
            text = f"{self.name!r} is of type {self.type}, and comes as its bits: install ml_dtypes to have its numbers"
            warn(text)

    def row(self, index: int) -> NDArray[Any]:
        """Return one sample; without ml_dtypes, a type that numpy lacks comes as its bits."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        batch, start, end = self.extraction.locate(index % len(self))
        row: NDArray[Any] = self.batch(batch, end - start)[index % len(self) - start]
        return row

    def batch(self, number: int, count: int) -> NDArray[Any] | list[NDArray[Any]]:
        """Return the values of a batch of so many samples: an array, or a list where they were kept one by one."""
        return self.extraction.shard_of(number).values(self.name, number, count)

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
        out_of_range = [int(index) for index in array if not -len(self) <= index < len(self)]
        if out_of_range:
            raise IndexError(f"sample {out_of_range[0]} of {len(self)}")
        return [int(index) % len(self) for index in array]

    def _read_rows(self, indices: range | list[int], inner_key: tuple[Any, ...]) -> Any:
        parts = [
            part[(slice(None), *inner_key)] if inner_key else part for part in self._read_runs(indices, bool(inner_key))
        ]
        if self.is_ragged:
            return [row for part in parts for row in part]
        if not parts:
            shape = tuple(length or 0 for length in self.shape[1:])
            return np.empty((0, *shape), self.dtype)[(slice(None), *inner_key)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _read_runs(self, indices: range | list[int], together: bool) -> Iterator[Any]:
        """Yield the rows in runs within one batch each.

        A view of consecutive rows, a copy of others.
        """
        if together and self.is_ragged:
            raise BadArgument(f"samples of {self.name!r} have different shapes; index them one by one")
        start_index = 0
        while start_index < len(indices):
            number, base, end = self.extraction.locate(indices[start_index])
            values = self.batch(number, end - base)
            last = start_index
            while last < len(indices) and base <= indices[last] < end:
                last += 1
            run = [index - base for index in indices[start_index:last]]
            if isinstance(values, list):
                rows = [values[row] for row in run]
                yield rows if self.is_ragged else np.stack(rows)
            elif run == list(range(run[0], run[0] + len(run))):
                yield values[run[0] : run[0] + len(run)]
            else:
                yield values[run]
            start_index = last

    def __iter__(self) -> Iterator[NDArray[Any]]:
        self._warn_about_bits()
        for number, count in self.extraction.batch_sizes():
            yield from self.batch(number, count)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if self.is_ragged:
            raise ValueUnavailable(f"samples of {self.name!r} have different shapes and make no array; use a list")
        array: NDArray[Any] = np.asarray(self[:], dtype)
        return array.copy() if copy else array

    def __repr__(self) -> str:
        return f"<Layer {self.name!r} of {plural(len(self), 'sample')}: {human_shape(self.shape[1:])}>"
