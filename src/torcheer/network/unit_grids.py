"""The grid of a layer's units on its plane: tiles, each with rows and columns."""

from __future__ import annotations

from math import ceil, isqrt, log, prod

from torcheer.network.network_records import Layer

Grid = tuple[int, int, int, int]  # tile rows, tile columns, rows, columns of a tile

_IN_A_ROW = 11  # units that fit in a single line
_WIDEST = 4  # largest ratio of columns to rows, if the number of units has such factors


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


_VIEWS = {"auto": _auto, "units": _units, "plane": _plane, "maps": _maps, "heads": _maps, "pools": _pools}


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
