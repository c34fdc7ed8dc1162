"""Rerun one recorded operation from given parents, without side effects."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from torcheer.capture.ambient_state import default_settings, restore_random
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
from torcheer.capture.values.memory_layout import Geometry
from torcheer.capture.values.value_copies import ALIGNMENT, copy_of


class Run(Protocol):
    """Runs a row again: from values of its parents to its tensors."""

    def __call__(self, parents: list[Tensor], /, *, is_edited: bool = True) -> list[Tensor]: ...


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
    recorder: Recorder,
    node: int,
    row: OpRow,
    parents: list[Tensor],
    modes: tuple[tuple[Any, ...], ...] = ((), ()),
    *,
    is_edited: bool = True,
) -> list[Tensor]:
    """Run a row on these parents, without side effects, and return its tensors.

    `modes` are the function and dispatch modes to run under; `is_edited`: with the edits of its results.
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
        fresh = iter(_as_they_overlapped(recorder, node, [copies.get(id(tensor), tensor) for tensor in parents]))
        args, kwargs = replace(row.args, fresh), replace(row.kwargs or {}, fresh)
        written = written_tensors(call, args, kwargs)
    with _settings(recorder, node, row):
        with exact_modes(*modes), default_settings(recorder, node):
            out = call.function(*args, **kwargs)
        results = leaves(out)
        if is_edited:
            results = _apply_edits(recorder, node, results, written)
    result_ids = {id(tensor) for tensor in results}
    return results + [tensor for tensor in written if id(tensor) not in result_ids]


def _as_they_overlapped(recorder: Recorder, node: int, parents: list[Tensor]) -> list[Tensor]:
    """Return the arguments of a row that reads where it writes, in one memory as they were."""
    places = recorder.overlaps.get(node)
    if places is None:
        return parents
    shared = [(place, parent) for place, parent in zip(places, parents, strict=True) if place is not None]
    windows = iter(shared_memory(*zip(*shared, strict=True)))
    return [parent if place is None else next(windows) for place, parent in zip(places, parents, strict=True)]


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
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return parents[-1]
    return shared_memory(known, parents)[0]


def shared_memory(places: Sequence[Geometry], values: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors that lie in one memory as the originals did, the values written there in order."""
    spans = [_bytes_of(place, value) for place, value in zip(places, values, strict=True)]
    first = min(begin for begin, _ in spans) // ALIGNMENT * ALIGNMENT
    size = max(end for _, end in spans) - first
    memory = torch.empty(size, dtype=torch.uint8, device=values[0].device).untyped_storage()
    windows = [_window(memory, first, place, value) for place, value in zip(places, values, strict=True)]
    for window, value in zip(windows, values, strict=True):
        if value.shape == window.shape:
            window.copy_(value) if 0 not in window.stride() else _spread(window, value)
    return windows


def _bytes_of(place: Geometry, value: Tensor) -> tuple[int, int]:
    last = place.offset + sum((n - 1) * s for n, s in zip(place.sizes, place.strides, strict=True) if n)
    return place.offset * value.element_size(), (last + 1) * value.element_size()


def _window(memory: Any, first: int, place: Geometry, value: Tensor) -> Tensor:
    """Return a region of a memory that begins at byte `first`.

    Its dtype may differ from the storage's original one: complex for real.
    """
    if place.is_neg:  # only the imaginary part of a conjugate is read with its sign changed
        strides = tuple(step // 2 for step in place.strides)
        whole = Geometry(place.sizes, strides, place.offset // 2, is_conj=True, is_neg=False)
        return _window(memory, first, whole, value.to(value.dtype.to_complex())).imag
    window = torch.empty(0, dtype=value.dtype, device=value.device)
    window.set_(memory, place.offset - first // value.element_size(), place.sizes, place.strides)
    return window.conj() if place.is_conj else window


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
