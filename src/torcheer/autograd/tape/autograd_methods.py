"""Replacements for torch's autograd API: backward, grad, hooks, requires_grad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.gradients.backward_pass import Watch, accumulate, run_backward
from torcheer.autograd.gradients.gradient_hooks import grad_fn, register_hook, register_post_accumulate_grad_hook
from torcheer.autograd.tape.custom_functions import backward_with_show
from torcheer.autograd.tape.function_plans import SPECIALS
from torcheer.autograd.tape.inplace_writes import current_node
from torcheer.autograd.tape.kept_arguments import HIDDEN_TEXT
from torcheer.autograd.tape.nodes import is_traced, node_of
from torcheer.autograd.tape.torch_grad_off import unrecorded
from torcheer.errors import BadArgument, NotTraced

if TYPE_CHECKING:
    from torcheer.autograd.tape.tape import Tape


def as_list(value: Any) -> list[Any]:
    """Return a list of one or several values."""
    return list(value) if isinstance(value, Sequence) and not isinstance(value, Tensor) else [value]


def starts_of(outputs: list[Tensor], gradients: list[Any]) -> list[tuple[Any, Tensor]]:
    """Return the nodes or leaves where a backward pass starts, each with its initial gradient."""
    starts: list[tuple[Any, Tensor]] = []
    if len(outputs) != len(gradients):
        raise BadArgument(f"{len(gradients)} gradients were given for {len(outputs)} tensors: one for each, or none")
    for output, gradient in zip(outputs, gradients, strict=True):
        if not isinstance(output, Tensor):
            raise BadArgument(f"gradients start from a tensor, not from {type(output).__name__}")
        start = current_node(output) or (output if output.requires_grad else None)
        if start is output and not output.is_leaf:
            raise NotTraced(HIDDEN_TEXT)
        if start is None:
            raise NotTraced(
                "nothing that asks for a gradient leads to this tensor. Was it made inside autograd.record(), from "
                "parameters or tensors with requires_grad, and not under no_grad or detached?"
            )
        if gradient is None:
            if output.numel() != 1:
                raise BadArgument(
                    f"backward starts from one number, and this has shape {tuple(output.shape)}: reduce it with "
                    f".sum() or .mean(), or say how much each entry counts with gradient="
                )
            gradient = torch.ones_like(output.detach())
        elif gradient.shape != output.shape:
            raise BadArgument(f"gradient= has shape {tuple(gradient.shape)}, the tensor {tuple(output.shape)}")
        starts.append((start, gradient))
    return starts


def backward(
    tape: Tape, outputs: Any, gradients: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Any = None, watch: Watch | None = None,
) -> None:  # fmt: skip
    """Run the backward pass and add to `.grad` of everything that requires a gradient."""
    keep = create_graph if retain_graph is None else retain_graph
    targets = None if inputs is None else as_list(inputs)
    only = None if targets is None else [current_node(target) or target for target in targets]
    with rules_recorded(tape) if create_graph else unrecorded():
        roots = as_list(outputs)
        starts = starts_of(roots, [None] * len(roots) if gradients is None else as_list(gradients))
        arrived = run_backward(starts, only=only, create_graph=create_graph, keep=keep, watch=watch)
        for tensor, source in zip(targets or (), only or ()):
            if id(source) in arrived:
                accumulate(tensor, arrived[id(source)].clone(), source is tensor and not create_graph)


def grad(
    tape: Tape, outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
    create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
    is_grads_batched: bool = False, materialize_grads: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the gradients of `outputs` with respect to `inputs`, without touching `.grad`."""
    if is_grads_batched:
        raise BadArgument("is_grads_batched: call grad once for each gradient instead")
    keep = create_graph if retain_graph is None else retain_graph
    targets, roots = as_list(inputs), as_list(outputs)
    only = [current_node(target) or target for target in targets]
    with rules_recorded(tape) if create_graph else unrecorded():
        starts = starts_of(roots, [None] * len(roots) if grad_outputs is None else as_list(grad_outputs))
        arrived = run_backward(starts, only=only, create_graph=create_graph, keep=keep)
        grads = [arrived.get(id(source)) for source in only]
        if materialize_grads:
            grads = [torch.zeros_like(t) if gradient is None else gradient for gradient, t in zip(grads, targets)]
    if not allow_unused and not materialize_grads and any(gradient is None for gradient in grads):
        place = next(place for place, gradient in enumerate(grads) if gradient is None)
        raise NotTraced(f"input {place} of grad does not lead to the outputs; allow_unused=True gives None for it")
    kinds = [type(target) for target in targets]
    return tuple(
        [
            kind.wrap(gradient) if create_graph and hasattr(kind, "wrap") else gradient
            for kind, gradient in zip(kinds, grads)
        ]
    )


@contextmanager
def rules_recorded(tape: Tape) -> Iterator[None]:
    """Record what the rules compute as well, for gradients of gradients."""
    with torch.enable_grad(), tape.on():
        yield


def _requires_grad(tape: Tape, tensor: Tensor, *_: Any) -> bool:
    return is_traced(tensor)


def _is_leaf(tape: Tape, tensor: Tensor, *_: Any) -> bool:
    return node_of(tensor) is None


def _requires_grad_(tape: Tape, tensor: Tensor, requires_grad: bool = True) -> Tensor:
    if node_of(tensor) is None:
        return tensor.requires_grad_(requires_grad)
    if not requires_grad:
        raise BadArgument("requires_grad can only be taken from a leaf; detach() gives this value without its past")
    return tensor


def _set_requires_grad(tape: Tape, tensor: Tensor, requires_grad: bool) -> None:
    _requires_grad_(tape, tensor, requires_grad)


def _refuse_traced(function: Any) -> Any:
    """Wrap a function that exports a tensor: refuse traced ones, whose gradient would be lost."""

    def export(tape: Tape, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and node_of(tensor) is not None:
            raise NotTraced(f"{function.__name__}() of a traced tensor: say detach() first, as no gradient can follow")
        return function(tensor, *args, **kwargs)

    return export


def _detach_(tape: Tape, tensor: Tensor) -> Tensor:
    tensor.__dict__.pop("_torcheer", None)
    return tensor.requires_grad_(False)


def _reduce_ex(tape: Tape, tensor: Tensor, protocol: int) -> Any:
    """Pickle a tensor without its node."""
    node = tensor.__dict__.pop("_torcheer", None)
    try:
        return tensor.__reduce_ex__(protocol)
    finally:
        if node is not None:
            tensor._torcheer = node  # type: ignore[attr-defined]


def _retain_grad(tape: Tape, tensor: Tensor) -> None:
    """Do nothing: here every tensor retains its gradient."""


def _tensor_backward(tape: Tape, tensor: Tensor, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    backward(tape, tensor, gradient, *args, **kwargs)


def _many_backward(tape: Tape, tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
    backward(tape, tensors, grad_tensors, *args, **kwargs)


SPECIALS.update(
    {
        Tensor.backward: _tensor_backward,
        backward_with_show: _tensor_backward,
        torch.autograd.backward: _many_backward,
        torch.autograd.grad: grad,
        Tensor.register_hook: register_hook,
        Tensor.register_post_accumulate_grad_hook: register_post_accumulate_grad_hook,
        Tensor.retain_grad: _retain_grad,
        Tensor.requires_grad.__get__: _requires_grad,  # type: ignore[attr-defined]
        Tensor.is_leaf.__get__: _is_leaf,  # type: ignore[attr-defined]
        Tensor.grad_fn.__get__: grad_fn,  # type: ignore[union-attr]
        Tensor.requires_grad_: _requires_grad_,
        Tensor.detach_: _detach_,
        Tensor.__reduce_ex__: _reduce_ex,
        Tensor.requires_grad.__set__: _set_requires_grad,  # type: ignore[attr-defined]
        **{function: _refuse_traced(function) for function in (Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)},
    }
)
