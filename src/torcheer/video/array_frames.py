"""Draw an array as a video frame: heat map, tiles, histogram, points or one number, with a caption."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torcheer.errors import BadArgument
from torcheer.video import frame_plots, palette
from torcheer.video.array_display import Facts, core, matrix, numbers
from torcheer.video.frame_layout import Caption, FrameLayout
from torcheer.video.frame_plots import SIZE, Frame, Room
from torcheer.video.value_range import Scale, label
from torcheer.vocabulary.array_statistics import finite_part

MODES = ("auto", "heat", "tiles", "histogram", "pca", "force2D")
MOST_POINTS, MOST_FEATURES = 2000, 192  # of a projection: its cost grows with the cube of the features


@dataclass(slots=True)
class Running:
    """State shared by the frames of one key, so that a video does not flicker."""

    values: Scale = field(default_factory=Scale)
    tops: Scale = field(default_factory=Scale)  # of a histogram's bars
    points: tuple[Scale, Scale] = field(default_factory=lambda: (Scale(), Scale()))
    axes: NDArray[Any] | None = None  # of the last projection
    past: deque[float] = field(default_factory=lambda: deque(maxlen=500))  # of a single number


def draw(
    array: Any,
    caption: Caption | None = None,
    *,
    size: tuple[int, int] = SIZE,
    mode: str = "auto",
    running: Running | None = None,
    batch: bool = True,
) -> Frame:
    """Draw `array` as an RGB frame of `size` (width, height).

    `running` is what the frames of a video share; `batch` says that the first of four axes counts items, of which the
    first is drawn. All numpy types are supported, and those of ml_dtypes.
    """
    running = running or Running()
    values, facts = numbers(array)
    page = FrameLayout(size, caption or Caption(), facts)
    kind = kind_of(values.shape, mode)
    with np.errstate(all="ignore"):
        if kind not in ("empty", "points"):
            running.values.follow(*_shown_ends(values, facts, kind, batch))
        note = _PAINTERS[kind](page, values, running, batch)
    return page.finish(note)


def _shown_ends(values: NDArray[Any], facts: Facts, kind: str, batch: bool) -> tuple[float, float]:
    """The smallest and the largest number that will be drawn."""
    if kind == "tiles" and batch and len(core(values.shape)) == 4:
        return finite_part(values.reshape(core(values.shape))[0])[1:3]
    return facts.minimum, facts.maximum


def kind_of(shape: Sequence[int], mode: str = "auto") -> str:
    """The kind of picture for an array of this shape: "heat", "tiles", "histogram", "points", "number" or "empty"."""
    if mode not in MODES:
        raise BadArgument(f"no mode of pictures named {mode!r}; known are {', '.join(MODES)}")
    lengths = core(shape)
    if 0 in shape:
        return "empty"
    if not lengths:
        return "number"
    if mode in ("heat", "force2D"):
        return "heat"
    if mode == "histogram" or len(lengths) == 1:
        return "histogram"
    if mode == "pca":
        return "points"
    return {2: "heat", 3: "tiles", 4: "tiles"}.get(len(lengths), "heat" if mode == "tiles" else "histogram")


# Painters: each draws into the page and returns a note for its foot


def _heat(page: FrameLayout, values: NDArray[Any], running: Running, batch: bool) -> str:
    cells, blank = matrix(values)
    return frame_plots.heat(page.frame, page.bar(running.values), cells, running.values, blank)


def _tiles(page: FrameLayout, values: NDArray[Any], running: Running, batch: bool) -> str:
    values = values.reshape(core(values.shape))
    first = ""
    if values.ndim == 4 and batch:
        first, values = f"the first of {len(values)} items: ", values[0]
    maps = values.reshape(-1, *values.shape[-2:])
    return first + frame_plots.tiles(page.frame, page.bar(running.values), maps, running.values)


def _histogram(page: FrameLayout, values: NDArray[Any], running: Running, batch: bool) -> str:
    scale, room = running.values, page.room
    if math.isnan(page.facts.minimum):
        return _words(page, "no finite number")
    if page.lettered:
        left, above, below = round(page.em * 3.2), round(page.em * 0.8), round(page.em * 1.2)
        room = Room(room.left + left, room.top + above, room.right, room.bottom - below)
    is_integer = page.facts.whole and scale.high - scale.low < room.width // 8
    bins = round(scale.high - scale.low) + 1 if is_integer else max(4, room.width // 10)
    shares = frame_plots.shares(values, scale, bins)
    running.tops.follow(0.0, float(shares.max()))
    top = min(running.tops.high, 1.0)
    for part in (0.0, 0.5, 1.0):
        y = room.bottom - round(part * room.height)
        page.frame[y : y + 1, room.left : room.right] = palette.LINE
        page.say(room.left - page.em / 2, y, f"{label(part * top * 100)}%", anchor="rm")
    frame_plots.bars(page.frame, room, shares / top)
    _ticks(page, room, scale, bins if is_integer else 0)
    return ""


def _ticks(page: FrameLayout, room: Room, scale: Scale, bins: int) -> None:
    """The numbers below a histogram; whole ones stand below the middle of their bar."""
    inset = room.width / bins / 2 if bins else 0.0
    parts = ((0.0, "l"), (0.5, "m"), (1.0, "r")) if scale.low < scale.high else ((0.0, "l"),)
    for part, anchor in parts:
        number = scale.low + (scale.high / 2 - scale.low / 2) * part * 2
        x = room.left + inset + part * (room.width - 2 * inset)
        if not bins or number == round(number):
            page.say(x, room.bottom + page.em * 1.6, label(number), anchor=("m" if bins else anchor) + "s")


def _points(page: FrameLayout, values: NDArray[Any], running: Running, batch: bool) -> str:
    lengths = core(values.shape)
    rows = values.reshape(math.prod(lengths[: max(1, min(2, len(lengths) - 1))]), -1)
    rows = rows[:: -(-len(rows) // MOST_POINTS), :: -(-rows.shape[1] // MOST_FEATURES)].astype(np.float64)
    rows = rows[np.isfinite(rows).all(1)]
    if len(rows) < 2:
        return _words(page, "too few finite rows to project")
    projected, running.axes, parts = project(rows, running.axes)
    room = page.room
    for scale, along in zip(running.points, projected.T):
        scale.signed = True
        scale.follow(float(along.min()), float(along.max()))
    across, up = ((along / (scale.high or 1.0) + 1) / 2 for scale, along in zip(running.points, projected.T))
    frame_plots.outline(page.frame, room)
    page.frame[(room.top + room.bottom) // 2, room.left : room.right] = palette.LINE
    page.frame[room.top : room.bottom, (room.left + room.right) // 2] = palette.LINE
    frame_plots.points(page.frame, room, across, up, max(2, round(page.em / 3)))
    return f"{len(rows)} rows, dark to light; the axes hold {parts[0]:.0%} and {parts[1]:.0%} of their variance"


def project(
    rows: NDArray[np.float64], previous_axes: NDArray[Any] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Project rows on their two principal axes; returns the points, the axes, and the shares of the variance.

    The axes keep the direction of the previous ones: their sign is arbitrary, and a video would jump.
    """
    size = np.abs(rows).max() or 1.0  # so that no square overflows
    centred = rows / size - (rows / size).mean(0)
    variances, axes = np.linalg.eigh(centred.T @ centred)
    variances, axes = np.maximum(variances[::-1], 0), axes[:, ::-1]
    if axes.shape[1] == 1:
        variances, axes = np.append(variances, 0.0), np.append(axes, np.zeros_like(axes), 1)
    axes = axes[:, :2]
    reference = previous_axes if previous_axes is not None and previous_axes.shape == axes.shape else np.ones_like(axes)
    axes = axes * np.where((axes * reference).sum(0) < 0, -1.0, 1.0)
    return centred @ axes * size, axes, variances[:2] / (variances.sum() or 1.0)


def _number(page: FrameLayout, values: NDArray[Any], running: Running, batch: bool) -> str:
    value, em = float(values.reshape(-1)[0]), page.em
    running.past.append(value)
    finite = [number for number in running.past if math.isfinite(number)]
    scale = Scale()  # of all past numbers that are shown, not only this one
    scale.follow(min(finite, default=math.nan), max(finite, default=math.nan))
    room = Room(round(page.room.left + em * 3.8), round(page.room.top + em * 6), page.room.right, page.room.bottom)
    page.say(page.wide / 2, page.room.top + em * 4, f"{value:.6g}", anchor="ms", size=em * 3.5, colour=palette.INK,
             room=page.room.width)  # fmt: skip
    if len(finite) > 1 and room.height > em * 3:
        for y, end in ((room.top, scale.high), (room.bottom - 1, scale.low)):
            page.frame[y, room.left : room.right] = palette.LINE
            page.say(room.left - em / 2, y, label(end), anchor="rm")
        page.lines.extend(curve(list(running.past), room, scale))
    return f"the last {len(running.past)} values" if len(finite) > 1 else ""


def curve(past: list[float], room: Room, scale: Scale) -> list[list[tuple[float, float]]]:
    """Numbers over time as line segments, interrupted where a number is not finite."""
    pieces: list[list[tuple[float, float]]] = [[]]
    half = (scale.high / 2 - scale.low / 2) or 1.0
    for index, value in enumerate(past):
        if math.isfinite(value):
            across, up = index / (len(past) - 1), (value / 2 - scale.low / 2) / half
            pieces[-1].append((room.left + across * (room.width - 1), room.bottom - 1 - up * (room.height - 1)))
        else:
            pieces.append([])
    return [piece for piece in pieces if len(piece) > 1]


def _empty(page: FrameLayout, values: NDArray[Any], running: Running, batch: bool) -> str:
    return _words(page, "empty")


def _words(page: FrameLayout, text: str) -> str:
    room = page.room
    page.say(
        (room.left + room.right) / 2,
        (room.top + room.bottom) / 2,
        text,
        anchor="mm",
        size=page.em * 1.6,
        room=room.width,
    )
    return ""


_PAINTERS = {
    "heat": _heat, "tiles": _tiles, "histogram": _histogram, "points": _points, "number": _number, "empty": _empty,
}  # fmt: skip
