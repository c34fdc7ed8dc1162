"""A layer's values as binary messages to the pages: a byte per cell, at most a million cells."""

from __future__ import annotations

import json
import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from torcheer.encoding import real_numbers
from torcheer.network.network_records import GAP_BITS, Net, PlacedLayer
from torcheer.network.unit_grids import Grid
from torcheer.studio.connections.messages import FrameHead, Look
from torcheer.studio.server_errors import report_error

if TYPE_CHECKING:
    from torcheer.studio.sources.moment_queries import Unit
    from torcheer.studio.sources.source import Source

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


class LayerFrames:
    """The binary messages of a source's layers; the latest 64 MB of pictures are kept for all pages."""

    MOST_BYTES = 64 << 20

    def __init__(self, most_cells: int = MOST_CELLS) -> None:
        """`most_cells`: of a picture; larger layers are reduced to blocks."""
        self._most_cells = most_cells
        self._cached: OrderedDict[tuple[object, ...], LayerPicture] = OrderedDict()
        self._bytes = 0

    def messages(self, source: Source, net: Net, look: Look, moment: int) -> Iterator[tuple[str, bytes | None]]:
        """Yield each layer's name and binary message, None where it has no value."""
        weights = look.variable in weight_variables(net)
        of = (look.layer, look.unit) if look.unit >= 0 else None
        opened = set(look.layers)
        for placed in net.layers:
            if opened and placed.layer.name not in opened:
                continue
            picture = self._picture(source, placed, look, moment, of if weights else None)
            if picture is None or (weights and of is None):
                yield placed.layer.name, None
                continue
            names = {"layer": placed.layer.name, "variable": look.variable, "item": look.item}
            message = message_of(picture, look=look.look, moment=moment, raster=look.raster > 0, **names)
            yield placed.layer.name, message

    def clear(self) -> None:
        """Empty the cache, for another network."""
        self._cached.clear()
        self._bytes = 0

    def _picture(
        self, source: Source, placed: PlacedLayer, look: Look, moment: int, of: Unit | None
    ) -> LayerPicture | None:
        moments = source.moments if look.raster else []
        newest = moments[-1].id if moments else -1  # a raster changes with each new moment, as older ones are removed
        cells = min(look.most_cells, self._most_cells)
        key = (moment, placed.layer.name, look.variable, look.item, of, look.raster, newest, cells)
        if key in self._cached:
            self._cached.move_to_end(key)
            return self._cached[key]
        try:
            picture = self._encode(source, placed, look, moment, of)
        except Exception as error:  # the other layers are still shown
            report_error(error)
            return None
        if picture is not None:  # a missing value may still arrive
            self._store(key, picture)
        return picture

    def _encode(
        self, source: Source, placed: PlacedLayer, look: Look, moment: int, of: Unit | None
    ) -> LayerPicture | None:
        name, cells = placed.layer.name, min(look.most_cells, self._most_cells)
        if look.raster:
            rows = source.raster(name, look.variable, look.item, look.raster, of, moment)
            if rows is None or not rows.size:
                return None
            return picture_of(rows, (1, 1, *rows.shape), across=False, most_cells=cells)
        values = source.units(moment, name, look.variable, look.item, of)
        if values is None or values.size != placed.units:
            return None
        return picture_of(values, placed.grid, most_cells=cells)

    def _store(self, key: tuple[object, ...], picture: LayerPicture) -> None:
        self._cached[key] = picture
        self._bytes += _size_bytes(picture)
        while self._bytes > self.MOST_BYTES:
            _, old = self._cached.popitem(last=False)
            self._bytes -= _size_bytes(old)


def _size_bytes(picture: LayerPicture) -> int:
    return picture.payload.nbytes + 1024  # with a key and its objects


def weight_variables(net: Net | None) -> set[str]:
    """The names of a network's variables that are weights, not units."""
    return {variable.name for variable in net.variables if variable.of == "weight"} if net else set()


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


def picture_of(values: Array, grid: Grid, *, across: bool = True, most_cells: int = MOST_CELLS) -> LayerPicture:
    """Reduce values to at most `most_cells` cells and encode them as bytes.

    Without `across`, columns (a raster's moments) stay.
    """
    with np.errstate(all="ignore"):
        numbers = real_numbers(values).reshape(-1)
        nans, infs, negative, empty = _count_special(numbers)
        is_nan = np.isnan(numbers) & ~is_gap(numbers) if nans else None
        nan_cells = None if is_nan is None else _reduce(is_nan.astype(np.float32), grid, across, most_cells)[2] > 0
        grid, block, cells = _reduce(numbers, grid, across, most_cells)
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


def _reduce(numbers: Array, grid: Grid, across: bool, most_cells: int) -> tuple[Grid, tuple[int, int], Array]:
    """Reduce to at most `most_cells` cells: each is its block's number of largest magnitude."""
    if grid[0] * grid[1] * grid[2] * grid[3] <= most_cells:
        return grid, (1, 1), numbers
    if grid[0] * grid[1] * 4 > most_cells:  # too many tiles to distinguish: one plane
        numbers, grid = _one_plane(numbers, grid)
    tiles, rows, columns = grid[0] * grid[1], grid[2], grid[3]
    block = _block(tiles, rows, columns, most_cells) if across else (ceil(rows * columns / most_cells), 1)
    smaller = (grid[0], grid[1], ceil(rows / block[0]), ceil(columns / block[1]))
    return smaller, block, _extremes(_padded(numbers, tiles, rows, columns), block).reshape(-1)


def _block(tiles: int, rows: int, columns: int, most_cells: int) -> tuple[int, int]:
    down = across = 1
    while tiles * ceil(rows / down) * ceil(columns / across) > most_cells:
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
