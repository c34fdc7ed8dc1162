"""The grid of a layer's units on its plane: tiles, each with rows and columns."""

from __future__ import annotations

from math import ceil, isqrt, log, prod

from torcheer.network.network_records import Layer

Grid = tuple[int, int, int, int]  # tile rows, tile columns, rows, columns of a tile

_IN_A_ROW = 11  # units that fit in a single line
_WIDEST = 4  # largest ratio of columns to rows, if the number of units has such factors
_COLOURS = 3  # channels of a picture
_LEAST_PIXELS = 8  # along a side of a picture; three smaller planes are no photograph


def units_of(layer: Layer) -> int:
    """The number of units of a layer; a scalar is one unit."""
    return prod(layer.shape)


def grid_of(layer: Layer) -> Grid:
    """The layer's grid: unit u lies in tile u // (rows*columns), row-major.

    The last cells may be empty.
    """
    shape = tuple(max(int(length), 0) for length in layer.shape)
    if prod(shape) == 0:
        return (1, 1, 0, 0)
    view = layer.view if layer.view in _VIEWS else "auto"
    return _VIEWS[view](shape)


def view_of(shape: tuple[int, ...]) -> str:
    """The default view of a shape."""
    return {0: "units", 1: "units", 2: "plane", 4: "pools"}.get(len(shape), "maps")


def is_picture(shape: tuple[int, ...]) -> bool:
    """True for the shape of an RGB picture, its channels first or last."""
    if len(shape) != 3 or _COLOURS not in (shape[0], shape[2]):
        return False
    return min(shape[1:] if shape[0] == _COLOURS else shape[:2]) >= _LEAST_PIXELS


def plane_cells(layer: Layer, grid: Grid) -> tuple[int, int]:
    """Width and depth of a layer's plane in cells, with one empty cell between tiles; at least 1."""
    tile_rows, tile_columns, rows, columns = grid
    if layer.view == "picture" and tile_rows * tile_columns == 1 and len(layer.shape) == 3:
        columns = layer.shape[1]  # a pixel is three cells, and square
    gap = 1 if tile_rows * tile_columns > 1 else 0
    return max(tile_columns * (columns + gap) - gap, 1), max(tile_rows * (rows + gap) - gap, 1)


def _auto(shape: tuple[int, ...]) -> Grid:
    return _VIEWS[view_of(shape)](shape)


def _units(shape: tuple[int, ...]) -> Grid:
    """One tile, slightly wider than high."""
    return (1, 1, *_rectangle(prod(shape), widest=_WIDEST))


def _plane(shape: tuple[int, ...]) -> Grid:
    """Rows and columns unchanged; leading axes are merged into the rows."""
    if len(shape) < 2:
        return (1, 1, 1, prod(shape))
    return (1, 1, prod(shape[:-1]), shape[-1])


def _maps(shape: tuple[int, ...]) -> Grid:
    """A tile per map; single-cell maps become units, one-dimensional maps rows of a plane."""
    if len(shape) < 3:
        return _plane(shape)
    tiles, rows, columns = prod(shape[:-2]), shape[-2], shape[-1]
    if rows * columns == 1:
        return _units((tiles,))
    return (*_tiling(tiles, rows, columns), rows, columns)


def _pools(shape: tuple[int, ...]) -> Grid:
    """eTorch's 4-D shape: rows and columns of pools, then rows and columns of units in each."""
    if len(shape) != 4:
        return _maps(shape)
    return (shape[0], shape[1], shape[2], shape[3])


def _picture(shape: tuple[int, ...]) -> Grid:
    """Red, green and blue as tiles on a plane as wide and high as the picture; channels last, a row for each row."""
    if not is_picture(shape):
        return _maps(shape)
    return (2, 2, shape[1], shape[2]) if shape[0] == _COLOURS else (1, 1, shape[0], shape[1] * shape[2])


_VIEWS = {
    "auto": _auto, "units": _units, "plane": _plane, "maps": _maps, "heads": _maps, "pools": _pools,
    "picture": _picture,
}  # fmt: skip


def _rectangle(count: int, *, widest: int) -> tuple[int, int]:
    """Rows and columns for `count` cells, as square as the factors allow.

    At most `widest` times as wide as high.
    """
    if count <= _IN_A_ROW:  # ten classes read as a line
        return 1, count
    for rows in range(isqrt(count), 0, -1):
        if count % rows == 0 and count // rows <= widest * rows:
            return rows, count // rows
    columns = ceil(count**0.5)
    return ceil(count / columns), columns


def _tiling(tiles: int, rows: int, columns: int) -> tuple[int, int]:
    """Tile rows and columns for a plane slightly wider than high.

    Without empty tiles where possible.
    """
    square = (tiles * rows / columns) ** 0.5  # tile columns of a square
    near = range(max(ceil(0.7 * square), 1), min(int(1.75 * square), tiles) + 1)
    full = [width for width in near if tiles % width == 0]
    width = (
        min(full, key=lambda columns_of_tiles: abs(log(columns_of_tiles / (1.2 * square))))
        if full
        else min(ceil(square), tiles)
    )
    return ceil(tiles / width), width
