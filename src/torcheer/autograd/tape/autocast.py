"""What autocast does on the way into an operation, recorded as operations of their own."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.tape.function_plans import Plan, plan_of
from torcheer.autograd.tape.nodes import FLOATS, node_of
from torcheer.autograd.tape.torch_grad_off import quietly
from torcheer.capture.record.function_table import learn
from torcheer.capture.record.tensor_trees import leaves, replace

if TYPE_CHECKING:
    from torcheer.autograd.tape.tape import Tape

CASTS = frozenset("to type type_as float double half bfloat16 _to_copy".split())


def kept_as_cast(tape: Tape, kept: list[Any], args: Any, dtype: torch.dtype, frame: FrameType) -> list[Any]:
    """The arguments of an operation whose result tells that autocast has changed their type."""
    for place, arg in enumerate(args):
        if isinstance(arg, Tensor) and arg.dtype in FLOATS and arg.dtype != dtype:
            cast = tape.run(plan_of(Tensor.to), (arg, dtype), {}, frame)
            node = node_of(cast)
            kept[place] = cast if node is None else node
            if node is not None:
                node.keep(cast)
    return kept


def run_cast(tape: Tape, plan: Plan, args: Any, kwargs: dict[str, Any], frame: FrameType) -> Any:
    """Run a composite in the type that autocast would have run torch's own function in."""
    call = learn(plan.function)
    if call.writes or call.random is not None:  # to ask it would change something
        return tape.inside(plan.name, plan.composite, args, kwargs, frame)
    asked = next((one.dtype for one in leaves(quietly(plan.function, args, kwargs)) if one.dtype in FLOATS), None)
    tensors = leaves((args, kwargs))
    if asked is not None:
        tensors = [
            tape.run(plan_of(Tensor.to), (one, asked), {}, frame) if one.dtype in FLOATS and one.dtype != asked else one
            for one in tensors
        ]
    args, kwargs = replace((args, kwargs), iter(tensors))
    with torch.autocast(tensors[0].device.type, enabled=False):
        return tape.inside(plan.name, plan.composite, args, kwargs, frame)
