"""Group testing of many parents: which affect a result, in O(log n) runs instead of n.

Every parent has a code: the runs in which it is changed. All codes have as many ones as zeros, so that an element that
reads several parents changes too often to be taken for one that reads a single one. An element that changed in exactly
the runs of one code reads that parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from torcheer.capture.proof.bit_equality import has_numbers, parts
from torcheer.capture.proof.rerun import Run

Perturbed = Callable[[Tensor, float, int], Tensor]


def locate_parents(
    places: list[int], values: list[Tensor], before: list[Tensor], run: Run, perturbed: Perturbed
) -> Iterator[int]:
    """Yield positions of values that are certainly read: each changes an element alone."""
    bits = max(len(places) - 1, 1).bit_length()
    codes = {number | (~number & ((1 << bits) - 1)) << bits: place for number, place in enumerate(places)}
    changes = [torch.zeros(tensor.shape, dtype=torch.int64) if _is_plain(tensor) else None for tensor in before]
    for bit in range(2 * bits):
        inputs = list(values)
        for code, place in codes.items():
            if code >> bit & 1:
                inputs[place] = perturbed(values[place], 2.0, bit)
        try:
            after = run(inputs)
        except Exception:
            return  # the operation rejects these values together
        for change, old, new in zip(changes, before, after, strict=True):
            if change is not None:
                change |= _differs(old, new).to("cpu", torch.int64) << bit
    for change in changes:
        for code in change.unique().tolist() if change is not None else ():
            if code in codes:
                yield codes.pop(code)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested and has_numbers(tensor) and parts(tensor) is None


def _differs(old: Tensor, new: Tensor) -> Tensor:
    """Return a mask of where two values differ; NaN equals NaN."""
    if old.shape != new.shape or old.dtype != new.dtype:
        return torch.ones(old.shape, dtype=torch.bool, device=old.device)
    return (old != new) & ~((old != old) & (new != new))
