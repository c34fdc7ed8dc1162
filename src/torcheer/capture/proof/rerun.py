"""Rerun one recorded operation from given parents, without side effects."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torcheer.capture.random_states import restore_random
from torcheer.capture.record.function_table import written_tensors
from torcheer.capture.record.recorder import OpRow, Recorder
from torcheer.capture.record.refs import SLOT_BITS
from torcheer.capture.record.released_values import RELEASED
from torcheer.capture.record.tensor_trees import leaves, replace
from torcheer.capture.special_cases.gathered_weights import exact_arguments
from torcheer.capture.torch_state import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    exact_modes,
    is_forward_ad_on,
)
from torcheer.capture.values.byte_history import ALIGNMENT
from torcheer.capture.values.memory_layout import Geometry
from torcheer.capture.values.value_copies import copy_of

Run = Callable[[list[Tensor]], list[Tensor]]  # from parents to the tensors of a row


def as_it_ran(recorder: Recorder, node: int) -> tuple[OpRow, list[Tensor], list[Tensor]]:
    """Return a row, the values that it was given and those that it gave; raises ValueUnavailable.

    A row that let its tensors go gets those that were saved.
    """
    row = recorder.row(node)
    results = [recorder.exact_value(node << SLOT_BITS | slot) for slot in range(len(recorder.outputs(node)))]
    parents = exact_arguments(recorder, row)
    if type(row.out) in RELEASED:
        row = row._replace(out=results)
        if not row.call.mark:
            fresh = iter(parents)
            row = row._replace(args=replace(row.args, fresh), kwargs=replace(row.kwargs or {}, fresh))
    return row, parents, results


def rerun_row(
    recorder: Recorder, node: int, row: OpRow, parents: list[Tensor], modes: tuple[tuple[Any, ...], ...] = ((), ())
) -> list[Tensor]:
    """Run a row on these parents, without side effects, and return its tensors.

    `modes` are the function and dispatch modes to run under.
    """
    call = row.call
    if call.mark and call.name == "output":
        return _apply_edits(recorder, node, parents[:1], [])
    if call.mark and call.name == "alias":
        return [replay_alias(row.args, parents)]
    if call.mark and call.name == "edit":
        restore_random(row.args[1])
        return [row.args[0](parents[0])]
    fresh = iter(parents)
    args, kwargs = replace(row.args, fresh), replace(row.kwargs or {}, fresh)
    written = written_tensors(call, args, kwargs)
    if written:  # never write into a saved value, nor into the model
        copies = {id(tensor): _writable_copy(tensor) for tensor in written}
        fresh = iter([copies.get(id(tensor), tensor) for tensor in parents])
        args, kwargs = replace(row.args, fresh), replace(row.kwargs or {}, fresh)
        written = written_tensors(call, args, kwargs)
    with _settings(recorder, node, row):
        with exact_modes(*modes):
            out = call.function(*args, **kwargs)
        results = _apply_edits(recorder, node, leaves(out), written)
    result_ids = {id(tensor) for tensor in results}
    return results + [tensor for tensor in written if id(tensor) not in result_ids]


def _writable_copy(tensor: Tensor) -> Tensor:
    """Copy a tensor that the operation will write to, with its tangent."""
    tangent = tangent_of(tensor)
    copied = copy_of(tensor).detach()
    return copied if tangent is None else forward_ad.make_dual(copied, tangent.clone())


def tangent_of(tensor: Tensor) -> Tensor | None:
    """Return a tensor's forward-mode tangent."""
    if not is_forward_ad_on() or type(tensor) not in (Tensor, torch.nn.Parameter):
        return None
    with DisableTorchFunction():
        tangent: Tensor | None = forward_ad.unpack_dual(tensor).tangent
    return tangent


def _apply_edits(recorder: Recorder, node: int, results: list[Tensor], written: list[Tensor]) -> list[Tensor]:
    """Apply the row's edits to its results."""
    for slot, edit, state in recorder.edit_functions.get(node, ()):
        restore_random(state)
        new = edit(results[slot])
        if any(results[slot] is tensor for tensor in written):
            results[slot].copy_(new)
        else:
            results[slot] = new
    return results


def replay_alias(places: tuple[Geometry | None, ...], parents: list[Tensor]) -> Tensor:
    """Replay an alias row: apply the later writes to the old value, in order."""
    region, *regions_written = places
    old, *written = parents
    if region is None or any(place is None for place in regions_written):
        return written[-1] if written else old
    shapes = [region, *(place for place in regions_written if place is not None)]
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
    """Return a region of a memory that begins at byte `first`.

    Its dtype may differ from the storage's original one: complex for real.
    """
    sizes, strides, offset = place
    return torch.empty(0, dtype=value.dtype, device=value.device).set_(
        memory, offset - first // value.element_size(), sizes, strides
    )


def _spread(window: Tensor, value: Tensor) -> None:
    """Write an expanded value once per memory location."""
    index = tuple(0 if stride == 0 else slice(None) for stride in window.stride())
    window[index].copy_(value[index])


@contextmanager
def _settings(recorder: Recorder, node: int, row: OpRow) -> Iterator[None]:
    """Restore torch's settings of when the row ran: grad mode, autocast, random state."""
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
    with DisableTorchFunctionSubclass():
        return tensor.is_inference()


@contextmanager
def memory_filled() -> Iterator[None]:
    """Fill uninitialised memory with NaN, or the largest integer, inside the block."""
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
