"""Do the recorded edges matter? Change a parent, run the operation again, and the result must change."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torcheer.capture.calls import written_tensors
from torcheer.capture.recorder import Recorder, Row
from torcheer.capture.refs import SLOT_BITS
from torcheer.capture.rerun import equal_values, run_again
from torcheer.capture.trees import argument_tensors

# Operations that ask an argument for its shape or type, or overwrite it: its values do not show.
INDIFFERENT = frozenset(
    """zeros_like ones_like full_like rand_like randn_like randint_like empty_like new_zeros new_ones new_full
    new_tensor new_empty zero_ fill_ normal_ uniform_ bernoulli_ exponential_ random_ log_normal_ geometric_ cauchy_
    copy_ set_ set_data __setitem__ expand_as view_as reshape_as type_as resize_as_ to result_type
    isnan isinf isfinite isreal nonzero fractional_max_pool2d fractional_max_pool3d""".split()
)


def dead_edges(recorder: Recorder, node: int) -> list[str]:
    """Parents that can be replaced by anything without changing the result: edges that should not be there.

    Of an argument that is written, `scatter_`'s target or a running mean, nothing may be left, so it need not show.
    """
    row = recorder.row(node)
    name, refs = row.call.name, row.refs
    if not refs or name in INDIFFERENT or row.call.mark or _is_discrete(recorder, node):
        return []
    values = [recorder.exact(ref) for ref in refs]
    tensors = argument_tensors(row.args, row.kwargs or {})
    written = {id(tensor) for tensor in written_tensors(row.call, row.args, row.kwargs or {})}
    targets = {ref for ref, tensor in zip(refs, tensors, strict=True) if id(tensor) in written}  # maybe never read
    suspects: list[int] = []
    for ref in dict.fromkeys(refs):
        places = [other == ref for other in refs]
        if ref not in targets and perturbable(recorder.exact(ref)) and not _shows(recorder, node, row, values, places):
            suspects.append(ref)
    if suspects and _is_degenerate(name, tensors, row.args):
        return []
    if suspects and not _shows(recorder, node, row, values, [True] * len(refs)):
        return []  # constant whatever goes in: dropout with p=1, a threshold above everything
    return [f"{_name(recorder, ref)} into {name} (operation {node})" for ref in suspects]


def _is_degenerate(name: str, tensors: list[Tensor], args: tuple[Any, ...]) -> bool:
    """One number normalised by itself, attention to a single key: the input cannot show, whatever it is."""
    if name in ("layer_norm", "rms_norm"):
        return bool(math.prod(args[1]) == 1)
    return name == "scaled_dot_product_attention" and tensors[1].shape[-2] == 1


def _shows(recorder: Recorder, node: int, row: Row, values: list[Tensor], places: list[bool]) -> bool:
    """Whether other values in these places change the result, with the rest as it was, or random.

    The random rest is for products with zero and masks that hide everything.
    """
    before = [recorder.exact(node << SLOT_BITS | slot) for slot in range(len(recorder.outputs(node)))]
    around = values
    try:
        for size, scramble in ((2.0, None), (0.0, None), (2.0, 0), (100.0, None), (2.0, 1)):
            if scramble is not None:
                around = [_scrambled(value, scramble) for value in values]
                before = run_again(recorder, node, row, list(around))
            pairs = zip(places, around, strict=True)
            swapped = [perturbed(value, size) if here and perturbable(value) else value for here, value in pairs]
            after = run_again(recorder, node, row, swapped)
            if any(not equal_values(one, two) for one, two in zip(before, after, strict=True)):
                return True
    except Exception:
        return True  # out of range, not positive definite: the operation certainly read it
    return False


def _is_discrete(recorder: Recorder, node: int) -> bool:
    """Comparisons, choices, single numbers and empty results may stay the same by chance."""
    outputs = recorder.outputs(node)
    return all(not perturbable(tensor) or tensor.numel() < 2 for tensor in outputs)


def _name(recorder: Recorder, ref: int) -> str:
    if ref < 0:
        return "a parameter or buffer"
    return f"{recorder.row(ref >> SLOT_BITS).call.name} (operation {ref >> SLOT_BITS})"


def perturbable(value: Tensor) -> bool:
    """Whether another value of the same kind can be made."""
    return (
        value.is_floating_point()
        and value.numel() > 0
        and value.device.type != "meta"
        and value.layout is torch.strided
        and not value.is_nested
    )


def _scrambled(value: Tensor, parity: int) -> Tensor:
    """Noise for numbers, every other one for a mask, so that both sides of a choice show."""
    if perturbable(value):
        return perturbed(value, 3.0)
    if value.dtype is torch.bool and value.layout is torch.strided and value.device.type != "meta":
        return torch.arange(value.numel(), device=value.device).view(value.shape) % 2 == parity
    return value


_noise = {"normal": torch.empty(0), "uniform": torch.empty(0)}


def perturbed(value: Tensor, size: float) -> Tensor:
    """Random numbers in the place of a value: normal ones of this size, or between 0 and 1 where it is 0."""
    kind, count = ("normal" if size else "uniform"), value.numel()
    if _noise[kind].numel() < count:
        generator = torch.Generator().manual_seed(0)
        _noise[kind] = (torch.randn if size else torch.rand)(count, generator=generator)
    noise = _noise[kind][:count].view(value.shape) * (size or 1.0)
    if 0 in value.stride() or value.element_size() == 1:
        return noise.to(value.dtype).to(value.device)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(noise)
