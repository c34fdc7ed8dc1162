"""Do the recorded edges matter? Change a parent, run the operation again, and the result must change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from torcheer.capture.proof.bit_equality import equal_values, has_numbers, parts
from torcheer.capture.proof.parent_search import located
from torcheer.capture.proof.rerun import Run
from torcheer.capture.record.function_table import written_tensors
from torcheer.capture.record.recorder import Recorder, Row
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.tensor_trees import argument_leaves, argument_tensors

MANY = 16  # so many parents are looked at one by one; more of them together


def dead_edges(recorder: Recorder, node: int, run: Run) -> list[str]:
    """Parents that can be replaced by anything without changing the result: edges that should not be there.

    Of an argument that is written, `scatter_`'s target or a running mean, nothing may be left, so it need not show.
    """
    row = recorder.row(node)
    refs = row.refs
    if not refs or row.call.mark or _is_discrete(recorder, node):
        return []
    values = [recorder.exact(ref) for ref in refs]
    tensors = argument_tensors(row.args, row.kwargs or {})
    written = {id(tensor) for tensor in written_tensors(row.call, row.args, row.kwargs or {})}
    targets = {ref for ref, tensor in zip(refs, tensors, strict=True) if id(tensor) in written}
    found = dict(zip(refs, values, strict=True))
    suspects = [ref for ref, value in found.items() if ref not in targets and perturbable(value)]
    if not suspects:
        return []
    before = [recorder.exact(node << SLOT_BITS | slot) for slot in range(len(recorder.outputs(node)))]
    if len(suspects) > MANY:
        groups = _groups(row, set(suspects))
        shown = {refs[place] for group in groups for place in located(group, values, before, run, perturbed)}
        suspects = [ref for ref in suspects if ref not in shown]
    suspects = [ref for ref in suspects if not _shows(run, values, before, [other == ref for other in refs])]
    if not suspects or not _shows(run, values, before, [True] * len(refs)):
        return []  # constant whatever goes in: dropout with p=1, a threshold above everything
    return [f"{_name(recorder, ref)} into {row.call.name} (operation {node})" for ref in suspects]


def _groups(row: Row, suspects: set[int]) -> list[list[int]]:
    """The places of parents, by argument: of two lists, an element of the result may read one of each."""
    paths = [path for path, value in argument_leaves(row.args, row.kwargs) if isinstance(value, Tensor)]
    groups: dict[int | str, list[int]] = {}
    for place, (ref, path) in enumerate(zip(row.refs, paths, strict=True)):
        if ref in suspects:
            groups.setdefault(path[0], []).append(place)
    return list(groups.values())


def _shows(run: Run, values: list[Tensor], before: list[Tensor], places: list[bool]) -> bool:
    """Whether something else in these places changes the result: other numbers, with the rest as it was, or random.

    The random rest is for products with zero and masks that hide everything. Where no number shows, the form may:
    `expand_as` asks for a shape, `type_as` for a type, and of a target that `scatter` covers only its shape is left.
    """
    for seed, (size, parity) in enumerate(_ATTEMPTS):
        try:
            around = values if parity is None else [_scrambled(value, parity, seed) for value in values]
            usual = before if parity is None else run(list(around))
        except Exception:
            continue  # such numbers do not go together
        if _changes(run, around, usual, places, partial(perturbed, size=size, seed=seed)):
            return True
    return any(_changes(run, values, before, places, other) for other in _FORMS)


def _changes(
    run: Run, values: list[Tensor], before: list[Tensor], places: list[bool], other: Callable[[Tensor], Tensor]
) -> bool:
    pairs = zip(places, values, strict=True)
    swapped = [other(value) if here and perturbable(value) else value for here, value in pairs]
    try:
        after = run(swapped)
    except Exception:
        return True  # out of range, not positive definite, not of this shape: the operation certainly read it
    return len(after) != len(before) or not all(map(equal_values, before, after))


# How large the noise is, and what is around it: None what was; 0 or 1 noise, with every other place of the masks on;
# 2 nothing but zeros.
_ATTEMPTS: tuple[tuple[float, int | None], ...] = (
    (2.0, None), (0.0, None), (2.0, 0), (100.0, None), (2.0, 1), (1.0, None), (100.0, 0), (-100.0, 1), (2.0, 2)
)  # fmt: skip
_FORMS: tuple[Callable[[Tensor], Tensor], ...] = (
    torch.zeros_like,
    lambda value: value.unsqueeze(0),
    # Never a smaller type: a kernel that does not ask may read as many bytes as it is used to.
    lambda value: value.to(torch.complex128 if value.dtype is torch.float64 else torch.float64),
)


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
        and value.layout is torch.strided
        and not value.is_nested
        and has_numbers(value)
        and value.numel() > 0
        and parts(value) is None
    )


def _scrambled(value: Tensor, parity: int, seed: int) -> Tensor:
    """Noise for numbers, every other one for a mask, so that both sides of a choice show."""
    if perturbable(value):
        return torch.zeros_like(value) if parity == 2 else perturbed(value, 3.0, seed + 1)
    if value.dtype is torch.bool and value.layout is torch.strided and has_numbers(value) and parts(value) is None:
        return torch.arange(value.numel(), device=value.device).view(value.shape) % 2 == parity
    return value


_SEEDS = 64
_MAKERS: dict[float, Callable[[Tensor], Tensor]] = {0.0: torch.sigmoid, 1.0: torch.round}
_noise: list[Tensor] = []  # normal numbers, as many as the largest value had: one table, shared by all sizes


def perturbed(value: Tensor, size: float, seed: int = 0) -> Tensor:
    """Random numbers in the place of a value: normal ones of this size; of size 0 between 0 and 1, of size 1 whole."""
    normal = _normal(value.numel() + _SEEDS)[seed % _SEEDS :][: value.numel()].view(value.shape)
    noise = _MAKERS[size](normal) if size in _MAKERS else normal * size
    if 0 in value.stride() or value.element_size() == 1:
        return noise.to(value.dtype).to(value.device)
    if noise.dtype == value.dtype and noise.stride() == value.stride() and noise.device == value.device:
        return noise
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(noise)


def _normal(count: int) -> Tensor:
    table = next(iter(_noise), torch.empty(0))  # another thread may forget it meanwhile
    if table.numel() < count:
        _noise[:] = [table := torch.randn(count, generator=torch.Generator().manual_seed(0))]
    return table


def forget_noise() -> None:
    """Give back the table of noise: it is as large as the largest value of a history."""
    _noise.clear()
