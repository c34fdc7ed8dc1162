"""A layer's values as one binary message: a byte for each cell, never more than about a million of them."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.studio.grids import Grid
from torcheer.studio.messages import FrameHead

MAGIC: Final = b"TCHF"
MOST_CELLS: Final = 1 << 20
_GAP_BITS: Final = 0x7FC07CE5
GAP: Final = np.array(_GAP_BITS, np.uint32).view(np.float32)[()]  # a NaN that no computation makes: nothing is there

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Picture:
    """Values as bytes: what a frame holds besides the names."""

    grid: Grid
    block: tuple[int, int]
    payload: NDArray[np.uint8]
    lo: float
    hi: float
    nans: int
    infs: int


def frame(values: Array, *, grid: Grid, look: int, moment: int, layer: str, variable: str, item: int = 0) -> bytes:
    """The message for a value per unit."""
    picture = picture_of(values, grid)
    return message_of(picture, raster=False, look=look, moment=moment, layer=layer, variable=variable, item=item)


def raster_frame(values: Array, *, look: int, moment: int, layer: str, variable: str, item: int = 0) -> bytes:
    """The message for a row per unit and a column per moment."""
    rows, columns = values.shape
    picture = picture_of(values, (1, 1, rows, columns), across=False)
    return message_of(picture, raster=True, look=look, moment=moment, layer=layer, variable=variable, item=item)


def message_of(picture: Picture, *, raster: bool, **names: Any) -> bytes:
    """A picture with its names: look, moment, layer, variable, item."""
    head = FrameHead(
        **names, grid=picture.grid, block=picture.block, count=picture.payload.size, lo=picture.lo, hi=picture.hi,
        nans=picture.nans, infs=picture.infs, raster=raster,
    )  # fmt: skip
    text = json.dumps(asdict(head), allow_nan=False).encode()
    start = MAGIC + struct.pack("<I", len(text)) + text
    return b"".join((start, bytes(-len(start) % 8), picture.payload.data))


def head_of(message: bytes) -> tuple[FrameHead, NDArray[np.uint8]]:
    """What a message says, and its bytes: the way back, for tests and for who reads them in Python."""
    (length,) = struct.unpack_from("<I", message, 4)
    found = json.loads(message[8 : 8 + length])
    found["grid"], found["block"] = tuple(found["grid"]), tuple(found["block"])
    start = -(-(8 + length) // 8) * 8
    return FrameHead(**found), np.frombuffer(message, np.uint8, found["count"], start)


def is_gap(values: Any) -> Any:
    """Whether nothing is there, of each value."""
    values = np.asarray(values)
    return values.view(np.uint32) == _GAP_BITS if values.dtype == np.float32 else np.zeros(values.shape, bool)


def numbers_of(values: Array) -> Array:
    """Real numbers: complex ones by their size, true and false as 1 and 0, types that numpy lacks as float32."""
    values = np.asarray(values)
    kind = values.dtype.kind
    if kind == "c":
        return np.abs(values)
    if kind == "f" and values.dtype.itemsize in (4, 8):
        return values
    if kind in "iu" and values.dtype.itemsize > 2:
        return values.astype(np.float64)
    return values.astype(np.float32)


def picture_of(values: Array, grid: Grid, *, across: bool = True) -> Picture:
    """Reduce values to cells and cells to bytes; not `across`: a column stays one (a raster's is a moment)."""
    with np.errstate(all="ignore"):
        numbers = numbers_of(values).reshape(-1)
        nans, infs, empty = _strange(numbers)
        grid, block, cells = _reduced(numbers, grid, across)
        strange = nans + infs + empty > 0 or block != (1, 1)  # blocks of empty cells are NaN
        lo, hi = _span(cells, strange)
        payload = _bytes(cells, lo, hi, strange)
    padded = np.zeros(grid[0] * grid[1] * grid[2] * grid[3], np.uint8)
    padded[: min(len(payload), len(padded))] = payload[: len(padded)]
    return Picture(grid, block, padded, lo, hi, nans, infs)


def _strange(numbers: Array) -> tuple[int, int, int]:
    """How many are NaN, infinite, not there; all of them are looked at again only where there is one."""
    if not numbers.size or (np.isfinite(numbers.min()) and np.isfinite(numbers.max())):  # NaN is passed on by both
        return 0, 0, 0
    empty = int(np.count_nonzero(is_gap(numbers)))
    return int(np.count_nonzero(np.isnan(numbers))) - empty, int(np.count_nonzero(np.isinf(numbers))), empty


def _span(cells: Array, strange: bool) -> tuple[float, float]:
    """The least and the largest finite number; nothing is 0 to 0."""
    if strange:
        cells = cells[np.isfinite(cells)]
    return (float(cells.min()), float(cells.max())) if cells.size else (0.0, 0.0)


def _bytes(cells: Array, lo: float, hi: float, strange: bool) -> NDArray[np.uint8]:
    """1 for lo, 255 for hi, linear between; 0 for NaN."""
    span = hi - lo
    if cells.dtype == np.float32 and 1e-30 < span < 1e37:
        scaled: Array = cells - np.float32(lo)
        scaled *= np.float32(254 / span)
    else:  # what float32 cannot hold the steps of; halves, as the span of float64 may itself be too large for it
        wide, half = cells.astype(np.float64), hi / 2 - lo / 2
        scaled = (wide / 2 - lo / 2) / half * 254 if half else (wide > lo) * 254.0  # half of the least number is none
    if strange:
        infinite = np.isinf(cells)
        scaled[infinite] = np.where(cells[infinite] > 0, 254, 0)
        gaps = np.isnan(cells)
        scaled[gaps] = -1
    scaled += 1.5
    return scaled.astype(np.uint8)


# -- by blocks ---------------------------------------------------------------------------------------------------------


def _reduced(numbers: Array, grid: Grid, across: bool) -> tuple[Grid, tuple[int, int], Array]:
    """The cells to be sent, tile by tile: each the number of largest magnitude of its block."""
    if grid[0] * grid[1] * grid[2] * grid[3] <= MOST_CELLS:
        return grid, (1, 1), numbers
    if grid[0] * grid[1] * 4 > MOST_CELLS:  # more tiles than can be told apart: one plane
        numbers, grid = _one_plane(numbers, grid)
    tiles, rows, columns = grid[0] * grid[1], grid[2], grid[3]
    block = _block(tiles, rows, columns) if across else (ceil(rows * columns / MOST_CELLS), 1)
    smaller = (grid[0], grid[1], ceil(rows / block[0]), ceil(columns / block[1]))
    return smaller, block, _extremes(_whole(numbers, tiles, rows, columns), block).reshape(-1)


def _block(tiles: int, rows: int, columns: int) -> tuple[int, int]:
    down = across = 1
    while tiles * ceil(rows / down) * ceil(columns / across) > MOST_CELLS:
        if ceil(rows / down) > ceil(columns / across):
            down += 1
        else:
            across += 1
    return down, across


def _whole(numbers: Array, tiles: int, rows: int, columns: int) -> Array:
    """All cells, the empty ones at the end as NaN."""
    missing = tiles * rows * columns - numbers.size
    if missing > 0:
        numbers = np.concatenate([numbers, np.full(missing, np.nan, numbers.dtype)])
    return numbers[: tiles * rows * columns].reshape(tiles, rows, columns)


def _one_plane(numbers: Array, grid: Grid) -> tuple[Array, Grid]:
    tile_rows, tile_columns, rows, columns = grid
    whole = _whole(numbers, tile_rows * tile_columns, rows, columns)
    plane = whole.reshape(tile_rows, tile_columns, rows, columns).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(plane).reshape(-1), (1, 1, tile_rows * rows, tile_columns * columns)


def _extremes(cells: Array, block: tuple[int, int]) -> Array:
    """Of each block the number that is farthest from zero; NaN only where there is no other."""
    down, across = block
    shape = (cells.shape[0], ceil(cells.shape[1] / down), ceil(cells.shape[2] / across))
    least, most = np.full(shape, np.nan, cells.dtype), np.full(shape, np.nan, cells.dtype)
    for row in range(down):
        for column in range(across):
            part = cells[:, row::down, column::across]
            place = (slice(None), slice(part.shape[1]), slice(part.shape[2]))
            np.fmin(least[place], part, out=least[place])
            np.fmax(most[place], part, out=most[place])
    return np.where(-least > most, least, most)
