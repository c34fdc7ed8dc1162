"""Asynchronous GPU-to-host copies on a side stream, written into the ring when finished."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torcheer.capture.torch_state import DisableTorchFunction
from torcheer.tap.tensor_copies import offer
from torcheer.wire.ring import Ring

_STREAMS: dict[torch.device, Any] = {}  # side stream of each device


class DeviceCopy:
    """A device-to-host copy in flight."""

    def __init__(self, host_tensor: Tensor, event: Any, header: dict[str, Any]) -> None:
        self._host_tensor, self._event, self._header = host_tensor, event, header

    @classmethod
    def begin(cls, tensor: Tensor, header: dict[str, Any]) -> DeviceCopy | None:
        """Clone on the device at once, as the tensor may be overwritten.

        Fetch the clone on a side stream.
        """
        cuda: Any = torch.cuda  # not fully annotated
        if cuda.is_current_stream_capturing():
            return None  # a CUDA graph would replay our copies for ever
        with DisableTorchFunction(), torch.no_grad():
            clone = tensor.detach().clone()
            side = _STREAMS.setdefault(clone.device, None) or cuda.Stream(clone.device)
            _STREAMS[clone.device] = side
            host_tensor = torch.empty(clone.shape, dtype=clone.dtype, pin_memory=True)
            side.wait_stream(cuda.current_stream(clone.device))
            with cuda.stream(side):
                host_tensor.copy_(clone, non_blocking=True)
                event = cuda.Event()
                event.record(side)
            clone.record_stream(side)
        return cls(host_tensor, event, {**header, "device": str(clone.device)})

    @property
    def arrived(self) -> bool:
        """True once the copy has finished."""
        return bool(self._event.query())

    def put(self, ring: Ring) -> bool:
        """Write the copy into the ring; False if it does not fit."""
        return offer(ring, self._host_tensor, limit_bytes=ring.share_bytes, **self._header)
