"""Copies from a GPU that nobody waits for: begun beside what computes, put into the ring once they are here."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.tap.tensor_copies import offer
from torcheer.wire.ring import Ring

_STREAMS: dict[torch.device, Any] = {}  # one for each device


class Coming:
    """A copy on its way."""

    def __init__(self, here: Tensor, event: Any, about: dict[str, Any]) -> None:
        self._here, self._event, self._about = here, event, about

    @classmethod
    def begin(cls, tensor: Tensor, about: dict[str, Any]) -> Coming | None:
        """Copy on the device at once, as the tensor may be overwritten; fetch the copy on a stream of its own."""
        cuda: Any = torch.cuda  # it is not all annotated
        if cuda.is_current_stream_capturing():
            return None  # a graph would repeat our copies for ever
        with torch._C.DisableTorchFunction(), torch.no_grad():
            there = tensor.detach().clone()
            side = _STREAMS.setdefault(there.device, None) or cuda.Stream(there.device)
            _STREAMS[there.device] = side
            here = torch.empty(there.shape, dtype=there.dtype, pin_memory=True)
            side.wait_stream(cuda.current_stream(there.device))
            with cuda.stream(side):
                here.copy_(there, non_blocking=True)
                event = cuda.Event()
                event.record(side)
            there.record_stream(side)
        return cls(here, event, {**about, "device": str(there.device)})

    @property
    def arrived(self) -> bool:
        """Whether it is here."""
        return bool(self._event.query())

    def put(self, ring: Ring) -> bool:
        """Into the ring; False where there is no room."""
        return offer(ring, self._here, limit_bytes=ring.share_bytes, **self._about)
