"""Edge validation: perturb a parent, replay the operation, and the result must change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from torcheer.capture.proof.bit_equality import equal_values, has_numbers, parts
from torcheer.capture.proof.parent_search import locate_parents
from torcheer.capture.proof.rerun import Run, as_it_ran
from torcheer.capture.record.function_table import written_tensors
from torcheer.capture.record.recorder import OpRow, Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.tensor_trees import argument_leaves, argument_tensors

MANY = 16  # up to this many parents are tested one by one; more of them by group testing


def dead_edges(recorder: Recorder, node: int, run: Run) -> list[str]:
    """Return the wrong edges: parents whose values never change the result.

    Arguments that are written (`scatter_`'s target, a running mean) are not tested: they may be fully overwritten.
    """
    row, values, before = as_it_ran(recorder, node)
    refs = row.refs
    if not refs or row.call.mark or _is_discrete(before):
        return []
    if node in recorder.edit_functions:  # they may let nothing through: the operation itself is judged
        run = partial(run, is_edited=False)
        before = run(values)
    tensors = argument_tensors(row.args, row.kwargs or {})
    written = {id(tensor) for tensor in written_tensors(row.call, row.args, row.kwargs or {})}
    targets = {ref for ref, tensor in zip(refs, tensors, strict=True) if id(tensor) in written}
    value_of_ref = dict(zip(refs, values, strict=True))
    suspects = [ref for ref, value in value_of_ref.items() if ref not in targets and perturbable(value)]
    if not suspects:
        return []
    if len(suspects) > MANY:
        groups = _groups(row, set(suspects))
        proven = {refs[place] for group in groups for place in locate_parents(group, values, before, run, perturbed)}
        suspects = [ref for ref in suspects if ref not in proven]
    suspects = [ref for ref in suspects if not _affects_result(run, values, before, [other == ref for other in refs])]
    if not suspects or not _affects_result(run, values, before, [True] * len(refs)):
        return []  # constant for any input: dropout with p=1, a threshold above every value
    return [f"{_name(recorder, ref)} into {row.call.name} (operation {node})" for ref in suspects]


def _groups(row: OpRow, suspects: set[int]) -> list[list[int]]:
    """Group the positions of parents by argument.

    An element of the result may read one item of each of two lists.
    """
    paths = [path for path, value in argument_leaves(row.args, row.kwargs) if isinstance(value, Tensor)]
    groups: dict[int | str, list[int]] = {}
    for place, (ref, path) in enumerate(zip(row.refs, paths, strict=True)):
        if ref in suspects:
            groups.setdefault(path[0], []).append(place)
    return list(groups.values())


def _affects_result(run: Run, values: list[Tensor], before: list[Tensor], places: list[bool]) -> bool:
    """Whether other values in these positions change the result.

    The remaining inputs are as recorded, or random.

    Random remaining inputs are for products with zero and masks that hide everything. If no value changes the result,
    another form may: `expand_as` reads only a shape, `type_as` a type, and `scatter` may overwrite all but the shape.
    """
    for seed, (size, parity) in enumerate(_ATTEMPTS):
        try:
            inputs = values if parity is None else [_scramble(value, parity, seed) for value in values]
            baseline = before if parity is None else run(list(inputs))
        except Exception:
            continue  # the operation rejects such values together
        if _changes(run, inputs, baseline, places, partial(perturbed, size=size, seed=seed)):
            return True
    return any(_changes(run, values, before, places, form) for form in _FORMS)


def _changes(
    run: Run, values: list[Tensor], before: list[Tensor], places: list[bool], change: Callable[[Tensor], Tensor]
) -> bool:
    pairs = zip(places, values, strict=True)
    swapped = [change(value) if is_changed and perturbable(value) else value for is_changed, value in pairs]
    try:
        after = run(swapped)
    except Exception:
        return True  # out of range, not positive definite, wrong shape: the operation certainly read it
    return len(after) != len(before) or not all(map(equal_values, before, after))


# (size of the noise, remaining inputs): None as recorded; 0 or 1 noise, with every other element of masks on; 2 zeros.
_ATTEMPTS: tuple[tuple[float, int | None], ...] = (
    (2.0, None), (0.0, None), (2.0, 0), (100.0, None), (2.0, 1), (1.0, None), (100.0, 0), (-100.0, 1), (2.0, 2)
)  # fmt: skip
_FORMS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.zeros_like,
    lambda value: value.unsqueeze(0),
    # Never a smaller type: a kernel that does not check the type may read past the end.
    lambda value: value.to(torch.complex128 if value.dtype is torch.float64 else torch.float64),
)


def _is_discrete(outputs: list[Tensor]) -> bool:
    """Whether the outputs may stay equal by chance: comparisons, indices, single numbers."""
    return all(not perturbable(tensor) or tensor.numel() < 2 for tensor in outputs)


def _name(recorder: Recorder, ref: int) -> str:
    if ref < 0:
        return "a parameter or buffer"
    return f"{recorder.row(ref >> SLOT_BITS).call.name} (operation {ref >> SLOT_BITS})"


def perturbable(value: Tensor) -> bool:
    """Whether a random value of the same form can be made."""
    return (
        value.is_floating_point()
        and value.layout is torch.strided
        and not value.is_nested
        and has_numbers(value)
        and value.numel() > 0
        and parts(value) is None
    )


def _scramble(value: Tensor, parity: int, seed: int) -> Tensor:
    """Return noise for floats, alternating elements for a mask: tests both branches of a choice."""
    if perturbable(value):
        return torch.zeros_like(value) if parity == 2 else perturbed(value, 3.0, seed + 1)
    if value.dtype is torch.bool and value.layout is torch.strided and has_numbers(value) and parts(value) is None:
        return torch.arange(value.numel(), device=value.device).view(value.shape) % 2 == parity
    return value


_SEEDS = 64
_MAKERS: dict[float, Callable[[Tensor], Tensor]] = {0.0: torch.sigmoid, 1.0: torch.round}
_noise: list[Tensor] = []  # one table of normal numbers, as long as the largest value, shared by all sizes


def perturbed(value: Tensor, size: float, seed: int = 0) -> Tensor:
    """Return noise with a value's shape and dtype.

    It is normal with standard deviation `size`; for size 0 between 0 and 1, for size 1 integers.
    """
    normal = _normal(value.numel() + _SEEDS)[seed % _SEEDS :][: value.numel()].view(value.shape)
    noise = _MAKERS[size](normal) if size in _MAKERS else normal * size
    if 0 in value.stride() or value.element_size() == 1:
        return noise.to(value.dtype).to(value.device)
    if noise.dtype == value.dtype and noise.stride() == value.stride() and noise.device == value.device:
        return noise
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(noise)


def _normal(count: int) -> Tensor:
    table = next(iter(_noise), torch.empty(0))  # another thread may clear it meanwhile
    if table.numel() < count:
        _noise[:] = [table := torch.randn(count, generator=torch.Generator().manual_seed(0))]
    return table


def forget_noise() -> None:
    """Free the noise table: it is as large as the largest value of a history."""
    _noise.clear()
