"""Running one recorded operation again from given parents, without touching anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor

from torcheer.capture.calls import written_tensors
from torcheer.capture.memory import Geometry, copy_of, same_bits
from torcheer.capture.recorder import Recorder, Row
from torcheer.capture.state import restore_random
from torcheer.capture.trees import leaves, replace


def run_again(recorder: Recorder, node: int, row: Row, parents: list[Tensor]) -> list[Tensor]:
    """The tensors a row gives from these parents; nothing outside is touched."""
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
        copies = {id(tensor): copy_of(tensor).detach() for tensor in written}
        fresh = iter([copies.get(id(tensor), tensor) for tensor in parents])
        args, kwargs = replace(row.args, fresh), replace(row.kwargs or {}, fresh)
        written = written_tensors(call, args, kwargs)
    with _settings(recorder, node, row):
        out = call.function(*args, **kwargs)
        results = _edited(recorder, node, leaves(out), written)
    known = {id(tensor) for tensor in results}
    return results + [tensor for tensor in written if id(tensor) not in known]


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
    first = min(offset for _, _, offset in shapes)
    last = max(
        offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True) if n) for sizes, strides, offset in shapes
    )
    memory = torch.empty(last - first + 1, dtype=old.dtype, device=old.device)
    result = None
    for (sizes, strides, offset), value in zip(shapes, [old, *written], strict=True):
        window = memory.as_strided(sizes, strides, offset - first)
        if value.shape == window.shape and value.dtype == window.dtype:
            window.copy_(value) if 0 not in strides else _spread(window, value)
    sizes, strides, offset = own
    result = memory.as_strided(sizes, strides, offset - first)
    return result


def _spread(window: Tensor, value: Tensor) -> None:
    """Write an expanded value once per memory cell."""
    index = tuple(0 if stride == 0 else slice(None) for stride in window.stride())
    window[index].copy_(value[index])


def equal_values(one: Tensor, other: Tensor) -> bool:
    """Bit-equal in every form a tensor takes."""
    if one.is_nested and other.is_nested:
        return all(same_bits(a, b) for a, b in zip(one.unbind(), other.unbind(), strict=True))
    if one.shape != other.shape or one.dtype != other.dtype or one.layout != other.layout:
        return False
    if one.device.type == "meta":
        return True
    if one.layout is torch.sparse_coo:
        a, b = one.coalesce(), other.coalesce()
        return same_bits(a.indices(), b.indices()) and same_bits(a.values(), b.values())
    if one.layout is not torch.strided:
        return same_bits(one.to_dense(), other.to_dense())
    if one.is_quantized:
        return same_bits(one.int_repr(), other.int_repr())
    return same_bits(one, other)


def largest_difference(one: Tensor, other: Tensor) -> float:
    """How far two values are apart, for the report."""
    try:
        return float((one.detach().to(torch.float64) - other.detach().to(torch.float64)).abs().max())
    except (RuntimeError, TypeError):
        return float("nan")


@contextmanager
def _settings(recorder: Recorder, node: int, row: Row) -> Iterator[None]:
    """Torch's switches as they stood when the row ran."""
    with ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(any(tensor.requires_grad for tensor in leaves(row.out))))
        for device, enabled, dtype in recorder.autocast.get(node, ()):
            stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
        restore_random(recorder.random_states.get(node, {}))
        yield
