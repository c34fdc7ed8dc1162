"""Triton's programs of `fused_kernels`: imported only where triton is."""

# mypy: ignore-errors

import triton
import triton.language as tl

from torcheer.vocabulary.dtypes import FLOATS

KINDS = {row.name: getattr(tl, row.name) for row in FLOATS.values() if row.has_arithmetic and row.bytes <= 4}


@triton.jit
def sum_up(table, sums, samples, KIND: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """Sum up one part of a tensor's numbers and copy some of them, or check a part of all of them for being finite."""
    entry = table + tl.program_id(0) * 9
    part = tl.program_id(1)
    source = tl.load(entry).to(tl.pointer_type(KIND))
    row = sums + tl.load(entry + 8) * (PARTS * 9)
    if part < PARTS:
        _sum_part(entry, part, source, row + part * 9, samples, KIND, BLOCK)
    else:
        _check_part(entry, part - PARTS, tl.num_programs(1) - PARTS, source, row, BLOCK)


@triton.jit
def _sum_part(entry, part, source, out, samples, KIND: tl.constexpr, BLOCK: tl.constexpr):
    minus_address = tl.load(entry + 1)
    minus = minus_address.to(tl.pointer_type(KIND))
    has_minus = minus_address != 0
    count, stride = tl.load(entry + 2), tl.load(entry + 3)
    index = (part * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = index < count
    number = tl.load(source + index * stride, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(minus + index, mask=inside & has_minus, other=0.0).to(tl.float32)
    number = (number - before).to(KIND).to(tl.float32)  # rounded as torch rounds a difference
    is_bad = (number - number) != 0.0  # infinity minus infinity is NaN, which differs from zero
    finite = tl.where(is_bad, 0.0, number)
    is_good = inside & (is_bad == 0)
    good = tl.sum(is_good.to(tl.int32))
    nans = tl.sum(((number != number) & inside).to(tl.int32))
    some = tl.maximum(good, 1).to(tl.float64)
    wide = finite.to(tl.float64)
    mean = tl.sum(wide) / some
    apart = tl.where(is_good, wide - mean, 0.0)
    tl.store(out, tl.sum(inside.to(tl.int32)).to(tl.float64))  # a row of `array_statistics.SUMMED`
    tl.store(out + 1, tl.sum(((finite == 0.0) & is_good).to(tl.int32)).to(tl.float64))
    tl.store(out + 2, tl.min(tl.where(is_good, number, float("inf"))).to(tl.float64))
    tl.store(out + 3, tl.max(tl.where(is_good, number, float("-inf"))).to(tl.float64))
    tl.store(out + 4, mean)
    tl.store(out + 5, tl.sqrt(tl.sum(apart * apart) / some))
    tl.store(out + 6, nans.to(tl.float64))
    tl.store(out + 7, (tl.sum((is_bad & inside).to(tl.int32)) - nans).to(tl.float64))
    sampled, kept, place = tl.load(entry + 4), tl.load(entry + 5), tl.load(entry + 6)
    is_kept = index < kept
    number = tl.load(source + index * sampled * stride, mask=is_kept, other=0.0).to(tl.float32)
    before = tl.load(minus + index * sampled, mask=is_kept & has_minus, other=0.0).to(tl.float32)
    tl.store(samples + place + index, (number - before).to(KIND), mask=is_kept)


@triton.jit
def _check_part(entry, part, parts, source, row, BLOCK: tl.constexpr):
    """Write into a row's last number, which was zero, where any number is not finite."""
    count = tl.load(entry + 7)
    doubt = tl.zeros([BLOCK], tl.float32)
    for begin in range(part * BLOCK, count, parts * BLOCK):
        index = (begin + tl.arange(0, BLOCK)).to(tl.int64)
        number = tl.load(source + index, mask=index < count, other=0.0).to(tl.float32)
        doubt += number - number
    total = tl.sum(doubt)
    if total != total:
        tl.store(row + 8, 1.0)
