"""Encodes a layer's values as a binary message: a byte per cell, at most a million cells."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers
from torcheer.network.network_records import GAP_BITS
from torcheer.network.unit_grids import Grid
from torcheer.studio.connections.messages import FrameHead

MAGIC: Final = b"TCHF"
MOST_CELLS: Final = 1 << 20
# Bytes: 0 is no data; LEAST to MOST span lo to hi in an even number of steps, so that the middle is exact.
LEAST, MOST, NAN, PLUS, MINUS = 1, 251, 253, 254, 255
_STEPS: Final = MOST - LEAST
GAP: Final = np.array(GAP_BITS, np.uint32).view(np.float32)[()]  # a missing value

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class LayerPicture:
    """A layer's values encoded as bytes: a frame without its names."""

    grid: Grid
    block: tuple[int, int]
    payload: NDArray[np.uint8]
    lo: float
    hi: float
    nans: int
    infs: int
    negative_infs: int


def frame(values: Array, *, grid: Grid, look: int, moment: int, layer: str, variable: str, item: int = 0) -> bytes:
    """Encode one value per unit as a message."""
    picture = picture_of(values, grid)
    return message_of(picture, raster=False, look=look, moment=moment, layer=layer, variable=variable, item=item)


def raster_frame(values: Array, *, look: int, moment: int, layer: str, variable: str, item: int = 0) -> bytes:
    """Encode a row per unit and a column per moment as a message."""
    rows, columns = values.shape
    picture = picture_of(values, (1, 1, rows, columns), across=False)
    return message_of(picture, raster=True, look=look, moment=moment, layer=layer, variable=variable, item=item)


def message_of(picture: LayerPicture, *, raster: bool, **names: Any) -> bytes:
    """Serialize a picture with its names: look, moment, layer, variable, item."""
    head = FrameHead(
        **names, grid=picture.grid, block=picture.block, count=picture.payload.size, lo=picture.lo, hi=picture.hi,
        nans=picture.nans, infs=picture.infs, negative_infs=picture.negative_infs, raster=raster,
    )  # fmt: skip
    return binary_message(asdict(head), picture.payload)


def binary_message(head: dict[str, Any], payload: Array) -> bytes:
    """A header as JSON, then an array's bytes."""
    text = json.dumps(head, allow_nan=False).encode()
    start = MAGIC + struct.pack("<I", len(text)) + text
    return b"".join((start, bytes(-len(start) % 8), payload.data.cast("B")))


def parse_frame(message: bytes) -> tuple[FrameHead, NDArray[np.uint8]]:
    """Parse a message to its header and payload; for tests and Python clients."""
    (length,) = struct.unpack_from("<I", message, 4)
    fields = json.loads(message[8 : 8 + length])
    fields["grid"], fields["block"] = tuple(fields["grid"]), tuple(fields["block"])
    start = -(-(8 + length) // 8) * 8
    return FrameHead(**fields), np.frombuffer(message, np.uint8, fields["count"], start)


def is_gap(values: Any) -> Any:
    """True for each value that is missing."""
    values = np.asarray(values)
    return values.view(np.uint32) == GAP_BITS if values.dtype == np.float32 else np.zeros(values.shape, bool)


def picture_of(values: Array, grid: Grid, *, across: bool = True) -> LayerPicture:
    """Reduce values to cells and encode them as bytes.

    Without `across`, columns (a raster's moments) stay.
    """
    with np.errstate(all="ignore"):
        numbers = real_numbers(values).reshape(-1)
        nans, infs, negative, empty = _count_special(numbers)
        is_nan = np.isnan(numbers) & ~is_gap(numbers) if nans else None
        nan_cells = None if is_nan is None else _reduce(is_nan.astype(np.float32), grid, across)[2] > 0
        grid, block, cells = _reduce(numbers, grid, across)
        has_special = nans + infs + empty > 0 or block != (1, 1)  # blocks of empty cells are NaN
        lo, hi = _span(cells, has_special)
        payload = _bytes(cells, lo, hi, has_special)
        if nan_cells is not None:
            payload[nan_cells] = NAN  # a single NaN among a million values stays visible
    padded = np.zeros(grid[0] * grid[1] * grid[2] * grid[3], np.uint8)
    padded[: min(len(payload), len(padded))] = payload[: len(padded)]
    return LayerPicture(grid, block, padded, lo, hi, nans, infs, negative)


def _count_special(numbers: Array) -> tuple[int, int, int, int]:
    """Counts of NaN, infinite, negative infinite and missing values.

    One cheap pass if there are none.
    """
    if not numbers.size or (np.isfinite(numbers.min()) and np.isfinite(numbers.max())):  # both propagate NaN
        return 0, 0, 0, 0
    empty, nans = np.count_nonzero(is_gap(numbers)), np.count_nonzero(np.isnan(numbers))
    negative, infs = np.count_nonzero(np.isneginf(numbers)), np.count_nonzero(np.isinf(numbers))
    return int(nans - empty), int(infs), int(negative), int(empty)


def _span(cells: Array, has_special: bool) -> tuple[float, float]:
    """The smallest and largest finite number; 0 and 0 if there is none."""
    if has_special:
        cells = cells[np.isfinite(cells)]
    return (float(cells.min()), float(cells.max())) if cells.size else (0.0, 0.0)


def _bytes(cells: Array, lo: float, hi: float, has_special: bool) -> NDArray[np.uint8]:
    """Scale linearly, lo to LEAST and hi to MOST; NaN, which may be missing data, to 0."""
    span = hi - lo
    if cells.dtype == np.float32 and 1e-30 < span < 1e37:
        scaled: Array = cells - np.float32(lo)
        scaled *= np.float32(_STEPS / span)
    else:  # float32 is too coarse; halved, as the span may overflow even float64
        wide, half = cells.astype(np.float64), hi / 2 - lo / 2
        scaled = (wide / 2 - lo / 2) / half if half else (wide > lo) * 1.0  # half of the smallest number is 0
        scaled *= _STEPS
    if has_special:
        infinite = np.isinf(cells)
        scaled[infinite] = np.where(cells[infinite] > 0, PLUS - LEAST, MINUS - LEAST)
        gaps = np.isnan(cells)
        scaled[gaps] = -1
    scaled += 1.5
    return scaled.astype(np.uint8)


# -- block reduction ---------------------------------------------------------------------------------------------------


def _reduce(numbers: Array, grid: Grid, across: bool) -> tuple[Grid, tuple[int, int], Array]:
    """Reduce to at most `MOST_CELLS` cells: each is its block's number of largest magnitude."""
    if grid[0] * grid[1] * grid[2] * grid[3] <= MOST_CELLS:
        return grid, (1, 1), numbers
    if grid[0] * grid[1] * 4 > MOST_CELLS:  # too many tiles to distinguish: one plane
        numbers, grid = _one_plane(numbers, grid)
    tiles, rows, columns = grid[0] * grid[1], grid[2], grid[3]
    block = _block(tiles, rows, columns) if across else (ceil(rows * columns / MOST_CELLS), 1)
    smaller = (grid[0], grid[1], ceil(rows / block[0]), ceil(columns / block[1]))
    return smaller, block, _extremes(_padded(numbers, tiles, rows, columns), block).reshape(-1)


def _block(tiles: int, rows: int, columns: int) -> tuple[int, int]:
    down = across = 1
    while tiles * ceil(rows / down) * ceil(columns / across) > MOST_CELLS:
        if ceil(rows / down) > ceil(columns / across):
            down += 1
        else:
            across += 1
    return down, across


def _padded(numbers: Array, tiles: int, rows: int, columns: int) -> Array:
    """All cells by tile, padded with NaN."""
    missing = tiles * rows * columns - numbers.size
    if missing > 0:
        numbers = np.concatenate([numbers, np.full(missing, np.nan, numbers.dtype)])
    return numbers[: tiles * rows * columns].reshape(tiles, rows, columns)


def _one_plane(numbers: Array, grid: Grid) -> tuple[Array, Grid]:
    tile_rows, tile_columns, rows, columns = grid
    padded = _padded(numbers, tile_rows * tile_columns, rows, columns)
    plane = padded.reshape(tile_rows, tile_columns, rows, columns).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(plane).reshape(-1), (1, 1, tile_rows * rows, tile_columns * columns)


def _extremes(cells: Array, block: tuple[int, int]) -> Array:
    """The number of each block that is farthest from zero; NaN only if it has no other."""
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
