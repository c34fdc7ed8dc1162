"""Samples made a batch: as torch's `default_collate`, and for a GPU without OpenMP, in pinned memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from torcheer.errors import TorcheerError
from torcheer.vocabulary.dtypes import DTYPES, torch_types

_LARGE_BYTES = 1 << 20  # from here on torch stacks by several threads
_NUMPY_TYPES = torch_types(row for row in DTYPES.values() if row.in_numpy and row.kind != "complex")


class Collate:
    """Make samples a batch.

    `for_gpu`: large tensors go one by one into pinned memory, which the device fetches by itself. Torch's threads would
    wait for each other after every sample, and beside threads that write to the disk each wait is a time slice long.
    """

    def __init__(self, *, for_gpu: bool = False) -> None:
        self._for_gpu, self._pins = for_gpu, for_gpu and torch.cuda.is_available()

    def __call__(self, items: list[Any]) -> Any:
        """Return the batch of some samples; raise where they make none."""
        try:
            return self._collate(items)
        except TypeError as error:
            raise _CollateError(
                f"samples of type {type(items[0]).__name__} cannot be made a batch ({str(error).split(';')[0]}); give "
                f"a transform that makes tensors of them, or a DataLoader with its own collate_fn"
            ) from None
        except RuntimeError as error:
            raise _CollateError(
                f"samples cannot be made a batch: {error}. Give a transform that makes them alike, batch_size=1, or a "
                f"DataLoader with its own collate_fn"
            ) from None

    def pairs(self, items: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Return the batches of samples as given and as transformed."""
        return collate_given([given for given, _ in items]), self([made for _, made in items])

    def _collate(self, items: Sequence[Any]) -> Any:
        if self._for_gpu and _are_large_tensors(items):
            return self._stack(items)
        if self._for_gpu and all(type(item) is tuple and len(item) == len(items[0]) for item in items):
            return [self._collate(part) for part in zip(*items)]  # a list, as torch makes of tuples
        return default_collate(items)  # type: ignore[arg-type]

    def _stack(self, tensors: Sequence[Tensor]) -> Tensor:
        batch = torch.empty((len(tensors), *tensors[0].shape), dtype=tensors[0].dtype, pin_memory=self._pins)
        rows = batch.numpy()
        for place, tensor in enumerate(tensors):
            rows[place] = tensor.numpy()
        return batch


def collate_given(items: list[Any]) -> Any:
    """Return samples as one batch, or as they are where they make none: images of any size."""
    try:
        return default_collate(items)
    except (TypeError, RuntimeError):
        return items


def _are_large_tensors(items: Sequence[Any]) -> bool:
    """Return whether all are plain tensors of one shape, in memory that numpy can read, and many bytes together."""
    first = items[0]
    if type(first) is not Tensor or first.dtype not in _NUMPY_TYPES or first.nbytes * len(items) < _LARGE_BYTES:
        return False
    return all(
        type(item) is Tensor
        and item.is_cpu
        and item.dtype is first.dtype
        and item.shape == first.shape
        and item.layout is torch.strided
        and not (item.requires_grad or item.is_neg())
        for item in items
    )


class _CollateError(TorcheerError, TypeError):
    """Raised for samples that cannot be collated into a batch."""
