"""Copy tensors into the ring: once, in target, by torch itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol

import torch
from torch import Tensor

from torcheer.encoding import MemoryCopy, Offer, not_supported, type_name
from torcheer.encoding import refusal as encoding_refusal
from torcheer.ranks import settled
from torcheer.samples import SampleBatch
from torcheer.vocabulary.dtypes import DTYPES, torch_types

Report = Callable[[str], None]
_PLAIN = {Tensor, torch.nn.Parameter}
_PLAIN_TYPES = torch_types(row for row in DTYPES.values() if row.kind != "complex")  # no number is a conjugate
_ALWAYS_FINITE = torch_types(row for row in DTYPES.values() if not row.nonfinite)
_no_torch_function, is_wrapped = torch._C.DisableTorchFunction, torch._C._functorch.is_functorch_wrapped_tensor


class SampleSink(Protocol):
    """A destination of tensors: a `Ring`, or the `Turns` before it."""

    def offer(self, header: dict[str, Any], size_bytes: int, fill: Callable[[memoryview], None], /) -> bool:
        """Let `fill` write the payload; False where there is no room."""


class GroupSink(SampleSink, Protocol):
    """A destination that takes several tensors at once."""

    def offer_together(self, offers: Sequence[Offer], /) -> bool:
        """Send all of these as one record; False where they must be offered singly."""

    def offer_batch(self, batch: SampleBatch, /) -> bool:
        """Send a batch as one record; False where its values must be offered singly."""

    def refuse(self, header: dict[str, Any], /) -> bool:
        """Count a value as dropped without trying to send it."""


def offer(link: SampleSink, tensor: Tensor, **facts: Any) -> bool:
    """Copy a tensor into the ring, as `record_of` describes; False where it has no room, or there is no record."""
    record = record_of(tensor, **facts)
    return record is not None and link.offer(*record)


def record_of(
    tensor: Tensor,
    *,
    layer: str,
    variable: str,
    step: int,
    limit_bytes: int = 8 << 20,
    minus: Tensor | None = None,
    report: Report | None = None,
    **extras: Any,
) -> Offer | None:
    """What to offer a ring of a tensor: all of it, or every n-th number of one that has more than `limit_bytes`.

    `minus` is subtracted on the way: the `subsample` of another tensor of its shape. Returns None where the tensor
    cannot be payload; `report` receives the reason. `extras` are fields of `Delivery`.
    """
    with _no_torch_function():
        plain = local_shard(tensor)
        if minus is None and (name := _plain_type_name(plain)) and 0 < (size := plain.nbytes) <= limit_bytes:
            header = {"layer": layer, "variable": variable, "item": -1, "step": step, "type": name, "time_secs": 0.0,
                     "shape": list(plain.shape), **extras}  # fmt: skip
            header["time_secs"] = header["time_secs"] or time.time()
            return header, size, MemoryCopy(plain, plain.data_ptr(), size)
        if reason := refusal(plain):
            if report is not None:
                report(f"{layer} ({variable}) is not sent: {reason}")
            return None
        plain = plain.detach()
        payload, stride = subsample(plain, limit_bytes)
        header = describe(plain, payload, stride, layer=layer, variable=variable, step=step, **extras)
        if stride > 1 and minus is None:
            header["finite"] = all_finite(plain)
        return header, payload.nbytes, _tensor_writer(payload, minus)


def describe(tensor: Tensor, payload: Tensor, stride: int, *, time_secs: float = 0.0, **extras: Any) -> dict[str, Any]:
    """The record header of a tensor of which `payload` is sent."""
    extras.setdefault("item", -1)
    extras["type"], extras["time_secs"] = type_name(payload.dtype), time_secs or time.time()
    extras["shape"] = list(payload.shape) if stride == 1 else [payload.numel()]
    if not tensor.is_cpu:
        extras["device"] = str(tensor.device)
    if stride > 1:
        extras |= {"stride": stride, "whole": list(tensor.shape)}
    return extras


def _plain_type_name(tensor: Tensor) -> str:
    """The type name of a tensor whose bytes can be copied as they are; else ""."""
    if type(tensor) not in _PLAIN or is_wrapped(tensor) or not tensor.is_cpu or tensor.is_nested:
        return ""
    is_flat = tensor.layout is torch.strided and tensor.is_contiguous() and not tensor.is_neg()
    dtype = _PLAIN_TYPES.get(tensor.dtype) if is_flat else None
    return dtype.name if dtype is not None else ""


def _tensor_writer(payload: Tensor, minus: Tensor | None) -> Callable[[memoryview], None]:
    def fill(view: memoryview) -> None:
        if not payload.numel():
            return  # torch refuses an empty buffer
        if minus is None and payload.element_size() == 1:  # torch cannot copy numbers of a packed type
            torch.frombuffer(view, dtype=torch.uint8).view(payload.shape).copy_(payload.view(torch.uint8))
            return
        target = torch.frombuffer(view, dtype=payload.dtype)
        if minus is None:
            target.view(payload.shape).copy_(payload)
        elif payload.element_size() == 1:  # torch has no arithmetic for eight-bit types
            target.view(payload.shape).copy_(payload.float() - minus.float())
        else:
            torch.sub(payload, minus, out=target.view(payload.shape))

    return fill


def local_shard(tensor: Tensor) -> Tensor:
    """The part of a distributed tensor that this process holds."""
    if type(tensor) in _PLAIN:
        return tensor
    local: Tensor = settled(tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor)
    return local


def refusal(tensor: Tensor) -> str:
    """Why a tensor cannot be payload; "" where it can."""
    if is_wrapped(tensor):
        return "it lives inside a transformation (vmap, grad), where it has no values of its own"
    if type(tensor) in _PLAIN:
        return "" if _plain_type_name(tensor) else encoding_refusal(tensor)
    if isinstance(tensor, torch.nn.parameter.UninitializedParameter):
        return "it has no shape before the model has run once"
    if type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        return not_supported(tensor)
    return encoding_refusal(tensor)


def subsample(tensor: Tensor, limit_bytes: int) -> tuple[Tensor, int]:
    """A tensor, or a view of every n-th of its numbers that fits a byte limit, and that n."""
    if tensor.nbytes <= limit_bytes:
        return tensor, 1
    count, stride = tensor.numel(), -(-tensor.nbytes // limit_bytes)
    while math.gcd(stride, count) > 1:  # a stride that divides a row would always hit the same columns
        stride += 1
    if tensor.is_contiguous():
        return tensor.view(-1)[::stride], stride
    return _take_flat(tensor, torch.arange(0, count, stride, device=tensor.device)), stride


def _take_flat(tensor: Tensor, indices: Tensor) -> Tensor:
    """The numbers at these indices of the flattened tensor, without materializing that."""
    if tensor.element_size() == 1 and not tensor.dtype == torch.bool:
        return torch.take(tensor.view(torch.uint8), indices).view(tensor.dtype)  # torch.take lacks eight-bit types
    return torch.take(tensor, indices)


def all_finite(tensor: Tensor) -> bool:
    """Whether no number is NaN or infinite: one pass of summing, a second pass only where the sum overflows."""
    if tensor.dtype in _ALWAYS_FINITE or not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    for dimension, stride in enumerate(numbers.stride()):
        if stride == 0 and numbers.shape[dimension] > 1:
            numbers = numbers.narrow(dimension, 0, 1)  # a broadcast dimension repeats the same numbers
    if numbers.element_size() == 1:
        numbers = numbers.float()
    kind = torch.float64 if numbers.dtype == torch.float64 else torch.float32
    return math.isfinite(numbers.sum(dtype=kind).item()) or bool(torch.isfinite(numbers).all())


def tensors_in(value: Any, name: str, depth: int = 0) -> list[tuple[str, Tensor]]:
    """The tensors in a module's output, each with its name: of a pair "lstm.0" and "lstm.1"."""
    if isinstance(value, Tensor):
        return [(name, value)]
    if depth > 4:
        return []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        items = list(zip(value._fields, value))
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    elif hasattr(type(value), "__dataclass_fields__"):
        items = [(key, getattr(value, key, None)) for key in type(value).__dataclass_fields__]
    else:
        return []
    return [pair for key, item in items[:64] for pair in tensors_in(item, f"{name}.{key}", depth + 1)]


class ErrorGuard:
    """Context manager that reports errors; a third of the cost of `contextmanager`, as it runs at every step."""

    __slots__ = ("_report", "_what")

    def __init__(self, report: Report, what: str) -> None:
        self._report, self._what = report, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, Exception):
            return False
        self._report(f"{self._what} could not be watched: {type(error).__name__}: {error}")
        return True
