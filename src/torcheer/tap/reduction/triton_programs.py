"""Triton's programs of `fused_kernels`: imported only where triton is."""

# mypy: ignore-errors

import triton
import triton.language as tl

KINDS = {"float32": tl.float32, "bfloat16": tl.bfloat16, "float16": tl.float16}


@triton.jit
def sum_up(table, sums, samples, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Sum up one tensor: the sums of `reduction_batch.reduce`, the last of which is left to `check_finite`."""
    entry = table + tl.program_id(0) * 9
    source = tl.load(entry).to(tl.pointer_type(KIND))
    minus_address = tl.load(entry + 1)
    minus = minus_address.to(tl.pointer_type(KIND))
    has_minus = minus_address != 0
    count, stride = tl.load(entry + 2), tl.load(entry + 3)
    total = tl.zeros([BLOCK], tl.float64)
    squares = tl.zeros([BLOCK], tl.float64)
    nonzero = tl.zeros([BLOCK], tl.int32)
    nans = tl.zeros([BLOCK], tl.int32)
    nonfinite = tl.zeros([BLOCK], tl.int32)
    least = tl.full([BLOCK], float("inf"), tl.float32)
    greatest = tl.full([BLOCK], float("-inf"), tl.float32)
    for begin in range(0, count, BLOCK):
        index = (begin + tl.arange(0, BLOCK)).to(tl.int64)
        inside = index < count
        number = tl.load(source + index * stride, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(minus + index, mask=inside & has_minus, other=0.0).to(tl.float32)
        number = (number - before).to(KIND).to(tl.float32)  # rounded as torch rounds a difference
        is_nan = number != number
        is_bad = (number - number) != 0.0  # infinity minus infinity is NaN, which differs from zero
        finite = tl.where(is_bad, 0.0, number)
        exact = finite.to(tl.float64)
        total += exact
        squares += exact * exact
        nonzero += (finite != 0.0).to(tl.int32)
        nans += (is_nan & inside).to(tl.int32)
        nonfinite += (is_bad & inside).to(tl.int32)
        is_good = inside & (is_bad == 0)
        least = tl.minimum(least, tl.where(is_good, number, float("inf")))
        greatest = tl.maximum(greatest, tl.where(is_good, number, float("-inf")))
    out = sums + tl.load(entry + 8) * 8
    tl.store(out, tl.sum(total))
    tl.store(out + 1, tl.sqrt(tl.sum(squares)))
    tl.store(out + 2, tl.sum(nonzero).to(tl.float64))
    tl.store(out + 3, tl.sum(nans).to(tl.float64))
    tl.store(out + 4, tl.min(least).to(tl.float64))
    tl.store(out + 5, tl.max(greatest).to(tl.float64))
    bad = tl.sum(nonfinite)
    tl.store(out + 6, bad.to(tl.float64))
    tl.store(out + 7, tl.where(bad > 0, float("inf"), 0.0).to(tl.float64))
    sampled, kept, place = tl.load(entry + 4), tl.load(entry + 5), tl.load(entry + 6)
    for begin in range(0, kept, BLOCK):
        index = (begin + tl.arange(0, BLOCK)).to(tl.int64)
        inside = index < kept
        number = tl.load(source + index * sampled * stride, mask=inside, other=0.0).to(tl.float32)
        before = tl.load(minus + index * sampled, mask=inside & has_minus, other=0.0).to(tl.float32)
        tl.store(samples + place + index, (number - before).to(KIND), mask=inside)


@triton.jit
def check_finite(table, sums, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Set a tensor's last sum to infinity where any of all its numbers is not finite."""
    part = tl.program_id(1)
    entry = table + tl.program_id(0) * 9
    source = tl.load(entry).to(tl.pointer_type(KIND))
    count = tl.load(entry + 7)
    doubt = tl.zeros([BLOCK], tl.float32)
    for begin in range(part * BLOCK, count, tl.num_programs(1) * BLOCK):
        index = (begin + tl.arange(0, BLOCK)).to(tl.int64)
        number = tl.load(source + index, mask=index < count, other=0.0).to(tl.float32)
        doubt += number - number
    total = tl.sum(doubt)
    if total != total:
        tl.store(sums + tl.load(entry + 8) * 8 + 7, float("inf"))
