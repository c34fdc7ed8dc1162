"""Each sample's largest value of every unit, and where it was: gathered while extracting, read by `features.top`.

Units are the channels of a map, the first dimension of a sample's three or more; otherwise the last dimension, and
positions are tokens. Peaks are stored beside their batch in the frame that commits it, so that a run that was killed
and went on has those of one that nobody disturbed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from torcheer.extraction.extraction_plan import NO_PLACE
from torcheer.extraction.values.value_rows import BatchValues
from torcheer.vocabulary.dtypes import DTYPES, torch_types

_TYPES = torch_types(row for row in DTYPES.values() if row.has_arithmetic and row.kind not in ("bool", "complex"))


class Peaks(NamedTuple):
    """The peaks of a layer in one batch, as (samples, units)."""

    values: Tensor
    places: Tensor  # numbers of the flattened positions


def find_peaks(batch: BatchValues) -> Iterator[tuple[str, Peaks]]:
    """Yield each layer that has positions, with its peaks; samples that were kept one by one have none."""
    for name, value in batch.values.items():
        if isinstance(value, Tensor) and value.numel() and value.dtype in _TYPES:
            peaks = _masked_peaks(batch, value) if name in batch.masked else _peaks(value)
            if peaks is not None:
                yield name, peaks


def _peaks(value: Tensor) -> Peaks | None:
    if value.ndim < 3:  # the peak of a sample without positions is the sample
        return None
    largest, places = value.max(1) if value.ndim == 3 else value.flatten(2).max(2)
    return Peaks(largest, places.int())


def _masked_peaks(batch: BatchValues, value: Tensor) -> Peaks | None:
    """Return the peaks of the positions that a mask left: (positions of all samples, units)."""
    if value.ndim != 2 or batch.lengths is None:
        return None
    largest = value.new_zeros(batch.count, value.shape[1])
    places = value.new_full((batch.count, value.shape[1]), NO_PLACE, dtype=torch.int32)
    for sample, positions in enumerate(torch.split(value, batch.lengths)):
        if len(positions):
            largest[sample], places[sample] = positions.max(0)
    return Peaks(largest, places)
