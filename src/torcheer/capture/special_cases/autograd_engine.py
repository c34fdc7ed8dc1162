"""Rows for gradients: connect the inputs and outputs of autograd's engine.

The operations that the engine runs inside are not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.source_lines import caller_of
from torcheer.capture.record.tensor_trees import argument_tensors, leaves

if TYPE_CHECKING:
    from types import FrameType

    from torcheer.capture.record.recorder import Recorder

BACKWARD = frozenset((Tensor.backward, torch.autograd.backward))
GRAD = "torch.autograd.grad computed it from these: what autograd's engine ran inside is not shown"
ACCUMULATED = "backward left it in .grad: what autograd's engine ran inside is not shown"


def engine_inputs(recorder: Recorder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """Return the refs of the engine's inputs; for a backward pass, those of the losses."""
    if function is torch.autograd.grad:
        return [recorder.ref_of(tensor) for tensor in argument_tensors(args, kwargs)]
    if function in BACKWARD:
        losses = args[0] if args else kwargs.get("tensors")
        return [recorder.ref_of(tensor) for tensor in leaves(losses)]
    return []


def add_gradients(recorder: Recorder, function: Any, out: Any, refs: list[int], frame: FrameType) -> None:
    """Add one row for returned gradients; those left in `.grad` get rows when they are read."""
    if function in BACKWARD:
        recorder.losses, recorder.gradients = refs, None
        return
    fresh = {id(tensor): tensor for tensor in leaves(out) if recorder.find_ref(id(tensor)) is None}
    if function is torch.autograd.grad and fresh:
        recorder.callers[recorder.count] = caller_of(frame)
        recorder.add("grad", tuple(fresh.values()), refs, note=GRAD)


def gradient_ref(recorder: Recorder, tensor: Tensor) -> int | None:
    """Add a row for a `.grad` of the last backward pass; return its ref, None for others."""
    if not recorder.losses:
        return None
    if recorder.gradients is None:
        recorder.gradients = {
            id(owner.grad): ref for ref, owner in _gradient_leaves(recorder) if owner.grad is not None
        }
    ref = recorder.gradients.get(id(tensor))
    if ref is None:
        return None
    owner = recorder.stored[~ref] if ref < 0 else recorder.outputs(ref >> SLOT_BITS)[0]
    if getattr(owner, "grad", None) is not tensor:  # the id was reused by another tensor
        return None
    return recorder.add("grad", tensor, [*recorder.losses, ref], note=ACCUMULATED)


def _gradient_leaves(recorder: Recorder) -> Iterator[tuple[int, Tensor]]:
    """Yield leaves that may have a gradient, with refs: parameters, inputs that require grad."""
    yield from ((~number, tensor) for number, tensor in enumerate(recorder.stored))
    yield from ((ref, tensor) for ref, tensor in recorder.inputs() if tensor.requires_grad and tensor.is_leaf)
