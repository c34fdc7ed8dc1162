"""A tensor into the ring: copied where it lies, once, by torch itself."""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from torcheer.encoding import refusal as encoding_refusal
from torcheer.encoding import type_name

Report = Callable[[str], None]
_BYTE = ctypes.c_char
_PLAIN = {Tensor, torch.nn.Parameter}
_USUAL = {  # need no closer look
    kind: type_name(kind) for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64)
}
_untouched, is_wrapped = torch._C.DisableTorchFunction, torch._C._functorch.is_functorch_wrapped_tensor


class Takes(Protocol):
    """What a tensor is offered to: a `Link`, a `Ring`, or who takes turns before them."""

    def offer(self, about: dict[str, Any], size_bytes: int, fill: Callable[[memoryview], None], /) -> bool:
        """Let `fill` write the bytes; False where there is no room."""


def offer(
    link: Takes,
    tensor: Tensor,
    *,
    layer: str,
    variable: str,
    step: int,
    limit_bytes: int = 8 << 20,
    minus: Tensor | None = None,
    report: Report | None = None,
    **extras: Any,
) -> bool:
    """Copy a tensor into the ring, or every n-th number of one that has more than `limit_bytes`.

    `minus` is taken from it on the way: the `part` of another tensor of its shape. False where the ring has no room, or
    the tensor cannot be sent; `report` is told why. The other settings are those of `Delivery`.
    """
    with _untouched():
        plain = local(tensor)
        if minus is None and (name := _simple(plain)) and 0 < (size := plain.nbytes) <= limit_bytes:
            about = {"layer": layer, "variable": variable, "item": -1, "step": step, "type": name, "time_secs": 0.0,
                     "shape": list(plain.shape), **extras}  # fmt: skip
            about["time_secs"] = about["time_secs"] or time.time()
            return link.offer(about, size, moving(plain.data_ptr(), size))
        if reason := refusal(plain):
            if report is not None:
                report(f"{layer} ({variable}) is not sent: {reason}")
            return False
        plain = plain.detach()
        sent, stride = part(plain, limit_bytes)
        about = describe(plain, sent, stride, layer=layer, variable=variable, step=step, **extras)
        if stride > 1 and minus is None:
            about["finite"] = all_finite(plain)
        return link.offer(about, sent.nbytes, _filling(sent, minus))


def describe(whole: Tensor, sent: Tensor, stride: int, *, time_secs: float = 0.0, **extras: Any) -> dict[str, Any]:
    """What a record says of a tensor of which `sent` travels."""
    extras.setdefault("item", -1)
    extras["type"], extras["time_secs"] = type_name(sent.dtype), time_secs or time.time()
    extras["shape"] = list(sent.shape) if stride == 1 else [sent.numel()]
    about = extras
    if not whole.is_cpu:
        about["device"] = str(whole.device)
    if stride > 1:
        about |= {"stride": stride, "whole": list(whole.shape)}
    return about


def _simple(tensor: Tensor) -> str:
    """The name of a tensor's type, where it is one of the usual whose bytes can be copied as they lie; else ""."""
    if type(tensor) not in _PLAIN or is_wrapped(tensor) or not tensor.is_cpu or tensor.is_nested:
        return ""
    plain = tensor.layout is torch.strided and tensor.is_contiguous() and not tensor.is_neg()
    return _USUAL.get(tensor.dtype, "") if plain else ""


def moving(address: int, size_bytes: int) -> Callable[[memoryview], None]:
    """What fills a place with the bytes that lie at an address, for as long as they do."""

    def fill(view: memoryview) -> None:
        ctypes.memmove(ctypes.addressof(_BYTE.from_buffer(view)), address, size_bytes)

    return fill


def _filling(sent: Tensor, minus: Tensor | None) -> Callable[[memoryview], None]:
    def fill(view: memoryview) -> None:
        if not sent.numel():
            return  # torch refuses memory of no bytes
        place = torch.frombuffer(view, dtype=sent.dtype)
        if minus is None:
            place.view(sent.shape).copy_(sent)
        elif sent.element_size() == 1:  # eight bits are for keeping, not for arithmetic
            place.view(sent.shape).copy_(sent.float() - minus.float())
        else:
            torch.sub(sent, minus, out=place.view(sent.shape))

    return fill


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor that is spread over several."""
    if type(tensor) in _PLAIN:
        return tensor
    return tensor._local_tensor if hasattr(tensor, "_local_tensor") else tensor


def refusal(tensor: Tensor) -> str:
    """Why a tensor cannot be sent; "" where it can."""
    if is_wrapped(tensor):
        return "it lives inside a transformation (vmap, grad), where it has no values of its own"
    if type(tensor) in _PLAIN:
        return "" if _simple(tensor) else encoding_refusal(tensor)
    if isinstance(tensor, torch.nn.parameter.UninitializedParameter):
        return "it has no shape before the model has run once"
    if type(tensor).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        return f"a {type(tensor).__name__} keeps its numbers in its own way"
    return encoding_refusal(tensor)


def part(tensor: Tensor, limit_bytes: int) -> tuple[Tensor, int]:
    """A tensor, or a view of every n-th of its numbers that keeps to a limit, and that n."""
    if tensor.nbytes <= limit_bytes:
        return tensor, 1
    count, stride = tensor.numel(), -(-tensor.nbytes // limit_bytes)
    while math.gcd(stride, count) > 1:  # one that divides a row would always meet the same columns
        stride += 1
    if tensor.is_contiguous():
        return tensor.view(-1)[::stride], stride
    return _taken(tensor, torch.arange(0, count, stride, device=tensor.device)), stride


def _taken(tensor: Tensor, places: Tensor) -> Tensor:
    """The numbers at these places of the flattened tensor, which is never made."""
    if tensor.element_size() == 1 and not tensor.dtype == torch.bool:
        return torch.take(tensor.view(torch.uint8), places).view(tensor.dtype)  # torch takes no numbers of eight bits
    return torch.take(tensor, places)


def all_finite(tensor: Tensor) -> bool:
    """Whether no number is NaN or infinite; one pass of adding, a second look only where that overflows."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    for dimension, stride in enumerate(numbers.stride()):
        if stride == 0 and numbers.shape[dimension] > 1:
            numbers = numbers.narrow(dimension, 0, 1)  # the same numbers again and again
    if numbers.element_size() == 1:
        numbers = numbers.float()
    kind = torch.float64 if numbers.dtype == torch.float64 else torch.float32
    return math.isfinite(numbers.sum(dtype=kind).item()) or bool(torch.isfinite(numbers).all())


def tensors_in(value: Any, name: str, depth: int = 0) -> list[tuple[str, Tensor]]:
    """The tensors of what a module returned, each with its name: of a pair "lstm.0" and "lstm.1"."""
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


def rank_of() -> tuple[int, int]:
    """Which of how many processes this is."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))  # torchrun's, before they have met
