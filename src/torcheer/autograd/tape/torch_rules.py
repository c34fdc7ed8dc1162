"""Torch's own rule, where we have none and the user asked for it."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.backward.missing_rules import missing_rule
from torcheer.autograd.tape.multiple_outputs import record_joint
from torcheer.autograd.tape.nodes import FLOATS
from torcheer.capture.record.function_table import learn
from torcheer.capture.record.tensor_trees import leaves, replace
from torcheer.errors import BadArgument, MissingRule

if TYPE_CHECKING:
    from torcheer.autograd.tape.function_plans import Plan
    from torcheer.autograd.tape.tape import Tape


def borrowed(tape: Tape, plan: Plan, args: Any, kwargs: Any, out: Any, frame: FrameType) -> Any:
    """Leave a node at each float result of a function, whose rule asks torch."""
    random = learn(plan.function).random
    if random is not None and random(args, kwargs):  # to run it again would draw other numbers
        raise missing_rule(plan.name, plan.where, plan.function, frame, args)
    if any(one.is_complex() for one in leaves(out)):
        raise BadArgument(f"{plan.where} returned complex numbers: gradients here are for real ones, borrowed or not")
    results = [one if one.dtype in FLOATS else None for one in leaves(out)]
    record_joint(
        tape, plan.name, _asking_torch(plan, args, kwargs), results, leaves((args, kwargs)), frame, borrowed=True
    )
    return out


def _asking_torch(plan: Plan, args: Any, kwargs: Any) -> Any:
    """A rule that runs the function again under torch's autograd and asks that for the gradients."""
    empty = torch.empty(0)
    nest = replace((args, kwargs), iter([empty] * len(leaves((args, kwargs)))))  # the node keeps the tensors, not we

    def ask(gradients: list[Any], *tensors: Tensor) -> tuple[Any, ...]:
        """Borrowed from torch: there is nothing to read here."""
        if torch.is_grad_enabled():
            raise MissingRule(f"{plan.where}: a borrowed rule cannot be differentiated again; write one of your own")
        with torch.enable_grad():
            fresh = [one.detach().requires_grad_(one.dtype in FLOATS) for one in tensors]
            again, named = replace(nest, iter(fresh))
            pairs = [(one, g) for one, g in zip(leaves(plan.function(*again, **named)), gradients) if g is not None]
            asked = [one for one in fresh if one.requires_grad]
            results, arrived = zip(*pairs)
            found = iter(torch.autograd.grad(results, asked, arrived, allow_unused=True))
        return tuple([next(found) if one.requires_grad else None for one in fresh])

    return ask
