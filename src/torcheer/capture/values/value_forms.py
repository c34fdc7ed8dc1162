"""The form in which a value is kept: its device, its type, what a function makes of it.

From a GPU to the host values go through pinned memory on a side stream (`tap.device_copies`): the pass does not wait.
Such a value may be read once its event was reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torcheer.capture.values.memory_layout import storage_of
from torcheer.capture.values.value_copies import copy_of, graph_copy
from torcheer.tap.device_copies import READY, copy_to_host

if TYPE_CHECKING:
    from torcheer.capture.values.save_policy import Save


def has_form(save: Save, tensor: Tensor) -> bool:
    """Whether a value has the requested device and type, so that it can be kept by reference."""
    return (
        save.transform is None
        and (save.dtype is None or tensor.dtype == save.dtype)
        and (save.device is None or tensor.device == torch.device(save.device))
    )


def in_form(save: Save, tensor: Tensor) -> tuple[Any, Any]:
    """Return a copy of a value in the requested form, and the event after which it may be read.

    It is part of its graph even with grad disabled, unless `save.detach`.
    """
    value: Any = tensor.detach() if save.detach else tensor
    with torch.set_grad_enabled(torch.is_grad_enabled() or value.requires_grad):
        value = save.transform(value) if save.transform is not None else value
        if not isinstance(value, Tensor):
            return value, READY
        if value.is_cuda and save.device is not None and torch.device(save.device).type == "cpu":
            return _to_host(value if save.dtype is None else value.to(save.dtype), tensor)
        value = value.to(device=save.device, dtype=save.dtype)
    return own_copy(value, tensor, save.detach), READY


def own_copy(value: Tensor, source: Tensor, detach: bool) -> Tensor:
    """Return a value, or a copy where it would change with the memory of its source."""
    if value is not source and storage_of(value) != storage_of(source):
        return value
    return copy_of(value) if detach else graph_copy(value)


def _to_host(value: Tensor, source: Tensor) -> tuple[Tensor, Any]:
    if value.requires_grad:  # through autograd, and so in the order of the model's own stream
        copied, event = value.to("cpu", non_blocking=True), torch.cuda.Event()
        event.record()
        return copied, event
    own = own_copy(value, source, detach=True)  # on the device: the next operation may overwrite the value
    (copied,), event = copy_to_host([own])
    return copied, event
