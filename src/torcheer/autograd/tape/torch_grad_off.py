"""Run code with torch's own autograd switched off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torcheer.capture.torch_state import DisableTorchFunction, set_grad_enabled

_set_grad = set_grad_enabled


def call_without_grad(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a function with torch's autograd off."""
    _set_grad(False)
    try:
        return function(*args, **kwargs)
    finally:
        _set_grad(True)


@contextmanager
def unrecorded() -> Iterator[None]:
    """Hide a block from every tape and from torch's autograd."""
    before = torch.is_grad_enabled()
    with DisableTorchFunction():
        _set_grad(False)
        try:
            yield
        finally:
            _set_grad(before)
