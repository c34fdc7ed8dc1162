"""Running one recorded operation again from given parents, without touching anything."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torcheer.capture.record.function_table import written_tensors
from torcheer.capture.record.recorder import Recorder, Row
from torcheer.capture.record.tensor_trees import leaves, replace
from torcheer.capture.torch_state import modes_on, restore_random
from torcheer.capture.values.byte_history import ALIGNMENT
from torcheer.capture.values.memory_layout import Geometry
from torcheer.capture.values.value_copies import copy_of

Run = Callable[[list[Tensor]], list[Tensor]]  # from parents to the tensors of a row


def run_again(
    recorder: Recorder, node: int, row: Row, parents: list[Tensor], modes: tuple[tuple[Any, ...], ...] = ((), ())
) -> list[Tensor]:
    """The tensors a row gives from these parents, under these function and dispatch modes; it touches nothing else."""
    call = row.call
    if call.mark and call.name == "output":
        return _edited(recorder, node, parents[:1], [])
    if call.mark and call.name == "alias":
        return [look_again(row.args, parents)]
    if call.mark and call.name == "edit":
        restore_random(row.args[1])
        return [row.args[0](parents[0])]
    fresh = iter(parents)
    args, kwargs = replace(row.args, fresh), replace(row.kwargs or {}, fresh)
    written = written_tensors(call, args, kwargs)
    if written:  # never write into a saved value, nor into the model
        copies = {id(tensor): _own(tensor) for tensor in written}
        fresh = iter([copies.get(id(tensor), tensor) for tensor in parents])
        args, kwargs = replace(row.args, fresh), replace(row.kwargs or {}, fresh)
        written = written_tensors(call, args, kwargs)
    with _settings(recorder, node, row):
        with modes_on(*modes):
            out = call.function(*args, **kwargs)
        results = _edited(recorder, node, leaves(out), written)
    known = {id(tensor) for tensor in results}
    return results + [tensor for tensor in written if id(tensor) not in known]


def _own(tensor: Tensor) -> Tensor:
    """A copy to be written to."""
    tangent = tangent_of(tensor)
    copied = copy_of(tensor).detach()
    return copied if tangent is None else forward_ad.make_dual(copied, tangent.clone())


def tangent_of(tensor: Tensor) -> Tensor | None:
    """The derivative that a tensor carries along in forward mode."""
    if forward_ad._current_level < 0 or type(tensor) not in (Tensor, torch.nn.Parameter):
        return None
    with torch._C.DisableTorchFunction():
        tangent: Tensor | None = forward_ad.unpack_dual(tensor).tangent
    return tangent


def _edited(recorder: Recorder, node: int, results: list[Tensor], written: list[Tensor]) -> list[Tensor]:
    """What the row's edits make of its results."""
    for slot, edit, state in recorder.edit_functions.get(node, ()):
        restore_random(state)
        new = edit(results[slot])
        if any(results[slot] is tensor for tensor in written):
            results[slot].copy_(new)
        else:
            results[slot] = new
    return results


def look_again(places: tuple[Geometry | None, ...], parents: list[Tensor]) -> Tensor:
    """An alias row: the old value with the later writes laid over it, in order."""
    own, *others = places
    old, *written = parents
    if own is None or any(place is None for place in others):
        return written[-1] if written else old
    shapes = [own, *(place for place in others if place is not None)]
    values = [old, *written]
    spans = [_bytes_of(place, value) for place, value in zip(shapes, values, strict=True)]
    first = min(begin for begin, _ in spans) // ALIGNMENT * ALIGNMENT
    memory = torch.empty(max(end for _, end in spans) - first, dtype=torch.uint8, device=old.device).untyped_storage()
    windows = [_window(memory, first, place, value) for place, value in zip(shapes, values, strict=True)]
    for window, value in zip(windows, values, strict=True):
        if value.shape == window.shape:
            window.copy_(value) if 0 not in window.stride() else _spread(window, value)
    return windows[0]


def _bytes_of(place: Geometry, value: Tensor) -> tuple[int, int]:
    sizes, strides, offset = place
    last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True) if n)
    return offset * value.element_size(), (last + 1) * value.element_size()


def _window(memory: Any, first: int, place: Geometry, value: Tensor) -> Tensor:
    """A place in a memory that begins at byte `first`: a write may have been of other numbers, complex for real."""
    sizes, strides, offset = place
    return torch.empty(0, dtype=value.dtype, device=value.device).set_(
        memory, offset - first // value.element_size(), sizes, strides
    )


def _spread(window: Tensor, value: Tensor) -> None:
    """Write an expanded value once per memory cell."""
    index = tuple(0 if stride == 0 else slice(None) for stride in window.stride())
    window[index].copy_(value[index])


@contextmanager
def _settings(recorder: Recorder, node: int, row: Row) -> Iterator[None]:
    """Torch's switches as they stood when the row ran."""
    outputs = leaves(row.out)
    with ExitStack() as stack:
        if outputs and _is_inference(outputs[0]):
            stack.enter_context(torch.inference_mode())
        else:
            stack.enter_context(torch.set_grad_enabled(any(tensor.requires_grad for tensor in outputs)))
        for device, enabled, dtype in recorder.autocast.get(node, ()):
            stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
        restore_random(recorder.random_states.get(node, {}))
        yield


def _is_inference(tensor: Tensor) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.is_inference()


@contextmanager
def memory_filled() -> Iterator[None]:
    """New memory that nobody has written to yet is NaN, or the largest number, while this lasts."""
    filling: Any = torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        filling.fill_uninitialized_memory,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.use_deterministic_algorithms(True, warn_only=True)
            filling.fill_uninitialized_memory = True
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            filling.fill_uninitialized_memory = before[2]
