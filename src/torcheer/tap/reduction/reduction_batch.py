"""Values of one device, reduced together to the sums of their statistics, without waiting for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
_WIDE = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_UNFIT = frozenset({*_WIDE, torch.float64})  # a row of float32 would round them
_REDUCED = 8  # numbers that `reduce` returns
WIDTH, _ROWS = 1 << 16, 64  # of a batch: numbers per value, values
SAMPLE = 1 << 12  # numbers per value that are fetched, for its histogram, its percentiles and the rules


def row_bytes(tensor: Tensor) -> int:
    """How many bytes of a tensor fit a row of a batch."""
    return WIDTH * tensor.element_size()


def reduce(tensor: Tensor, source: Tensor | None = None, by_row: bool = False) -> Tensor:
    """Sum up a value, as one small tensor on the same device, without synchronizing: `summed_rows` reads it.

    As few operations as possible: on a GPU each costs its launch, whatever the size. Where `tensor` is a sample,
    `source` is the full tensor, and only checked for being finite.
    """
    numbers = _as_float(tensor)
    if not numbers.numel():
        return torch.zeros(_REDUCED, dtype=torch.float64, device=numbers.device)
    dims, greatest = (1,) if by_row else tuple(range(numbers.dim())), torch.finfo(numbers.dtype).max
    nonfinite = _norm(numbers - numbers, 0, dims)  # infinity minus infinity is NaN, which counts as nonzero
    finite = torch.nan_to_num(numbers, 0.0, 0.0, 0.0)
    nonzero, scaled, unit = _norm(finite, 0, dims), numbers, None
    if numbers.dtype == torch.float64:
        unit = _unit(finite)
        finite, scaled = finite / unit, numbers / unit
    count = (math.prod(numbers.shape[dim] for dim in dims) - nonfinite).clamp_min(1.0)
    mean = finite.sum(dims, dtype=torch.float64) / count
    centre = mean.to(numbers.dtype)
    from_mean = torch.nan_to_num(scaled - (centre[:, None] if by_row else centre), 0.0, 0.0, 0.0)
    rest = from_mean.sum(dims, dtype=torch.float64) / count  # the mean was rounded
    std = (_norm(from_mean, 2, dims).square() / count - rest.square()).clamp_min(0.0).sqrt()
    if unit is not None:
        mean, std = (mean + rest) * unit, std * unit
    return torch.stack([
        nonzero,
        torch.nan_to_num(numbers, greatest, greatest, greatest).amin(dims).double(),
        torch.nan_to_num(numbers, -greatest, -greatest, -greatest).amax(dims).double(),
        mean,
        std,
        (numbers != numbers).sum(dims, dtype=torch.float64),
        nonfinite,
        nonfinite if source is None else largest(source),
    ], -1)  # fmt: skip


def summed_rows(reduced: Tensor, counts: Sequence[int], width: int | None = None) -> Array:
    """Make rows of SUMMED of what `reduce` has computed of values of so many numbers, once it is on the host.

    `width`: each was that many numbers; those behind its count were NaN.
    """
    nonzero, minimum, maximum, mean, std, nans, nonfinite, _ = reduced.numpy().T
    numbers = np.array(counts, np.float64)
    unused = 0.0 if width is None else width - numbers
    finite = numbers - (nonfinite - unused)
    missing = np.where(finite > 0, 0.0, np.nan)
    mean = np.minimum(np.maximum(mean, minimum), maximum)  # rounding stays within the range
    std = np.where(minimum < maximum, std, 0.0)
    measured = [number + missing for number in (minimum, maximum, mean, std)]
    return np.stack([numbers, finite - nonzero, *measured, nans - unused, nonfinite - nans], -1)


def _unit(finite: Tensor) -> Tensor:
    """What to divide doubles by so that their squares neither overflow nor vanish: 1, or a power of two."""
    most = finite.abs().amax()
    is_safe = (most == 0) | (most > 1e-100) & (most < 1e100)
    return torch.where(is_safe, 1.0, torch.ldexp(torch.ones_like(most), torch.frexp(most)[1] - 1))


def _norm(numbers: Tensor, order: int, dims: tuple[int, ...]) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(numbers, order, dims or None, dtype=torch.float64)
    return norm


def largest(tensor: Tensor) -> Tensor:
    """The largest magnitude, in one pass without a copy; it is finite where all numbers are."""
    numbers = tensor.detach()
    if not (numbers.is_floating_point() or numbers.is_complex()):
        return torch.zeros((), dtype=torch.float64, device=numbers.device)
    if numbers.element_size() == 1:
        numbers = numbers.float()  # torch has no norm for eight-bit types
    magnitude: Tensor = torch.linalg.vector_norm(numbers, math.inf)
    return magnitude.double()


def _as_float(tensor: Tensor) -> Tensor:
    """The numbers as the child would convert them: float32 where that is exact, float64 elsewhere."""
    numbers = tensor.detach()
    if numbers.is_complex():
        numbers = numbers.to(torch.complex128).abs()  # no float32 holds some magnitudes of two of them
    if numbers.dtype in (torch.float32, torch.float64):
        return numbers
    return numbers.to(torch.float64 if numbers.dtype in _WIDE else torch.float32)


@dataclass(frozen=True, slots=True)
class ReducedRow:
    """A value in a batch."""

    header: dict[str, Any]
    count: int  # of its numbers
    stride: int  # of the sample that is fetched; 1: all of its numbers

    @property
    def is_fetched_apart(self) -> bool:
        """Whether all of its numbers are fetched, and they are more than a sample holds."""
        return self.stride == 1 and self.count > SAMPLE


class ReductionBatch:
    """Many values of one device and type, one per row, reduced together.

    A GPU operation costs its launch, and reducing one value takes fourteen of them.
    """

    def __init__(self, device: torch.device, kind: torch.dtype) -> None:
        self.device, self.kind = device, kind
        self._stream, self._raw = stream_of(device), raw_stream(device)
        self._numbers = torch.full((_ROWS, WIDTH), math.nan, dtype=torch.float32, device=device)
        self._largest = torch.zeros(_ROWS, dtype=torch.float32, device=device)
        self.rows: list[ReducedRow] = []

    @staticmethod
    def fits(value: Tensor) -> bool:
        """Whether a value fits into a row without loss of precision."""
        return value.numel() <= WIDTH and value.dtype not in _UNFIT and not value.is_complex()

    @property
    def free_rows(self) -> int:
        """How many more values it has room for."""
        return _ROWS - len(self.rows)

    def _target(self, row: int, count: int) -> Tensor:
        return torch.as_strided(self._numbers, (count,), (1,), row * WIDTH)  # a third of the cost of two slices

    def add(self, value: Tensor, source: Tensor | None, header: dict[str, Any], fetch_all: bool = False) -> None:
        """Copy a value; of a sample, check its `source` for being finite. `fetch_all`: fetch the value in full."""
        row, count = len(self.rows), value.numel()
        target = self._target(row, count)
        (target if value.dim() == 1 else target.view(value.shape)).copy_(value)
        if source is not None and source.is_floating_point():
            numbers = source.float() if source.element_size() == 1 else source
            place = torch.as_strided(self._largest, (), (), row)
            torch.linalg.vector_norm(numbers, math.inf, dtype=torch.float32, out=place)
        self._append(header, count, fetch_all)

    def add_together(self, values: Sequence[Tensor], sources: Sequence[Tensor], headers: Sequence[Any]) -> None:
        """Copy flat values of one floating-point type, with few calls; check their sources for being finite."""
        row = len(self.rows)
        targets = [self._target(row + number, value.numel()) for number, value in enumerate(values)]
        torch._foreach_copy_(targets, list(values))
        magnitudes = torch.stack(torch._foreach_norm(list(sources), math.inf))
        self._largest[row : row + len(values)].copy_(magnitudes)
        for value, header in zip(values, headers):
            self._append(header, value.numel(), False)

    def _append(self, header: dict[str, Any], count: int, fetch_all: bool) -> None:
        stride = 1 if fetch_all else sample_stride(count, math.prod(header["whole"]))
        self.rows.append(ReducedRow(header, count, stride))

    def sums(self) -> Tensor:
        """The result of `reduce`, one row per value; the unused end of a row counts as NaN."""
        used = self._numbers[: len(self.rows)]
        return torch.cat([reduce(used, by_row=True)[:, :-1], self._largest[: len(self.rows), None].double()], 1)

    def sample(self) -> Tensor:
        """Every n-th number of each value, in the values' type; a row is undefined behind its value's last number."""
        strides = torch.tensor([row.stride for row in self.rows])
        if self.device.type == "cuda":  # a copy from pageable memory would synchronize
            strides = strides.pin_memory().to(self.device, non_blocking=True)
        indices = torch.arange(SAMPLE, device=self.device) * strides[:, None]
        sample = self._numbers[: len(self.rows)].gather(1, indices.clamp_(max=WIDTH - 1))
        return sample.to(self.kind)

    def full_values(self) -> list[Tensor]:
        """The values that are fetched in full, not as a sample."""
        return [
            self._target(number, row.count).to(self.kind)
            for number, row in enumerate(self.rows)
            if row.is_fetched_apart
        ]

    def join_stream(self) -> None:
        """Let the current stream use this memory: after the work queued so far, before the allocator may reuse it."""
        if raw_stream(self.device) != self._raw:
            stream = stream_of(self.device)
            stream.wait_stream(self._stream)
            self._numbers.record_stream(stream)
            self._largest.record_stream(stream)


@cache
def sample_stride(count: int, source_count: int) -> int:
    """A stride that takes at most `SAMPLE` of `count` numbers, and some of each column of the source."""
    stride = -(-count // SAMPLE) or 1
    while stride > 1 and math.gcd(stride, source_count) > 1:
        stride += 1
    return stride


def stream_of(device: torch.device) -> Any:
    """The current stream; None for a device without streams."""
    cuda: Any = torch.cuda  # it is not all annotated
    return cuda.current_stream(device) if device.type == "cuda" else None


def raw_stream(device: torch.device) -> int:
    """The current stream as a number, at a tenth of the cost."""
    return torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else 0
