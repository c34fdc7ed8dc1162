"""Size and duration of an extraction, estimated from its first batches."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice

from torcheer.extraction.batches import Batch, Batches
from torcheer.extraction.values.batch_values import LayerReader
from torcheer.extraction.values.value_rows import BatchValues
from torcheer.terminal import human_bytes, human_secs, human_shape
from torcheer.terminal.streams import encodable

TRIAL_BATCHES = 4  # batches that a dry run measures


@dataclass(frozen=True)
class Estimate:
    """Estimated size and duration of an extraction."""

    samples: int | None  # None if unknown before the end
    bytes_per_sample: float
    secs_per_sample: float
    layers: dict[str, tuple[tuple[int, ...] | None, str]]  # shape and type of one sample; no shape where they differ

    @property
    def bytes(self) -> int | None:
        return None if self.samples is None else round(self.samples * self.bytes_per_sample)

    @property
    def secs(self) -> float | None:
        return None if self.samples is None else self.samples * self.secs_per_sample

    def __str__(self) -> str:
        lines = [
            f"  {name}: {'of different shapes' if shape is None else human_shape(shape)} {kind}"
            for name, (shape, kind) in self.layers.items()
        ]
        if self.bytes is None or self.secs is None:
            secs = human_secs(self.secs_per_sample)
            total = f"{human_bytes(self.bytes_per_sample)} and {secs} for each sample"
        else:
            total = f"{self.samples:,} samples: about {human_bytes(self.bytes)} in about {human_secs(self.secs)}"
        return encodable("\n".join([total, *lines]))


def measure(reader: LayerReader, batches: Batches, first: Batch, values: BatchValues) -> Estimate:
    """Estimate size and duration from a few batches; `values` are those of the first."""
    reader.read(first)  # warm-up: the trial looked for the layers and was slower
    started, samples = time.perf_counter(), 0
    for batch in islice(batches.select(lambda number: number < TRIAL_BATCHES), TRIAL_BATCHES):
        samples += reader.read(batch).count
    secs = (time.perf_counter() - started) / max(1, samples)
    layers: dict[str, tuple[tuple[int, ...] | None, str]] = {}
    for name in values.values:
        rows = values.rows(name)
        differ = isinstance(rows, list)
        layers[name] = (None if differ else tuple(rows.shape[1:]), str(rows[0].dtype if differ else rows.dtype))  # type: ignore[union-attr]
    return Estimate(batches.samples, values.bytes / max(1, values.count), secs, layers)
