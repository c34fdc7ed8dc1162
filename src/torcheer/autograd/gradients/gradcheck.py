"""`gradcheck`: compare our gradients with torch's and with central differences."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.gradients.derivatives import grad
from torcheer.autograd.tape.autograd_methods import as_list
from torcheer.autograd.tape.nodes import FLOATS, is_traced
from torcheer.autograd.tape.tape import Tape
from torcheer.errors import BadArgument


@dataclass(frozen=True, slots=True)
class GradientComparison:
    """One input's gradient, computed three ways, at the element where they differ most."""

    name: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    ours: float
    torch: float
    differences: float
    worst: float  # the largest distance between any two of them, over 1 + their size
    passed: bool


class GradientCheck(list[GradientComparison]):
    """One comparison per input; true if all agree."""

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
) -> GradientCheck:
    """Compare our gradients with torch's and with central differences; print the worst.

    All are computed in double precision.

    Args:
        function: a function of tensors, or a module, that returns one tensor.
        inputs: a tensor or a list of tensors; gradients are checked for those of floats.
        step: half the width of the central difference.
        tolerance: the largest difference that passes, relative to 1 + the size of the gradient.
        show: print the table.

    >>> bool(gradcheck(lambda x: x.tanh().sum(), torch.randn(3), show=False))
    True
    """
    if isinstance(function, torch.nn.Module):
        function = copy.deepcopy(function).double()
    points = [tensor.detach().double() if tensor.dtype in FLOATS else tensor for tensor in as_list(inputs)]
    places = [place for place, point in enumerate(points) if point.dtype in FLOATS]
    if not places:
        raise BadArgument("gradcheck: none of the inputs is a float tensor, so there is no gradient to check")
    weights = _weights(function, points)
    from_rules = _grads_by_rules(function, points, places, weights)
    from_torch = _grads_by_torch(function, points, places, weights)
    check = GradientCheck()
    for place, by_rules, by_torch in zip(places, from_rules, from_torch):
        differences = _central_differences(function, points, place, weights, step)
        check.append(_compare(f"input {place}", by_rules, by_torch, differences, tolerance))
    if show:
        print(check)
    return check


def _weights(function: Any, points: list[Tensor]) -> Tensor:
    """Draw weights that reduce the result to one number: random, so that no gradients cancel."""
    with torch.no_grad():
        result = function(*points)
    if not isinstance(result, Tensor):
        raise BadArgument(f"gradcheck: the function should return one tensor, it returned {type(result).__name__}")
    draw = torch.Generator().manual_seed(0)
    return torch.rand(result.shape, generator=draw, dtype=torch.float64).add(0.5).to(result.device)


def _leaves(points: list[Tensor]) -> list[Tensor]:
    return [point.clone().requires_grad_() if point.dtype in FLOATS else point for point in points]


def _grads_by_rules(function: Any, points: list[Tensor], places: list[int], weights: Tensor) -> list[Tensor]:
    with Tape():
        leaves = _leaves(points)
        targets = [leaves[place] for place in places]
        result = function(*leaves)
        if not is_traced(result):
            return [torch.zeros_like(target).detach() for target in targets]
        return list(grad(result, targets, weights, materialize_grads=True))


def _grads_by_torch(function: Any, points: list[Tensor], places: list[int], weights: Tensor) -> list[Tensor]:
    with torch.enable_grad():
        leaves = _leaves(points)
        targets = [leaves[place] for place in places]
        result = function(*leaves)
        if not result.requires_grad:
            return [torch.zeros_like(target).detach() for target in targets]
        return list(torch.autograd.grad(result, targets, weights, materialize_grads=True, allow_unused=True))


def _central_differences(function: Any, points: list[Tensor], place: int, weights: Tensor, step: float) -> Tensor:
    """Compute the central differences of the result with respect to each element of one input."""
    moved = [point.clone(memory_format=torch.contiguous_format) for point in points]
    flat = moved[place].view(-1)
    slopes = torch.zeros_like(flat)
    with torch.no_grad():
        for number in range(flat.numel()):
            value = flat[number].item()
            flat[number] = value + step
            up = (function(*moved) * weights).sum()
            flat[number] = value - step
            down = (function(*moved) * weights).sum()
            flat[number] = value
            slopes[number] = (up - down) / (2 * step)
    return slopes.view(points[place].shape)


def _compare(
    name: str, by_rules: Tensor, by_torch: Tensor, differences: Tensor, tolerance: float
) -> GradientComparison:
    size = 1 + by_torch.abs()
    errors = torch.stack([(by_rules - by_torch).abs(), (by_rules - differences).abs()]).amax(0) / size
    flat = int(errors.nan_to_num(torch.inf).argmax()) if errors.numel() else 0
    unraveled = torch.unravel_index(torch.tensor(flat), by_rules.shape) if errors.numel() else ()
    index = tuple(int(position) for position in unraveled)
    worst = errors.reshape(-1)[flat].item() if errors.numel() else 0.0
    gradients = (by_rules, by_torch, differences)
    first, second, third = [each.reshape(-1)[flat].item() if each.numel() else 0.0 for each in gradients]
    shape = tuple(by_rules.shape)
    return GradientComparison(name, shape, index, first, second, third, worst, worst <= tolerance)
