"""`gradcheck`: our gradients beside torch's own and beside central differences."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.backward.derivatives import grad
from torcheer.autograd.tape.autograd_methods import as_list
from torcheer.autograd.tape.nodes import FLOATS, is_traced
from torcheer.autograd.tape.tape import Tape
from torcheer.errors import BadArgument


@dataclass(frozen=True, slots=True)
class Checked:
    """One input's gradient, three ways, at the element where they differ most."""

    name: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    ours: float
    torch: float
    differences: float
    worst: float  # the largest distance between any two of them, over 1 + their size
    passed: bool


class Check(list[Checked]):
    """A row per input; true if all agree."""

    def __bool__(self) -> bool:
        return all(row.passed for row in self)

    def __str__(self) -> str:
        head = f"{'input':<10}{'shape':<16}{'worst at':<14}{'ours':>14}{'torch':>14}{'differences':>14}{'apart':>11}"
        rows = [
            f"{row.name:<10}{row.shape!s:<16}{row.index!s:<14}{row.ours:>14.6g}{row.torch:>14.6g}"
            f"{row.differences:>14.6g}{row.worst:>11.1e}  {'ok' if row.passed else 'WRONG'}"
            for row in self
        ]
        return "\n".join([head, *rows])


def gradcheck(
    function: Callable[..., Tensor], inputs: Any, *, step: float = 1e-6, tolerance: float = 1e-5, show: bool = True
) -> Check:
    """Compare our gradients with torch's and with central differences, in double precision, and print the worst.

    >>> bool(gradcheck(lambda x: x.tanh().sum(), torch.randn(3), show=False))
    True
    """
    if isinstance(function, torch.nn.Module):
        function = copy.deepcopy(function).double()
    points = [one.detach().double() if one.dtype in FLOATS else one for one in as_list(inputs)]
    asked = [place for place, one in enumerate(points) if one.dtype in FLOATS]
    if not asked:
        raise BadArgument("gradcheck: none of the inputs is a float tensor, so there is no gradient to check")
    weights = _weights(function, points)
    ours, theirs = _ours(function, points, asked, weights), _torchs(function, points, asked, weights)
    check = Check()
    for place, mine, other in zip(asked, ours, theirs):
        check.append(
            _compare(f"input {place}", mine, other, _measured(function, points, place, weights, step), tolerance)
        )
    if show:
        print(check)
    return check


def _weights(function: Any, points: list[Tensor]) -> Tensor:
    """How much each result counts, so that one number is differentiated: random, so that nothing cancels."""
    with torch.no_grad():
        result = function(*points)
    if not isinstance(result, Tensor):
        raise BadArgument(f"gradcheck: the function should return one tensor, it returned {type(result).__name__}")
    draw = torch.Generator().manual_seed(0)
    return torch.rand(result.shape, generator=draw, dtype=torch.float64).add(0.5).to(result.device)


def _leaves(points: list[Tensor]) -> list[Tensor]:
    return [one.clone().requires_grad_() if one.dtype in FLOATS else one for one in points]


def _ours(function: Any, points: list[Tensor], asked: list[int], weights: Tensor) -> list[Tensor]:
    with Tape():
        leaves = _leaves(points)
        wanted = [leaves[place] for place in asked]
        result = function(*leaves)
        if not is_traced(result):
            return [torch.zeros_like(one).detach() for one in wanted]
        return list(grad(result, wanted, weights, materialize_grads=True))


def _torchs(function: Any, points: list[Tensor], asked: list[int], weights: Tensor) -> list[Tensor]:
    with torch.enable_grad():
        leaves = _leaves(points)
        wanted = [leaves[place] for place in asked]
        result = function(*leaves)
        if not result.requires_grad:
            return [torch.zeros_like(one).detach() for one in wanted]
        return list(torch.autograd.grad(result, wanted, weights, materialize_grads=True, allow_unused=True))


def _measured(function: Any, points: list[Tensor], place: int, weights: Tensor, step: float) -> Tensor:
    """How the result moves when one number does, a little up and a little down."""
    moved = [one.clone(memory_format=torch.contiguous_format) for one in points]
    flat = moved[place].view(-1)
    slopes = torch.zeros_like(flat)
    with torch.no_grad():
        for number in range(flat.numel()):
            kept = flat[number].item()
            flat[number] = kept + step
            up = (function(*moved) * weights).sum()
            flat[number] = kept - step
            down = (function(*moved) * weights).sum()
            flat[number] = kept
            slopes[number] = (up - down) / (2 * step)
    return slopes.view(points[place].shape)


def _compare(name: str, ours: Tensor, theirs: Tensor, measured: Tensor, tolerance: float) -> Checked:
    size = 1 + theirs.abs()
    apart = torch.stack([(ours - theirs).abs(), (ours - measured).abs()]).amax(0) / size
    flat = int(apart.nan_to_num(torch.inf).argmax()) if apart.numel() else 0
    at = tuple(int(one) for one in torch.unravel_index(torch.tensor(flat), ours.shape)) if apart.numel() else ()
    worst = apart.reshape(-1)[flat].item() if apart.numel() else 0.0
    first, second, third = [one.reshape(-1)[flat].item() if one.numel() else 0.0 for one in (ours, theirs, measured)]
    return Checked(name, tuple(ours.shape), at, first, second, third, worst, worst <= tolerance)
