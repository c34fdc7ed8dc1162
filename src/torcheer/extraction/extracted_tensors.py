"""An extraction in memory: `extract(…, to=None)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torcheer.extraction.batches import Batches, batch_ids
from torcheer.extraction.values.batch_values import LayerReader, evaluation_mode
from torcheer.extraction.values.value_rows import BatchValues, copy_to, record_events, tensor_list
from torcheer.extraction.writers.writer_threads import WriterThreads
from torcheer.terminal import ProgressCallback, human_shape, plural


class ExtractedTensors(dict[str, Any]):
    """Selected layers of every sample: a tensor over all samples, or a list of one for each where they differ.

    `ids`: the caller's ids of the samples, or their indices.
    """

    def __init__(self, layers: dict[str, Tensor | list[Tensor]], ids: list[Any]) -> None:
        super().__init__(layers)
        self.ids = ids

    def __repr__(self) -> str:
        shapes = [
            f"{name} {'of different shapes' if isinstance(value, list) else human_shape(value.shape[1:])}"
            for name, value in self.items()
        ]
        return f"<{plural(len(self.ids), 'sample')} in memory: {', '.join(shapes)}>"


def collect_tensors(
    reader: LayerReader,
    batches: Batches,
    first: BatchValues,
    sample_ids: Sequence[Any] | None,
    on_progress: ProgressCallback,
) -> ExtractedTensors:
    """Run every batch and keep its values on the CPU; `first` are those of the first one."""
    with torch.inference_mode(False):  # the caller's mode is not that of the thread that writes
        rooms = {name: _Room(first, name, batches.samples) for name in first.values}
    ids: list[Any] = []
    threads = WriterThreads(1)
    try:
        with evaluation_mode(reader.model, reader.device):
            for batch in batches.select(lambda number: True):
                values = first if batch.number == 0 else reader.read(batch)
                threads.put_batch(0, _keeper(rooms, values, len(ids)))
                own_ids = batch_ids(batches, batch, sample_ids)
                ids += range(len(ids), len(ids) + values.count) if own_ids is None else own_ids
                on_progress(values.count)
    finally:
        problem = threads.close()
    if problem is not None:
        raise problem
    with torch.inference_mode(False):
        return ExtractedTensors({name: room.result() for name, room in rooms.items()}, ids)


def _keeper(rooms: dict[str, _Room], values: BatchValues, start: int) -> Any:
    """Return the task that copies a batch, while the next one runs."""
    events = record_events(values.values)

    def keep() -> None:
        for name, room in rooms.items():
            room.keep(values, name, start, events)

    return keep


class _Room:
    """Memory for a layer: one tensor where shape and number of samples are known, otherwise the batches' own."""

    def __init__(self, first: BatchValues, name: str, samples: int | None) -> None:
        rows = first.rows(name)
        self._whole: Tensor | None = None
        self._parts: list[Tensor | list[Tensor]] = []
        if isinstance(rows, Tensor) and samples is not None:
            self._whole = torch.empty((samples, *rows.shape[1:]), dtype=rows.dtype)

    def keep(self, values: BatchValues, name: str, start: int, events: dict[torch.device, Any]) -> None:
        """Copy a batch whose first sample is `start`."""
        rows, whole = values.rows(name), self._whole
        if isinstance(rows, Tensor) and whole is not None:
            target = whole[start : start + len(rows)]
            if target.shape == rows.shape and whole.dtype == rows.dtype:
                copy_to(target, rows, events)
                return
        if whole is not None:  # a batch of another shape: from here on they are kept as they are
            self._whole, self._parts = None, [whole[:start].clone()] if start else []
        copies = [torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in tensor_list(rows)]
        for copy, tensor in zip(copies, tensor_list(rows)):
            copy_to(copy, tensor, events)
        self._parts.append(copies if isinstance(rows, list) else copies[0])

    def result(self) -> Tensor | list[Tensor]:
        """Return the layer of all samples."""
        if self._whole is not None:
            return self._whole
        parts, self._parts = self._parts, []
        shapes = {(tuple(row.shape), row.dtype) for part in parts for row in part}
        if len(shapes) == 1 and all(isinstance(part, Tensor) for part in parts):
            return torch.cat(parts)  # type: ignore[arg-type]
        if len(shapes) == 1:
            return torch.stack([row for part in parts for row in part])
        return [row for part in parts for row in part]
