"""Backward and gradients as functions: `backward`, `grad`, `jvp`, `jacobian`, `hessian`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torcheer.autograd.explanation.backward_printout import BackwardPrinter
from torcheer.autograd.explanation.operation_names import OperationNames
from torcheer.autograd.gradients.backward_pass import leading_to
from torcheer.autograd.tape import autograd_methods
from torcheer.autograd.tape.inplace_writes import current_node
from torcheer.autograd.tape.nodes import node_of
from torcheer.autograd.tape.tape import Tape, current
from torcheer.errors import BadArgument


def backward(
    outputs: Any, gradient: Any = None, *, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Any = None, show: bool = False, expand: bool = False,
) -> None:  # fmt: skip
    """Run the backward pass and add the gradients to `.grad` of everything on the way.

    Args:
        outputs: a tensor or a list of tensors.
        gradient: the gradient of each output; one for a scalar if left out.
        retain_graph: keep what was saved, for another backward; by default as `create_graph`.
        create_graph: record the pass itself, for gradients of gradients.
        inputs: add to `.grad` of these tensors only.
        show: print the pass as it runs, one line per operation.
        expand: print the parts of composites, instead of one line for each composite.
    """
    roots = autograd_methods.as_list(outputs)
    watch = None
    if show:
        starts = [node for node in map(node_of, roots) if node is not None]
        only = (
            None
            if inputs is None
            else {id(current_node(tensor) or tensor) for tensor in autograd_methods.as_list(inputs)}
        )
        useful = None if only is None else leading_to(only, starts)
        watch = BackwardPrinter(starts, OperationNames.around(sys._getframe(1)), expand, useful)
    autograd_methods.backward(current(), roots, gradient, retain_graph, create_graph, inputs, watch)
    if watch is not None:
        watch.end()


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, **options: Any) -> tuple[Any, ...]:
    """Return the gradients of `outputs` with respect to `inputs`.

    The options are torch.autograd.grad's.

    - `grad_outputs`: the gradient of each output; one for a scalar if left out.
    """
    return autograd_methods.grad(current(), outputs, inputs, grad_outputs, **options)


def jvp(function: Callable[..., Tensor], inputs: Any, tangents: Any) -> tuple[Tensor, Tensor]:
    """Return a function's value and its Jacobian-vector product with `tangents`.

    Backward gives $u \\mapsto J^\\top u$, which is linear in u; its own backward is $v \\mapsto J v$.

    - `function`: of the inputs, to one tensor.
    - `inputs`: a tensor or a list of tensors; `tangents` has one of the same shape for each.
    """
    points, directions = autograd_methods.as_list(inputs), autograd_methods.as_list(tangents)
    if [point.shape for point in points] != [direction.shape for direction in directions]:
        raise BadArgument("jvp: each input needs a tangent of its own shape")
    with Tape():
        leaves = [_leaf(point) for point in points]
        result = function(*leaves)
        if node_of(result) is None:
            return result.detach(), torch.zeros_like(result).detach()
        weights = torch.zeros_like(result).detach().requires_grad_()
        sent = grad(result, leaves, weights, create_graph=True, materialize_grads=True)
        pairs = [(part, direction) for part, direction in zip(sent, directions) if node_of(part) is not None]
        if not pairs:
            return result.detach(), torch.zeros_like(result).detach()
        parts, moves = [part for part, _ in pairs], [direction for _, direction in pairs]
        (rate,) = grad(parts, weights, moves, materialize_grads=True)
    return result.detach(), rate.detach()


def jacobian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the gradient of every element of the result: of shape (*result.shape, *x.shape).

    - `function`: from `x` to a tensor.
    - `x`: where it is differentiated.
    """
    with Tape():
        leaf = _leaf(x)
        result = function(leaf)
        if not isinstance(result, Tensor):
            raise BadArgument(f"jacobian needs a function that returns one tensor, not {type(result).__name__}")
        return _jacobian_rows(result, leaf)


def hessian(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return the second derivatives of a scalar function: of shape (*x.shape, *x.shape).

    - `function`: from `x` to one number.
    - `x`: where it is differentiated.
    """
    with Tape():
        leaf = _leaf(x)
        result = function(leaf)
        if result.numel() != 1:
            raise BadArgument(f"hessian needs a function that returns one number, got shape {tuple(result.shape)}")
        if node_of(result) is None:  # it does not depend on x
            return leaf.detach().new_zeros(*leaf.shape, *leaf.shape)
        (slope,) = grad(result, leaf, create_graph=True, materialize_grads=True)
        return _jacobian_rows(slope, leaf)


def _jacobian_rows(result: Tensor, leaf: Tensor) -> Tensor:
    if node_of(result) is None:
        return leaf.detach().new_zeros(*result.shape, *leaf.shape)
    units = torch.eye(result.numel(), dtype=result.dtype, device=result.device).view(-1, *result.shape)
    rows = [grad(result, leaf, unit, retain_graph=True, materialize_grads=True)[0] for unit in units]
    return torch.stack(rows).reshape(*result.shape, *leaf.shape).detach()


def _leaf(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x.detach().clone().requires_grad_()
