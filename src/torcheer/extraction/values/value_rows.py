"""The selected layers' values of one batch: padding left out, and as samples that can be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torcheer.archive.format.archive_writer import StreamedValue
from torcheer.encoding import refusal, type_name
from torcheer.errors import BadArgument
from torcheer.records import Sample
from torcheer.tap.device_copies import host_blocks
from torcheer.terminal import did_you_mean, human_shape

Values = dict[str, Tensor | list[Tensor]]  # a tensor of the whole batch, or a list of one tensor for each sample
Mask = str | Callable[[Any], Any] | None  # a key of the batch, or a function of it


@dataclass(frozen=True, slots=True)
class BatchValues:
    """Values of one batch."""

    values: Values
    count: int  # of samples
    lengths: list[int] | None = None  # of masked layers: how many positions of each sample are kept
    masked: tuple[str, ...] = ()  # layers whose first dimension are the kept positions of all samples

    @property
    def bytes(self) -> int:
        """Return the size of all values."""
        tensors = (tensor for value in self.values.values() for tensor in tensor_list(value))
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def items(self) -> Iterator[tuple[str, int, Tensor]]:
        """Yield each tensor with its layer and the sample that it is of; -1 for one of the whole batch."""
        for name, value in self.values.items():
            if isinstance(value, list):
                yield from ((name, item, row) for item, row in enumerate(value))
            else:
                yield name, -1, value

    def rows(self, layer: str) -> Tensor | list[Tensor]:
        """Return a layer's values by sample: a tensor, or a list where they differ."""
        value = self.values[layer]
        if layer not in self.masked or isinstance(value, list):
            return value
        assert self.lengths is not None
        return list(torch.split(value, self.lengths))


def tensor_list(value: Tensor | list[Tensor]) -> list[Tensor]:
    """Return the tensors of a layer's value."""
    return value if isinstance(value, list) else [value]


# -- padding -----------------------------------------------------------------------------------------------------------


def check_mask(mask: Any) -> Mask:
    """Return a mask as it was given; raise where it is none."""
    if mask is None or isinstance(mask, str) or callable(mask):
        return mask  # type: ignore[no-any-return]
    raise BadArgument(
        f"mask={mask!r}: give the key of a batch, such as 'attention_mask', or a function of the batch that returns "
        f"which positions of each sample to keep"
    )


def leave_out_padding(values: Values, mask: Mask, given: Any, count: int) -> tuple[Values, list[int], tuple[str, ...]]:
    """Keep the positions that the mask marks; return the values, each sample's length, and the layers that it fits."""
    keep = _kept_positions(mask, given, count)
    fitting = {
        name: value
        for name, value in values.items()
        if isinstance(value, Tensor) and value.shape[: keep.ndim] == keep.shape
    }
    if not fitting:
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        shapes = ", ".join(f"{name} {human_shape(value.shape)}" for name, value in tensors.items())
        raise BadArgument(f"mask is {human_shape(keep.shape)}, and no layer begins so: {shapes}")
    places = keep.reshape(-1).nonzero()[:, 0]  # on the mask's device, mostly the CPU: a GPU would have to be waited for
    short = {
        name: value.reshape(-1, *value.shape[keep.ndim :]).index_select(0, places.to(value.device, non_blocking=True))
        for name, value in fitting.items()
    }
    return {**values, **short}, keep.reshape(count, -1).sum(1).tolist(), tuple(fitting)


def _kept_positions(mask: Mask, given: Any, count: int) -> Tensor:
    """Return which positions of each sample to keep."""
    if isinstance(mask, str):
        if not isinstance(given, Mapping) or mask not in given:
            keys = list(given) if isinstance(given, Mapping) else []
            there = f"it has {', '.join(map(str, keys))}" if keys else f"it is a {type(given).__name__}"
            hint = did_you_mean(mask, keys) or " Give a function of the batch."
            raise BadArgument(f"mask={mask!r}: the batch has no such key; {there}.{hint}")
        keep = given[mask]
    else:
        assert mask is not None
        keep = mask(given)
    try:
        keep = torch.as_tensor(keep)
    except (TypeError, ValueError, RuntimeError):
        raise BadArgument(
            f"mask gives a {type(keep).__name__} for a batch of {count}; it needs a tensor with {count} rows of "
            "positions"
        ) from None
    if keep.ndim < 2 or len(keep) != count:
        raise BadArgument(
            f"mask is {human_shape(keep.shape)} for a batch of {count}; it needs {count} rows of positions"
        )
    return keep if keep.dtype is torch.bool else keep != 0


# -- off the device, to the archive ------------------------------------------------------------------------------------


def sample_maker(
    batch: BatchValues, number: int, extras: Sequence[tuple[str, str, Tensor]] = ()
) -> Callable[[], list[Sample]]:
    """Return a function that makes the samples to write: the layers, and other variables of them.

    Values on a GPU are copied as they are written, while the next batch runs.
    """
    events = record_events(batch.values)
    values = [(name, "value", item, tensor) for name, item, tensor in batch.items()]
    values += [(name, variable, -1, tensor) for name, variable, tensor in extras]

    def make() -> list[Sample]:
        return [
            Sample(number, name, variable, item, _streamed(tensor, events)) for name, variable, item, tensor in values
        ]

    return make


def record_events(values: Values) -> dict[torch.device, Any]:
    """Record a CUDA event after the values on each GPU that holds some."""
    gpus = {tensor.device for value in values.values() for tensor in tensor_list(value) if tensor.is_cuda}
    return {gpu: torch.cuda.current_stream(gpu).record_event() for gpu in gpus}


def copy_to(target: Tensor, tensor: Tensor, events: dict[torch.device, Any]) -> None:
    """Copy a tensor into one on the CPU, from a GPU through this thread's pinned blocks."""
    if not tensor.is_cuda or not tensor.numel():
        target.copy_(tensor)
        return
    data, start = target.reshape(-1).view(torch.uint8).numpy(), 0
    for block in host_blocks(tensor, events[tensor.device]):
        data[start : start + len(block)] = block
        start += len(block)


def _streamed(tensor: Tensor, events: dict[torch.device, Any]) -> Tensor | StreamedValue:
    """Return what the archive writes of a tensor: itself, or its bytes as they come off a GPU."""
    if not tensor.is_cuda or not tensor.numel() or refusal(tensor):
        return tensor
    size = tensor.numel() * tensor.element_size()
    blocks = partial(host_blocks, tensor, events[tensor.device])
    return StreamedValue(type_name(tensor.dtype), tuple(tensor.shape), size, blocks)
