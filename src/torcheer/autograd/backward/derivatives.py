"""Backward and gradients as functions: `backward`, `grad`, `jvp`, `jacobian`, `hessian`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.backward.backward_pass import leading_to
from torcheer.autograd.explain.backward_printout import Show
from torcheer.autograd.explain.operation_names import Names
from torcheer.autograd.tape import autograd_methods
from torcheer.autograd.tape.inplace_writes import node_now
from torcheer.autograd.tape.nodes import node_of
from torcheer.autograd.tape.tape import Tape, current
from torcheer.errors import BadArgument


def backward(
    outputs: Any, gradient: Any = None, *, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Any = None, show: bool = False, expand: bool = False,
) -> None:  # fmt: skip
    """Send gradients back from `outputs`, one tensor or several, and add them to `.grad` of everything on the way.

    `show` prints the pass as it runs; `expand` shows the parts of composites.
    """
    roots = autograd_methods.as_list(outputs)
    watch = None
    if show:
        starts = [node for node in map(node_of, roots) if node is not None]
        only = None if inputs is None else {id(node_now(one) or one) for one in autograd_methods.as_list(inputs)}
        useful = None if only is None else leading_to(only, starts)
        watch = Show(starts, Names.around(sys._getframe(1)), expand, useful)
    autograd_methods.backward(current(), roots, gradient, retain_graph, create_graph, inputs, watch)
    if watch is not None:
        watch.end()


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, **options: Any) -> tuple[Any, ...]:
    """The gradients of `outputs` with respect to `inputs`, returned; options as torch.autograd.grad has them."""
    return autograd_methods.grad(current(), outputs, inputs, grad_outputs, **options)


def jvp(function: Callable[..., Tensor], inputs: Any, tangents: Any) -> tuple[Tensor, Tensor]:
    """How the result moves when the inputs move along `tangents`: the value, and its rate of change.

    Backward gives $u \\mapsto J^\\top u$, which is linear in u; its own backward is $v \\mapsto J v$.
    """
    points, moves = autograd_methods.as_list(inputs), autograd_methods.as_list(tangents)
    if [one.shape for one in points] != [one.shape for one in moves]:
        raise BadArgument("jvp: each input needs a tangent of its own shape")
    with Tape():
        leaves = [_leaf(one) for one in points]
        result = function(*leaves)
        if node_of(result) is None:
            return result.detach(), torch.zeros_like(result).detach()
        weights = torch.zeros_like(result).detach().requires_grad_()
        sent = grad(result, leaves, weights, create_graph=True, materialize_grads=True)
        moved = [(one, move) for one, move in zip(sent, moves) if node_of(one) is not None]
        if not moved:
            return result.detach(), torch.zeros_like(result).detach()
        (rate,) = grad([one for one, _ in moved], weights, [move for _, move in moved], materialize_grads=True)
    return result.detach(), rate.detach()


def jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Every result's gradient: of shape (*result.shape, *x.shape)."""
    with Tape():
        leaf = _leaf(x)
        result = function(leaf)
        if not isinstance(result, Tensor):
            raise BadArgument(f"jacobian needs a function that returns one tensor, not {type(result).__name__}")
        return _rows(result, leaf)


def hessian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of the gradient of a scalar function: of shape (*x.shape, *x.shape)."""
    with Tape():
        leaf = _leaf(x)
        result = function(leaf)
        if result.numel() != 1:
            raise BadArgument(f"hessian needs a function that returns one number, got shape {tuple(result.shape)}")
        if node_of(result) is None:  # it does not depend on x
            return leaf.detach().new_zeros(*leaf.shape, *leaf.shape)
        (slope,) = grad(result, leaf, create_graph=True, materialize_grads=True)
        return _rows(slope, leaf)


def _rows(result: Tensor, leaf: Tensor) -> Tensor:
    if node_of(result) is None:
        return leaf.detach().new_zeros(*result.shape, *leaf.shape)
    ones = torch.eye(result.numel(), dtype=result.dtype, device=result.device).view(-1, *result.shape)
    rows = [grad(result, leaf, one, retain_graph=True, materialize_grads=True)[0] for one in ones]
    return torch.stack(rows).reshape(*result.shape, *leaf.shape).detach()


def _leaf(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.detach().clone().requires_grad_()
