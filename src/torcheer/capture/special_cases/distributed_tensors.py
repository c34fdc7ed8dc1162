"""Conversions of distributed tensors (DTensor), each recorded as one operation.

They are plain Python, so that no mode sees them: without this the graph of a tensor-parallel model would end wherever a
tensor becomes a DTensor, is laid out otherwise, or becomes a local tensor again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from torcheer.capture.process_groups import recorded
from torcheer.capture.record.recorder import Recorder
from torcheer.capture.torch_state import Swaps, originals

_CONVERSIONS = Swaps("record the conversions of distributed tensors")
_METHODS = ("from_local", "to_local", "redistribute", "full_tensor")


def start(recorder: Recorder) -> None:
    """Record the conversions of this thread."""
    _CONVERSIONS.start(recorder)
    kind: Any = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)  # takes long to import
    if kind is not None and vars(kind).get("to_local") not in originals:
        for name in _METHODS:
            _CONVERSIONS.swap(kind, name, partial(_watched, name))


def stop(recorder: Recorder) -> None:
    """Undo `start`."""
    _CONVERSIONS.stop(recorder)


@cache
def _watched(name: str, original: Any) -> Callable[..., Any] | staticmethod[..., Any]:
    is_static = isinstance(original, staticmethod)
    call = recorded(original.__func__ if is_static else original, name, f"torch.distributed.tensor.DTensor.{name}")
    call.view = True  # where nothing is sent, memory is shared
    method: Callable[..., Any] = call.function
    return staticmethod(method) if is_static else method
