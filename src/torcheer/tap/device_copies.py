"""The one way off a device: copies on a side stream into pinned memory, without waiting.

Sinks that want the same numbers of a value share one copy. What is too large to be pinned goes through two blocks of
the thread that reads it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

BLOCK_BYTES = 16 << 20  # of pinned memory, two for each thread that reads large tensors
_STREAMS: dict[torch.device, Any] = {}  # the side stream of each device


class Ready:
    """An event that has already happened."""

    def query(self) -> bool:
        """Return True, as a CUDA event does once it was reached."""
        return True

    def synchronize(self) -> None:
        """Return at once."""


READY = Ready()


def copy_to_host(tensors: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
    """Start to copy tensors of one device, which nobody may overwrite; the copies, and the event that ends them."""
    device = tensors[0].device
    if device.type != "cuda":  # the same without waiting, for devices without streams
        return [tensor.cpu() for tensor in tensors], READY
    cuda: Any = torch.cuda  # it is not all annotated
    side = _side_stream(device)
    copies = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
    side.wait_stream(cuda.current_stream(device))
    with cuda.stream(side):
        for tensor, copy in zip(tensors, copies):
            copy.copy_(tensor, non_blocking=True)
        arrived = cuda.Event()
        arrived.record(side)
    for tensor in tensors:
        tensor.record_stream(side)
    return copies, arrived


def _side_stream(device: torch.device) -> Any:
    cuda: Any = torch.cuda
    return _STREAMS.setdefault(device, _STREAMS.get(device) or cuda.Stream(device))


class _Blocks(threading.local):
    """Two pinned blocks of this thread, from the first copy to the thread's end."""

    pair: list[Tensor] | None = None


_BLOCKS = _Blocks()


def host_blocks(tensor: Tensor, ready: Any) -> Iterator[memoryview]:
    """Yield the bytes of a GPU's tensor, each block in pinned memory until the next is asked for.

    The next block is on its way while this one is used. `ready`: the event after which the tensor holds its values;
    nobody may overwrite it. Waits in this thread, and for no other work of the device.
    """
    cuda: Any = torch.cuda
    side = _side_stream(tensor.device)
    if _BLOCKS.pair is None:
        _BLOCKS.pair = [torch.empty(BLOCK_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    with cuda.stream(side), torch.no_grad():
        side.wait_event(ready)
        data = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    parts = [data[start : start + BLOCK_BYTES] for start in range(0, len(data), BLOCK_BYTES)]
    sent: list[tuple[Tensor, Any]] = []  # pinned bytes, and the event after which they are there

    def send(number: int) -> None:
        target = _BLOCKS.pair[number % 2][: len(parts[number])]  # type: ignore[index]
        with cuda.stream(side):
            target.copy_(parts[number], non_blocking=True)
            sent.append((target, cuda.Event(blocking=True)))
            sent[-1][1].record(side)

    for number in range(len(parts) + 1):
        if number < len(parts):
            send(number)
        if number:
            block, arrived = sent[number - 1]
            arrived.synchronize()
            yield memoryview(block.numpy().data)


class HostCopy:
    """All numbers of a tensor as they are now, on their way to the host: cloned on the device, then fetched."""

    __slots__ = ("device", "event", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            (self.tensor,), self.event = copy_to_host([tensor.detach().clone()])
        self.device = str(tensor.device)

    @property
    def arrived(self) -> bool:
        """True once `tensor` holds the numbers."""
        return bool(self.event.query())


class _Shared(threading.local):
    """The copies made for the value that is handed to several sinks at the moment, in this thread."""

    copies: dict[Any, HostCopy] | None = None


_SHARED = _Shared()


class SharedCopies:
    """A context in which `host_copy` copies the same numbers once."""

    __slots__ = ()

    def __enter__(self) -> None:
        _SHARED.copies = {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _SHARED.copies = None


def host_copy(tensor: Tensor) -> HostCopy | None:
    """Copy a tensor, or share the copy that another sink made of it; None while a CUDA graph is captured.

    A captured graph would repeat the copy at every replay.
    """
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    if _SHARED.copies is None:
        return HostCopy(tensor)
    key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
    if key not in _SHARED.copies:
        _SHARED.copies[key] = HostCopy(tensor)
    return _SHARED.copies[key]
