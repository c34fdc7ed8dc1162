"""Torch's own backward in place of a missing rule, with `record(borrow=True)`."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.gradients.missing_rules import missing_rule
from torcheer.autograd.tape.multiple_outputs import record_joint
from torcheer.autograd.tape.nodes import FLOATS
from torcheer.capture.record.function_table import lookup_call
from torcheer.capture.record.tensor_trees import leaves, replace
from torcheer.errors import BadArgument, MissingRule

if TYPE_CHECKING:
    from torcheer.autograd.tape.function_plans import FunctionPlan
    from torcheer.autograd.tape.tape import Tape


def record_borrowed(tape: Tape, plan: FunctionPlan, args: Any, kwargs: Any, out: Any, frame: FrameType) -> Any:
    """Record a node for each float result of a function; its rule calls torch's autograd."""
    random = lookup_call(plan.function).random
    if random is not None and random(args, kwargs):  # a second run would draw other numbers
        raise missing_rule(plan.name, plan.where, plan.function, frame, args)
    if any(tensor.is_complex() for tensor in leaves(out)):
        raise BadArgument(f"{plan.where} returned complex numbers: gradients here are for real ones, borrowed or not")
    results = [tensor if tensor.dtype in FLOATS else None for tensor in leaves(out)]
    record_joint(
        tape, plan.name, _torch_rule(plan, args, kwargs), results, leaves((args, kwargs)), frame, borrowed=True
    )
    return out


def _torch_rule(plan: FunctionPlan, args: Any, kwargs: Any) -> Any:
    """Return a rule that reruns the function under torch's autograd to get the gradients."""
    empty = torch.empty(0)
    nest = replace(
        (args, kwargs), iter([empty] * len(leaves((args, kwargs))))
    )  # the node holds the tensors, not this closure

    def rule(gradients: list[Any], *tensors: Tensor) -> tuple[Any, ...]:
        """Borrowed from torch: there is nothing to read here."""
        if torch.is_grad_enabled():
            raise MissingRule(f"{plan.where}: a borrowed rule cannot be differentiated again; write one of your own")
        with torch.enable_grad():
            copies = [tensor.detach().requires_grad_(tensor.dtype in FLOATS) for tensor in tensors]
            new_args, new_kwargs = replace(nest, iter(copies))
            outputs = leaves(plan.function(*new_args, **new_kwargs))
            pairs = [(output, g) for output, g in zip(outputs, gradients) if g is not None]
            inputs = [copy for copy in copies if copy.requires_grad]
            results, arrived = zip(*pairs)
            input_grads = iter(torch.autograd.grad(results, inputs, arrived, allow_unused=True))
        return tuple([next(input_grads) if copy.requires_grad else None for copy in copies])

    return rule
