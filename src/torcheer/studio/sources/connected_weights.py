"""The weights of one unit, as values of the units at the other end.

`GAP` where there is no connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.network.network_records import Layer, Projection
from torcheer.studio.sources.layer_frames import GAP

Array = NDArray[Any]
Floats = NDArray[np.float32]


class Part(NamedTuple):
    """Weights as stored: all of a projection, or those of one unit."""

    array: Array
    whole: bool


def into(projection: Projection, part: Part, receiver: Layer, sender: Layer, unit: int) -> Floats | None:
    """The weights into a receiving unit, one for each unit of the sender.

    None if they do not fit the layers.
    """
    if not 0 <= unit < prod(receiver.shape):
        return None
    find = _conv_into if projection.kind == "conv" else _linear_into
    return find(projection, part, receiver, sender, unit)


def out_of(projection: Projection, part: Part, receiver: Layer, sender: Layer, unit: int) -> Floats | None:
    """The weights out of a sending unit, one for each unit of the receiver."""
    if not 0 <= unit < prod(sender.shape):
        return None
    find = _conv_out_of if projection.kind == "conv" else _linear_out_of
    return find(projection, part, receiver, sender, unit)


# -- matrices ----------------------------------------------------------------------------------------------------------


def _linear_into(projection: Projection, part: Part, receiver: Layer, sender: Layer, unit: int) -> Floats | None:
    sizes = _matrix(projection, part)
    if sizes is None:
        return None
    row = part.array.reshape(sizes)[unit % sizes[0]] if part.whole else part.array.reshape(-1)
    return _spread_line(row, sizes[1], sizes[0], unit, prod(receiver.shape), prod(sender.shape))


def _linear_out_of(projection: Projection, part: Part, receiver: Layer, sender: Layer, unit: int) -> Floats | None:
    sizes = _matrix(projection, part)
    if sizes is None:
        return None
    column = part.array.reshape(sizes)[:, unit % sizes[1]] if part.whole else part.array.reshape(-1)
    return _spread_line(column, sizes[0], sizes[1], unit, prod(sender.shape), prod(receiver.shape))


def _matrix(projection: Projection, part: Part) -> tuple[int, int] | None:
    """The matrix's number of receiving units, and of sending units."""
    shape = part.array.shape if part.whole else tuple(projection.shape)
    if len(shape) < 2 or not prod(shape):
        return None
    return shape[0], prod(shape[1:])


def _spread_line(line: Array, length: int, period: int, unit: int, near: int, far: int) -> Floats | None:
    """Lay a row or column over the far layer; with many tokens, only over the unit's own token."""
    if line.size != length or near % period or far % length:
        return None
    near_times, far_times = near // period, far // length
    if near_times == far_times:
        values = np.full((far_times, length), GAP, np.float32)
        values[unit // period] = line
        return values.reshape(-1)
    if near_times == 1 or far_times == 1:  # one side is broadcast over the other
        return np.tile(line.astype(np.float32), far_times)
    return None


# -- convolutions ------------------------------------------------------------------------------------------------------


class _Conv(NamedTuple):
    """A convolution's sizes and settings."""

    outs: int  # channels
    ins: int
    groups: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    out_size: tuple[int, ...]
    in_size: tuple[int, ...]


def _conv(projection: Projection, part: Part, receiver: Layer, sender: Layer) -> _Conv | None:
    shape = part.array.shape if part.whole else tuple(projection.shape)
    axes = len(shape) - 2
    if axes < 1 or len(receiver.shape) != axes + 1 or len(sender.shape) != axes + 1:
        return None
    stride, padding, dilation = (
        _each(setting, default, axes)
        for setting, default in ((projection.stride, 1), (projection.padding, 0), (projection.dilation, 1))
    )
    outs, ins, groups = receiver.shape[0], sender.shape[0], projection.groups
    if groups < 1 or shape[0] != outs or shape[1] * groups != ins or outs % groups or min(stride + dilation) < 1:
        return None
    conv = _Conv(outs, ins, groups, shape[2:], stride, padding, dilation, receiver.shape[1:], sender.shape[1:])
    return conv if all(_fits(conv, axis) for axis in range(axes)) else None


def _each(setting: Sequence[int], default: int, axes: int) -> tuple[int, ...]:
    if len(setting) == axes:
        return tuple(setting)
    return (setting[0] if len(setting) == 1 else default,) * axes


def _fits(conv: _Conv, axis: int) -> bool:
    """True if the receiver has the convolution's output size.

    Padding may be one more at the end.
    """
    reach = conv.dilation[axis] * (conv.kernel[axis] - 1) + 1
    room = conv.in_size[axis] + 2 * conv.padding[axis] - reach
    return conv.out_size[axis] in {(room + more) // conv.stride[axis] + 1 for more in (0, 1)}


def _conv_into(projection: Projection, part: Part, receiver: Layer, sender: Layer, unit: int) -> Floats | None:
    """The receptive field: a patch of each channel of its group."""
    conv = _conv(projection, part, receiver, sender)
    if conv is None:
        return None
    out, *at = (int(position) for position in np.unravel_index(unit, receiver.shape))
    each = conv.ins // conv.groups
    row = part.array[out] if part.whole else part.array
    if row.size != each * prod(conv.kernel):
        return None
    row = row.reshape(each, *conv.kernel)
    taps, places = [], []
    for axis, y in enumerate(at):
        tap = np.arange(conv.kernel[axis])
        place = y * conv.stride[axis] - conv.padding[axis] + tap * conv.dilation[axis]
        good = (place >= 0) & (place < conv.in_size[axis])
        taps.append(tap[good])
        places.append(place[good])
    first = out // (conv.outs // conv.groups) * each
    return _put(sender.shape, np.arange(first, first + each), places, row[np.ix_(np.arange(each), *taps)])


def _conv_out_of(projection: Projection, part: Part, receiver: Layer, sender: Layer, unit: int) -> Floats | None:
    """The units that read a sending unit: a (strided) patch of each channel of its group."""
    conv = _conv(projection, part, receiver, sender)
    if conv is None:
        return None
    source, *at = (int(position) for position in np.unravel_index(unit, sender.shape))
    inner, outer = conv.ins // conv.groups, conv.outs // conv.groups
    maps = np.arange(outer) + source // inner * outer
    columns = _columns(part, conv, maps, source % inner)
    if columns is None:
        return None
    taps, places = [], []
    for axis, x in enumerate(at):
        tap = np.arange(conv.kernel[axis])
        place, remainder = np.divmod(x + conv.padding[axis] - tap * conv.dilation[axis], conv.stride[axis])
        good = (remainder == 0) & (place >= 0) & (place < conv.out_size[axis])
        taps.append(tap[good])
        places.append(place[good])
    return _put(receiver.shape, maps, places, columns[np.ix_(np.arange(outer), *taps)])


def _columns(part: Part, conv: _Conv, maps: Array, inner: int) -> Array | None:
    """The kernels that read one sending channel.

    A stored part has those of its group or of all channels.
    """
    if part.whole:
        kernels: Array = part.array[maps, inner]
        return kernels
    for count in (conv.outs, len(maps)):
        if part.array.size == count * prod(conv.kernel):
            stored = part.array.reshape(count, *conv.kernel)
            return stored[maps] if count == conv.outs else stored
    return None


def _put(shape: Sequence[int], maps: Array, places: Sequence[Array], values: Array) -> Floats:
    values_of_units = np.full(tuple(shape), GAP, np.float32)
    values_of_units[np.ix_(maps, *places)] = values
    return values_of_units.reshape(-1)
