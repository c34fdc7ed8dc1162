"""What autograd's engine computes: its inside is not seen, but what went in and what came out is connected."""

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
LEFT = "backward left it in .grad: what autograd's engine ran inside is not shown"


def entering(recorder: Recorder, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """Before the engine runs: the refs of what it is given; of a backward pass, those of the losses."""
    if function is torch.autograd.grad:
        return [recorder.ref_of(tensor) for tensor in argument_tensors(args, kwargs)]
    if function in BACKWARD:
        given = args[0] if args else kwargs.get("tensors")
        return [recorder.ref_of(tensor) for tensor in leaves(given)]
    return []


def left(recorder: Recorder, function: Any, out: Any, refs: list[int], frame: FrameType) -> None:
    """After it: gradients that were returned are one row; those left in `.grad` become rows when they are read."""
    if function in BACKWARD:
        recorder.losses, recorder.gradients = refs, None
        return
    fresh = {id(tensor): tensor for tensor in leaves(out) if id(tensor) not in recorder.known}
    if function is torch.autograd.grad and fresh:
        recorder.callers[recorder.count] = caller_of(frame)
        recorder.add("grad", tuple(fresh.values()), refs, note=GRAD)


def gradient(recorder: Recorder, tensor: Tensor) -> int | None:
    """The ref of a row for a gradient that a backward pass of this recording left, where a tensor is one."""
    if not recorder.losses:
        return None
    if recorder.gradients is None:
        recorder.gradients = {id(owner.grad): ref for ref, owner in _owners(recorder) if owner.grad is not None}
    ref = recorder.gradients.get(id(tensor))
    if ref is None:
        return None
    owner = recorder.stored[~ref] if ref < 0 else recorder.outputs(ref >> SLOT_BITS)[0]
    if getattr(owner, "grad", None) is not tensor:  # another has its id by now
        return None
    return recorder.add("grad", tensor, [*recorder.losses, ref], note=LEFT)


def _owners(recorder: Recorder) -> Iterator[tuple[int, Tensor]]:
    """Leaves that may have a gradient, with their refs: parameters, and inputs that asked for one."""
    yield from ((~number, tensor) for number, tensor in enumerate(recorder.stored))
    yield from ((ref, tensor) for ref, tensor in recorder.inputs() if tensor.requires_grad and tensor.is_leaf)
