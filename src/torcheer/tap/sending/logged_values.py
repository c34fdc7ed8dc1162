"""What a user logs: metrics and media, sent without waiting for those that are still computed."""

from __future__ import annotations

import struct
import time
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from torcheer.encoding import to_bytes
from torcheer.tap.reduction.cuda_statistics import Fetcher
from torcheer.tap.sending.byte_limits import ByteLimits, ring_for
from torcheer.tap.sending.sent_keys import SentKeys
from torcheer.tap.tensor_copies import GroupSink, local_shard

_NUMBER = struct.Struct("<d")


class LoggedValues:
    """Sends numbers, and arrays in full; what cannot be sent is reported."""

    def __init__(self, link: GroupSink, fetcher: Fetcher, limits: ByteLimits, keys: SentKeys) -> None:
        self._link, self._fetcher, self._limits, self._keys = link, fetcher, limits, keys

    def report_shape(self, name: str, value: Tensor) -> None:
        """Report a tensor that is no metric."""
        self._keys.report(f"metric {name!r} is a tensor of shape {tuple(value.shape)}, not one number{_hint(value)}")

    def send_number(self, name: str, value: Any, step: int) -> float:
        """Send a metric that is no tensor; returns it, 0 where it is no number."""
        if not isinstance(value, Real) and not hasattr(type(value), "__float__"):  # `float` asks the type
            self._keys.report(f"metric {name!r} is a {type(value).__name__}, not a number{_hint(value)}")
            return 0.0
        header = {"layer": name, "variable": "metric", "item": -1, "type": "float64", "shape": [], "step": step}
        header["count"] = self._keys.count((name, "metric"))
        try:
            number = float(value)
            self._link.offer({**header, "time_secs": time.time()}, 8, lambda view: _NUMBER.pack_into(view, 0, number))
            return number
        except Exception as error:
            self._keys.report(f"metric {name!r} cannot be sent: {type(error).__name__}: {error}")
            return 0.0

    def send_media(self, array: Any, layer: str, variable: str, step: int, *, item: int, media: dict[str, Any]) -> None:
        """Send something that a person logged, whole; does not wait for one that is on a GPU."""
        header: dict[str, Any] = {"layer": layer, "variable": variable, "item": item, "step": step, "media": media}
        header["time_secs"] = time.time()
        if array.nbytes > self._limits.share_bytes:
            self._keys.report(
                f"{variable} {layer!r} has {array.nbytes:,} bytes, more than an eighth of the ring: it is not sent. "
                f"Transport(bytes={ring_for(array.nbytes)}) has room for it"
            )
            return
        try:
            if isinstance(array, Tensor) and (array := local_shard(array)).device.type in self._limits.devices:
                self._fetch_media(array, header)
                return
            header["type"], header["shape"], payload = to_bytes(array)
            self._link.offer(header, payload.nbytes, partial(_write_payload, payload))
        except Exception as error:
            self._keys.report(f"{variable} {layer!r} cannot be sent: {type(error).__name__}: {error}")

    def _fetch_media(self, tensor: Tensor, header: dict[str, Any]) -> None:
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            name = f"{header['variable']} {header['layer']!r}"
            self._keys.report(f"{name} is not sent: a CUDA graph is being captured")
            return
        self._fetcher.fetch_tensor(tensor, limit_bytes=tensor.nbytes, **header)


def _hint(value: Any) -> str:
    """How to log what is no number."""
    return (
        "; a text is tl.Text(x)" if isinstance(value, str) else "; an image is tl.Image(x), sound tl.Audio(x, rate=…)"
    )


def _write_payload(payload: memoryview, view: memoryview) -> None:
    view[: payload.nbytes] = payload
