"""Numbers as coloured cells, bars, points and lines in a rectangle of a frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torcheer.video import palette
from torcheer.video.value_range import Scale, along

Frame = NDArray[np.uint8]  # height × width × 3
SIZE = (640, 480)  # width, height
LEAST_TILE = 16  # pixels: a smaller map tells nothing
MOST_BINNED = 2**19  # numbers; a histogram of more is one of every n-th


class Room(NamedTuple):
    """A rectangle of a frame, in pixels."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top


def heat(frame: Frame, room: Room, matrix: NDArray[Any], scale: Scale, blank: int = 0) -> str:
    """A matrix as cells of equal size in the middle of the room, its last ones blank; says what was left out."""
    side = matrix_side(matrix.shape, room)
    small, note = thin(matrix, side)
    cells = palette.places(small, scale.low, scale.high)
    if blank:
        inside = (np.arange(matrix.size) < matrix.size - blank).reshape(matrix.shape)
        cells[~thin(inside, side)[0]] = palette.AT_PAPER
    paste(frame, room, grow(cells, side), scale.signed)
    return note


def even(pixels: int) -> int:
    """Down to an even number. A video keeps one hue for two by two pixels: a cell should not share them with others."""
    return pixels - pixels % 2


def matrix_side(shape: Sequence[int], room: Room) -> tuple[int, int]:
    """Height and width of a matrix's picture: cells are square, but a thin matrix is stretched to half of the room."""
    high, wide = fitted(shape, room.height, room.width)
    if high < room.height / 4:
        high = shape[0] * -(-room.height // (2 * shape[0])) if shape[0] < room.height / 2 else room.height // 2
    if wide < room.width / 4:
        wide = shape[1] * -(-room.width // (2 * shape[1])) if shape[1] < room.width / 2 else room.width // 2
    return high, wide


def fitted(shape: Sequence[int], high: int, wide: int) -> tuple[int, int]:
    """The largest picture of a matrix in so many pixels, its cells square and, where they grow, of whole pixels."""
    factor = min(high / shape[0], wide / shape[1])
    if factor >= 2:
        factor = math.floor(factor) if factor < 4 else math.floor(factor / 2) * 2  # see `even`
    elif 1 < factor < 1.3:
        factor = 1  # hardly larger, and every cell the same
    return max(1, int(shape[0] * factor + 1e-9)), max(1, int(shape[1] * factor + 1e-9))


def tiles(frame: Frame, room: Room, maps: NDArray[Any], scale: Scale) -> str:
    """Maps (how many × height × width) side by side, all in the same colours; says how many there are."""
    many, columns, rows, gap, side = len(maps), *grid(len(maps), maps.shape[1:], room)
    small, note = thin(maps[: rows * columns], side)
    cells = grow(palette.places(small, scale.low, scale.high), side)
    sheet = np.full((rows * columns, side[0] + gap[0], side[1] + gap[1]), palette.AT_GAP, np.uint8)
    sheet[: len(cells), : side[0], : side[1]] = cells
    sheet[len(cells) :] = palette.AT_PAPER
    sheet_image = sheet.reshape(rows, columns, *sheet.shape[1:]).swapaxes(1, 2).reshape(rows * sheet.shape[1], -1)
    paste(frame, room, sheet_image[: -gap[0], : -gap[1]], scale.signed)
    return (f"{many} maps" if len(cells) == many else f"{len(cells)} of {many} maps") + (note and f", {note}")


def grid(many: int, shape: Sequence[int], room: Room) -> tuple[int, int, tuple[int, int], tuple[int, int]]:
    """Columns and rows of tiles, the gaps below and beside them, and a tile's height and width, in pixels."""
    columns = 0
    while True:
        columns += 1
        gap = 2 if room.width // columns < 100 else 4
        wide = even(room.width // columns) - gap
        side = fitted(shape, room.height, max(1, wide))
        gaps = gap + side[0] % 2, gap + side[1] % 2
        rows = max(1, (room.height + gaps[0]) // (side[0] + gaps[0]))
        if rows * columns >= many or wide <= LEAST_TILE:
            return min(columns, many), min(rows, -(-many // columns)), gaps, side


def thin(values: NDArray[Any], side: tuple[int, int]) -> tuple[NDArray[Any], str]:
    """Rows and columns for so many pixels, and what to say of it; what is not finite is never left out."""
    lengths = values.shape[-2:]
    starts = [np.arange(min(most, length)) * length // min(most, length) for length, most in zip(lengths, side)]
    if all(len(start) == length for start, length in zip(starts, lengths)):
        return values, ""
    shown = values[..., starts[0][:, None], starts[1]]
    if not np.isfinite(values.sum(dtype=np.float64)):
        for bad, mark in ((np.isinf(values), np.inf), (np.isnan(values), np.nan)):
            any_row = np.logical_or.reduceat(bad, starts[0], axis=-2)
            shown[np.logical_or.reduceat(any_row, starts[1], axis=-1)] = mark
    return shown, f"{lengths[0]}×{lengths[1]} shown as {shown.shape[-2]}×{shown.shape[-1]}"


def grow(places: NDArray[np.uint8], side: tuple[int, int]) -> NDArray[np.uint8]:
    """Repeat rows and columns until they fill so many pixels."""
    rows, columns = (np.arange(most) * length // most for length, most in zip(places.shape[-2:], side))
    return places[..., rows[:, None], columns]


def paste(frame: Frame, room: Room, shown: NDArray[np.uint8], signed: bool) -> None:
    """Put places of the colour table into the middle of the room, with a thin line around."""
    top = even(room.top + (room.height - shown.shape[0]) // 2)
    left = even(room.left + (room.width - shown.shape[1]) // 2)
    outline(frame, Room(left - 1, top - 1, left + shown.shape[1] + 1, top + shown.shape[0] + 1))
    frame[top : top + shown.shape[0], left : left + shown.shape[1]] = palette.table(signed)[shown]


def outline(frame: Frame, box: Room, colour: palette.Colour = palette.LINE) -> None:
    """A line of one pixel along the inside of a box."""
    for area in (
        np.s_[max(box.top, 0) : max(box.top, 0) + 1, max(box.left, 0) : box.right],
        np.s_[box.bottom - 1 : box.bottom, max(box.left, 0) : box.right],
        np.s_[max(box.top, 0) : box.bottom, max(box.left, 0) : max(box.left, 0) + 1],
        np.s_[max(box.top, 0) : box.bottom, box.right - 1 : box.right],
    ):
        frame[area] = colour


def bar(frame: Frame, room: Room, signed: bool) -> None:
    """The colours from the largest number, at the top, to the smallest."""
    places = np.rint(np.linspace(palette.STEPS - 1, 0, room.height)).astype(np.uint8)
    frame[room.top : room.bottom, room.left : room.right] = palette.table(signed)[places][:, None]
    outline(frame, Room(room.left - 1, room.top - 1, room.right + 1, room.bottom + 1))


def shares(values: NDArray[Any], scale: Scale, bins: int) -> NDArray[np.float64]:
    """Which part of the finite numbers falls into each bin between the ends of the scale.

    With one more bin than the scale is wide, whole numbers get one each.
    """
    flat = values.reshape(-1)
    flat = flat[:: -(-flat.size // MOST_BINNED)] if flat.size > MOST_BINNED else flat
    flat = flat[np.isfinite(flat)]
    indices = np.clip(along(flat, scale.low, scale.high) * bins, 0, bins - 1).astype(np.intp)
    return np.asarray(np.bincount(indices, minlength=bins) / max(flat.size, 1))


def bars(frame: Frame, room: Room, heights: NDArray[np.float64]) -> None:
    """Bars that stand on the room's floor; 1 is its full height, and what is not zero can be seen."""
    edges = [even(round(edge)) for edge in np.linspace(room.left, room.right, len(heights) + 1)]
    for left, right, height in zip(edges, edges[1:], heights):
        if height > 0:
            top = room.bottom - max(1, round(min(height, 1.0) * room.height))
            frame[top : room.bottom, left : max(left + 2, right - 2)] = palette.ACCENT


def points(frame: Frame, room: Room, across: NDArray[Any], up: NDArray[Any], size: int) -> None:
    """Squares at places from 0 to 1, dark for the first and light for the last."""
    x = (room.left + np.clip(across, 0, 1) * (room.width - size)).astype(int)
    y = (room.bottom - size - np.clip(up, 0, 1) * (room.height - size)).astype(int)
    order = np.linspace(0, 0.8 * (palette.STEPS - 1), len(x)).astype(np.uint8)  # the lightest are too near the paper
    colours = palette.table(False)[order]
    for down in range(size):
        for right in range(size):
            frame[y + down, x + right] = colours
