"""Autocast: its conversions of an operation's arguments, recorded as operations."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.autograd.tape.function_plans import FunctionPlan, plan_of
from torcheer.autograd.tape.nodes import FLOATS, node_of
from torcheer.autograd.tape.torch_grad_off import call_without_grad
from torcheer.capture.record.function_table import lookup_call
from torcheer.capture.record.tensor_trees import leaves, replace

if TYPE_CHECKING:
    from torcheer.autograd.tape.tape import Tape

CASTS = frozenset("to type type_as float double half bfloat16 _to_copy".split())


def cast_arguments(tape: Tape, kept: list[Any], args: Any, dtype: torch.dtype, frame: FrameType) -> list[Any]:
    """Replace saved arguments by their casts.

    For an operation whose result has another dtype: autocast converted its arguments.
    """
    for place, arg in enumerate(args):
        if isinstance(arg, Tensor) and arg.dtype in FLOATS and arg.dtype != dtype:
            cast = tape.run(plan_of(Tensor.to), (arg, dtype), {}, frame)
            node = node_of(cast)
            kept[place] = cast if node is None else node
            if node is not None:
                node.keep(cast)
    return kept


def run_cast(tape: Tape, plan: FunctionPlan, args: Any, kwargs: dict[str, Any], frame: FrameType) -> Any:
    """Run a composite in the dtype in which autocast would have run torch's function."""
    call = lookup_call(plan.function)
    if call.writes or call.random is not None:  # a trial run would have side effects
        return tape.inside(plan.name, plan.composite, args, kwargs, frame)
    results = leaves(call_without_grad(plan.function, args, kwargs))
    dtype = next((result.dtype for result in results if result.dtype in FLOATS), None)
    tensors = leaves((args, kwargs))
    if dtype is not None:
        tensors = [
            tape.run(plan_of(Tensor.to), (tensor, dtype), {}, frame)
            if tensor.dtype in FLOATS and tensor.dtype != dtype
            else tensor
            for tensor in tensors
        ]
    args, kwargs = replace((args, kwargs), iter(tensors))
    with torch.autocast(tensors[0].device.type, enabled=False):
        return tape.inside(plan.name, plan.composite, args, kwargs, frame)
