"""The strongest samples of each unit of a stored layer."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.disk import write_file
from torcheer.encoding import numbers_of
from torcheer.errors import BadArgument, ValueUnavailable
from torcheer.extraction.extraction_plan import NO_PLACE, PEAK, PEAK_PLACE
from torcheer.extraction.extraction_reader import ExtractedLayer, Extraction


class Strongest(NamedTuple):
    """One of the strongest values of a unit."""

    value: float
    sample: int  # row of the extraction
    id: Any
    position: tuple[int, ...]  # row and column of a map, number of a token; () for a layer without positions


class TopUnits:
    """The `k` samples in which each unit of a layer is strongest, each with the position of its largest value.

    `values`, `samples`: arrays of (units, k), the strongest first. `top[5]`: those of unit 5.
    """

    def __init__(
        self, layer: str, ids: list[Any], values: NDArray[Any], samples: NDArray[Any], positions: NDArray[Any],
        grid: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.layer, self.values, self.samples = layer, values, samples
        self.grid = grid  # rows and columns of a map, number of tokens; () for a layer without positions
        self._ids, self._positions = ids, positions  # (units, k, dimensions)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, unit: int) -> list[Strongest]:
        if not -len(self) <= unit < len(self):
            raise IndexError(f"unit {unit} of {len(self)}")
        return [
            Strongest(float(value), int(sample), self._ids[sample], tuple(int(place) for place in position))
            for value, sample, position in zip(self.values[unit], self.samples[unit], self._positions[unit])
        ]

    def __repr__(self) -> str:
        return f"<the {self.values.shape[1]} strongest samples of {len(self)} units of {self.layer!r}>"

    def save(
        self,
        path: str | os.PathLike[str],
        inputs: Any = None,
        *,
        units: Any = range(32),
        decode: Callable[[int], str] | None = None,
    ) -> Path:
        """Write a gallery as one HTML file, and return its path.

        `inputs`: what was extracted, by the number of the sample: images (channels first or last, 0 … 1 or bytes), of
        (image, label) the first; or the tokens of each, then `decode` makes a token's text of its number.
        `units`: which to show.
        """
        from torcheer.extraction.readers.top_gallery import make_page

        write_file(Path(path), make_page(self, inputs, [unit for unit in units if unit < len(self)], decode))
        return Path(path)

    def show(self, inputs: Any = None, **options: Any) -> Path:
        """Open the gallery in a browser; arguments as for `save`. Returns the path of its temporary file."""
        folder = Path(tempfile.mkdtemp(prefix="torcheer-top-"))
        path = self.save(folder / "strongest.html", inputs, **options)
        webbrowser.open(path.as_uri())
        return path


def find_top(extraction: Extraction, layer: str, k: int) -> TopUnits:
    """Keep the strongest samples of each unit: of the peaks that were gathered, or of the layer, which is read once."""
    if type(k) is not int or k < 1:
        raise BadArgument(f"k={k!r}: give a whole number from 1 on")
    stored, first = extraction[layer], 0
    best: tuple[NDArray[Any], ...] | None = None
    grid: tuple[int, ...] = ()
    for number, count in extraction.batch_sizes():
        peaks = _gathered_peaks(stored, number, count) or _read_peaks(stored, number, count)
        if peaks is not None:
            grid, new = peaks.grid, (peaks.values, first + peaks.samples, peaks.places)
            best = _strongest(new if best is None else tuple(map(np.concatenate, zip(best, new))), k)
        first += count
    if best is None:
        raise ValueUnavailable(f"{layer!r} has no values to compare")
    values, samples, places = (array.T for array in best)
    dimensions = np.stack(np.unravel_index(places, grid), -1) if len(grid) > 1 else places[..., None]
    return TopUnits(layer, extraction.ids, values, samples, dimensions[..., : len(grid)], grid)


class _BatchPeaks(NamedTuple):
    """Peaks of a batch, each array as (samples, units)."""

    values: NDArray[Any]
    samples: NDArray[Any]  # of the batch
    places: NDArray[Any]  # numbers of the flattened positions
    grid: tuple[int, ...]  # the shape of the positions


def _gathered_peaks(stored: ExtractedLayer, number: int, count: int) -> _BatchPeaks | None:
    """Return the peaks that were gathered while extracting; None where they were not, or a mask left nothing."""
    shard = stored.extraction.shard_of(number)
    values, places = (shard.extra(stored.name, variable, number) for variable in (PEAK, PEAK_PLACE))
    if values is None or places is None:
        return None
    kept = np.flatnonzero(places[:, 0] != NO_PLACE)
    if not len(kept):
        return None
    shape = shard.layer_entries(stored.name, number, count)[0][1].shape
    grid = shape[2:] if len(shape) > 3 else shape[-2:-1]
    samples = np.repeat(kept[:, None], places.shape[1], 1)
    return _BatchPeaks(numbers_of(stored.type, values)[kept], samples, places[kept].astype(np.int64), grid)


def _read_peaks(stored: ExtractedLayer, number: int, count: int) -> _BatchPeaks | None:
    """Return the peaks of a batch's values; None where it has none."""
    rows = [_peaks(numbers_of(stored.type, np.asarray(row))) for row in stored.batch(number, count)]
    kept = [(sample, peak) for sample, peak in enumerate(rows) if peak is not None]
    if not kept:
        return None
    values, places = (np.stack([peak[field] for _, peak in kept]) for field in (0, 1))
    samples = np.repeat(np.array([[sample] for sample, _ in kept]), values.shape[1], 1)
    return _BatchPeaks(values, samples, places, kept[0][1][2])


def _peaks(row: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], tuple[int, ...]] | None:
    """Return each unit's largest value in a sample, where it is, and the shape of the places; None of an empty one.

    Units are the channels of a map, the first dimension of three or more; otherwise the last dimension.
    """
    if row.ndim == 0:
        row = row[None]
    if not row.size:
        return None
    if row.ndim == 1:
        return row, np.zeros(row.shape, np.int64), ()
    by_place = row.reshape(len(row), -1).T if row.ndim > 2 else row
    places = by_place.argmax(0)
    grid = row.shape[1:] if row.ndim > 2 else row.shape[:1]
    return by_place[places, np.arange(by_place.shape[1])], places, grid


def _strongest(candidates: tuple[NDArray[Any], ...], k: int) -> tuple[NDArray[Any], ...]:
    """Return the k candidates of each unit with the largest values; equal ones in the order of the samples."""
    order = np.argsort(-candidates[0].astype(np.float64), axis=0, kind="stable")[:k]
    return tuple(np.take_along_axis(array, order, 0) for array in candidates)
